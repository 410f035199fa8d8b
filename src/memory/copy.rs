//! [`Memory`]'s methods that write, read and fill: short copies at once, others by the CPU or the GPU's copy engine.
#![expect(unsafe_code, reason = "copies bytes that the memory keeps alive")]

use std::ops::RangeBounds;

use bytemuck::{NoUninit, Pod};

use super::Memory;
use crate::access::copy::{self, HostAccess};
use crate::access::range;
use crate::access::view::View;
use crate::access::writer::Writer;
use crate::copy_engine::policy::{CopyPath, Direction, MemoryProperties};
use crate::copy_engine::{CopyEngines, Failure};
use crate::driver::fill_pattern::FillPattern;
use crate::driver::fork;
use crate::report::report;
use crate::{CopyPolicy, Error, Result};

/// The result of a copy by the copy engine.
type EngineResult = std::result::Result<(), Failure>;

impl Memory {
    /// Copies `source` to the bytes at `offset`, which need not be aligned. Does not flush.
    ///
    /// The device sees all of these bytes before this thread's later stores; among themselves they have no order.
    ///
    /// The CPU copies until [`prepare_copies`](crate::Vkgdr::prepare_copies) or a copy with [`CopyPolicy::Dma`] has
    /// created the GPU's copy engine in the memory's context. From then on the engine makes large writes to mapped
    /// memory ([`CopyPolicy::Auto`]). [`write_with`](Self::write_with) chooses. Either way this returns when the copy
    /// is complete. [`writer`](Self::writer) makes many small writes faster.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::NoHostView`](crate::Error::NoHostView), and the
    /// driver's errors if the copy engine copies, including those of earlier, asynchronous work.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
    /// memory.write(16, &[1.0_f32, 2.0, 3.0])?;
    /// memory.flush(16..28)?;
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    #[inline]
    pub fn write<T: NoUninit>(&self, offset: usize, source: &[T]) -> Result<()> {
        let source = bytemuck::cast_slice(source);
        let access = self.access;
        let HostAccess::Cached(_) = access else { return self.write_uncached(access, offset, source) };
        let to = self.host_range(offset, source.len())?;
        // SAFETY: `to` has room for `source.len()` bytes, which this memory keeps mapped.
        unsafe { copy::write(access, to, source) };
        Ok(())
    }

    /// Begins a series of writes with one fence at the end, instead of one after each write.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
    /// let mut writer = memory.writer();
    /// for packet in 0..8 {
    ///     writer.write(packet * 256, &[packet as f32; 16])?;
    /// }
    /// writer.finish();
    /// memory.write(4000, &[1_u32])?; // a flag for a running kernel: the packets are complete
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn writer(&self) -> Writer<'_> {
        Writer::new(self.cpu_view())
    }

    /// Copies `source` to `offset` by the CPU, without a fence: [`flush`](Self::flush) must follow.
    #[inline]
    pub(crate) fn write_unfenced(&self, offset: usize, source: &[u8]) -> Result<()> {
        self.cpu_view().write_unordered(offset, source)
    }

    /// Copies the bytes at `offset`, which need not be aligned, to `target`. Does not invalidate.
    ///
    /// The CPU reads mapped memory slowly through the PCIe BAR, and memory of kind `Host` at full speed. Once the GPU's
    /// copy engine was created, see [`write`](Self::write), it makes reads of mapped memory from 8 KiB on by default
    /// ([`CopyPolicy::Auto`], [`CopyThresholds`](crate::CopyThresholds)); [`read_with`](Self::read_with) chooses.
    ///
    /// The bytes are loaded after this thread's earlier loads, such as the load of a flag. A later load, other than by
    /// this method, may be executed before them.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write).
    #[inline]
    pub fn read<T: Pod>(&self, offset: usize, target: &mut [T]) -> Result<()> {
        let target = bytemuck::cast_slice_mut(target);
        let access = self.access;
        let HostAccess::Cached(_) = access else { return self.read_uncached(access, offset, target) };
        let from = self.host_range(offset, target.len())?;
        // SAFETY: `from` has `target.len()` bytes, which this memory keeps mapped.
        unsafe { copy::read(access, from, target) };
        Ok(())
    }

    /// Fills a range of bytes with repetitions of `value`; the range's length must be a multiple of the value's size.
    /// Does not flush.
    ///
    /// Once the GPU's copy engine was created, see [`write`](Self::write), it fills ranges of mapped memory that
    /// [`CopyThresholds`](crate::CopyThresholds) selects, if it can repeat the value. It repeats values of 1, 2 or 4
    /// bytes at an address that is a multiple of that, and larger ones that themselves repeat such a value, as zeros
    /// do. The CPU fills all others. Either way this returns when the fill is complete.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`](crate::Error::Misaligned) for a length that is not a multiple of the value's size,
    /// [`Error::ReversedRange`](crate::Error::ReversedRange), and the errors of [`write`](Self::write).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
    /// memory.fill(.., 0_u8)?;
    /// memory.fill(1024..2048, f32::NAN)?;
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn fill<T: NoUninit>(&self, range: impl RangeBounds<usize>, value: T) -> Result<()> {
        self.fill_pattern(range, &[value])
    }

    /// Fills a range of bytes with repetitions of a pattern of several values; the range's length must be a multiple of
    /// the pattern's size in bytes. Does not flush. An empty pattern writes nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`fill`](Self::fill).
    pub fn fill_pattern<T: NoUninit>(&self, range: impl RangeBounds<usize>, pattern: &[T]) -> Result<()> {
        let (offset, len) = range::resolve(&range, self.len())?;
        self.fill_bytes(offset, len, bytemuck::cast_slice(pattern))
    }

    /// [`write`](Self::write) with a choice between the CPU and the GPU's copy engine.
    ///
    /// The copy engine ([`CopyPolicy::Dma`]) also writes to memory without a host view, for which [`CopyPolicy::Auto`]
    /// selects it. Its copies are not ordered with the device's other work: wait first for work that uses the memory;
    /// work launched after this has returned sees the bytes. Earlier writes by this thread come before the copy.
    ///
    /// The handle's first such copy in a context allocates 2 MiB of pinned memory and two streams there, in relaxed
    /// capture mode, unless [`Vkgdr::prepare_copies`](crate::Vkgdr::prepare_copies) has. That may wait until running
    /// kernels have ended, so that [`CopyPolicy::Auto`] leaves mapped memory to the CPU until then. They end with the
    /// handle and its memory. Copies use them one at a time and are never part of a capture. Drivers older than CUDA 12
    /// cannot tell a destroyed context from a later one at its address. There every copy allocates its own, and
    /// [`CopyPolicy::Auto`] always uses the CPU where it can.
    ///
    /// Private memory that is page-locked (`cuMemHostAlloc`, `cuMemHostRegister`) is copied directly, without that
    /// pinned memory; large copies take as long as `cuMemcpyHtoDAsync` and a wait.
    ///
    /// On non-coherent memory this flushes before the copy and invalidates after it, in whole atoms: nothing else may
    /// write to these atoms meanwhile. Other views of the same bytes, such as imported memory, must be invalidated
    /// before they are flushed, since flushing stale bytes would undo the copy.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::NoHostView`](crate::Error::NoHostView) for
    /// [`CopyPolicy::Cpu`], and for the copy engine [`Error::Forked`](crate::Error::Forked) and the driver's errors,
    /// including those of earlier, asynchronous work; it is then unspecified which of the bytes were written. With
    /// [`CopyPolicy::Auto`] the CPU copies mapped memory where the copy engine is unavailable, as in a forked child.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use vkgdr::{CopyPolicy, Memory, MemoryKind};
    ///
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// let table = Memory::allocate(&gpu, 4096, MemoryKind::Device)?;
    /// table.write_with(CopyPolicy::Dma, 0, &[1.0_f32; 1024])?;
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn write_with<T: NoUninit>(&self, policy: CopyPolicy, offset: usize, source: &[T]) -> Result<()> {
        self.write_bytes(policy, offset, bytemuck::cast_slice(source))
    }

    /// [`read`](Self::read) with a choice between the CPU and the GPU's copy engine; see
    /// [`write_with`](Self::write_with).
    ///
    /// On non-coherent memory this flushes before the copy engine reads, so that it sees this thread's writes. As
    /// before any read, invalidate the device's writes first: otherwise the flush may undo them.
    ///
    /// # Errors
    ///
    /// The errors of [`write_with`](Self::write_with). The contents of `target` are then unspecified.
    pub fn read_with<T: Pod>(&self, policy: CopyPolicy, offset: usize, target: &mut [T]) -> Result<()> {
        self.read_bytes(policy, offset, bytemuck::cast_slice_mut(target))
    }

    /// [`write`](Self::write) to memory that is not copied as cached memory. Inlined into `write`, which is generic,
    /// and so into the crate that calls it. Rare cases are in another function, so that this one saves no registers for
    /// them.
    #[inline]
    fn write_uncached(&self, access: HostAccess, offset: usize, source: &[u8]) -> Result<()> {
        let to = self.host_range(offset, source.len())?;
        if access != HostAccess::WriteCombined || source.len() >= self.inner.thresholds.of(Direction::Write) {
            return self.write_bytes(CopyPolicy::Auto, offset, source);
        }
        // SAFETY: `to` has room for `source.len()` bytes, which this memory keeps mapped.
        unsafe { copy::write(access, to, source) };
        Ok(())
    }

    /// The counterpart of [`write_uncached`](Self::write_uncached) for [`read`](Self::read).
    #[inline]
    fn read_uncached(&self, access: HostAccess, offset: usize, target: &mut [u8]) -> Result<()> {
        // First, so that the fence does not wait for the loads below.
        copy::order_reads(access);
        let from = self.host_range(offset, target.len())?;
        if access != HostAccess::WriteCombined || target.len() >= self.inner.thresholds.of(Direction::Read) {
            return self.read_bytes(CopyPolicy::Auto, offset, target);
        }
        // SAFETY: `from` has `target.len()` bytes, which this memory keeps mapped, and an allocation is whole lines.
        unsafe { copy::read_unordered(access, from, target) };
        Ok(())
    }

    fn path(&self, policy: CopyPolicy, direction: Direction, len: usize) -> CopyPath {
        let properties = MemoryProperties {
            host_view: self.kind().has_host_view(),
            coherent: self.is_coherent(),
            write_combined: self.access == HostAccess::WriteCombined,
        };
        match CopyPath::choose(policy, properties, len, self.inner.thresholds.of(direction)) {
            // Creating an engine may block behind a kernel that waits for this copy.
            CopyPath::EngineOrCpu if !self.engines().is_prepared(self.inner.context()) => CopyPath::Cpu,
            path => path,
        }
    }

    fn engines(&self) -> &CopyEngines {
        self.owner().copy_engines()
    }

    #[cold]
    fn write_bytes(&self, policy: CopyPolicy, offset: usize, source: &[u8]) -> Result<()> {
        let view = self.cpu_view();
        match self.path(policy, Direction::Write, source.len()) {
            CopyPath::Cpu => view.write(offset, source),
            CopyPath::Engine => self.write_by_engine(view, offset, source)?.map_err(|failure| self.record(failure)),
            CopyPath::EngineOrCpu => {
                self.or_by_cpu(self.write_by_engine(view, offset, source)?, || view.write(offset, source))
            }
        }
    }

    #[cold]
    fn read_bytes(&self, policy: CopyPolicy, offset: usize, target: &mut [u8]) -> Result<()> {
        let view = self.cpu_view();
        match self.path(policy, Direction::Read, target.len()) {
            CopyPath::Cpu => view.read(offset, target),
            CopyPath::Engine => self.read_by_engine(view, offset, target)?.map_err(|failure| self.record(failure)),
            CopyPath::EngineOrCpu => {
                self.or_by_cpu(self.read_by_engine(view, offset, target)?, || view.read(offset, target))
            }
        }
    }

    /// [`fill_pattern`](Self::fill_pattern) of a checked range.
    fn fill_bytes(&self, offset: usize, len: usize, pattern: &[u8]) -> Result<()> {
        let view = self.cpu_view();
        let by_cpu = || view.fill(offset, len, pattern);
        match self.fill_pattern_for_engine(view, offset, len, pattern) {
            Some(pattern) => self.or_by_cpu(self.fill_by_engine(view, offset, len, pattern)?, by_cpu),
            None => by_cpu(),
        }
    }

    /// The value that the copy engine can repeat; `None` if the CPU fills or refuses.
    fn fill_pattern_for_engine(
        &self,
        view: View<'_>,
        offset: usize,
        len: usize,
        pattern: &[u8],
    ) -> Option<FillPattern> {
        let path = self.path(CopyPolicy::Auto, Direction::Write, len);
        let is_whole = len > 0 && len.is_multiple_of(pattern.len().max(1));
        if path == CopyPath::EngineOrCpu && is_whole {
            FillPattern::of(pattern, view.device_ptr() + offset as u64)
        } else {
            None
        }
    }

    /// The result of a copy by the copy engine, or of `by_cpu` if the engine was unavailable.
    fn or_by_cpu(&self, copied: EngineResult, by_cpu: impl FnOnce() -> Result<()>) -> Result<()> {
        match copied {
            Err(Failure::Unavailable(error)) => {
                report!(Debug, "copying by the CPU, since the copy engine is unavailable: {error}");
                by_cpu()
            }
            copied => copied.map_err(|failure| self.record(failure)),
        }
    }

    /// The outer result belongs to the steps around the copy, the inner one to the copy.
    fn write_by_engine(&self, view: View<'_>, offset: usize, source: &[u8]) -> Result<EngineResult> {
        let part = view.part(offset, source.len())?;
        if source.is_empty() {
            return Ok(fork::check().map_err(Failure::Unavailable));
        }
        // SAFETY: this memory keeps the bytes alive, and after an `Unfinished` failure their release waits for the
        // context.
        Self::change_by_engine(part, || unsafe {
            self.engines().write(self.inner.context(), part.device_ptr(), source)
        })
    }

    /// Runs a copy or fill by the device of all of a view's bytes.
    fn change_by_engine(part: View<'_>, change: impl FnOnce() -> EngineResult) -> Result<EngineResult> {
        // This thread's earlier writes come first.
        part.flush(0, part.len())?;
        let changed = change();
        if changed.is_ok() {
            part.invalidate(0, part.len())?;
        }
        Ok(changed)
    }

    /// See [`write_by_engine`](Self::write_by_engine) for the results.
    fn read_by_engine(&self, view: View<'_>, offset: usize, target: &mut [u8]) -> Result<EngineResult> {
        let part = view.part(offset, target.len())?;
        if target.is_empty() {
            return Ok(fork::check().map_err(Failure::Unavailable));
        }
        part.flush(0, target.len())?;
        // SAFETY: as in `write_by_engine`.
        Ok(unsafe { self.engines().read(self.inner.context(), part.device_ptr(), target) })
    }

    /// See [`write_by_engine`](Self::write_by_engine) for the results.
    fn fill_by_engine(&self, view: View<'_>, offset: usize, len: usize, pattern: FillPattern) -> Result<EngineResult> {
        let part = view.part(offset, len)?;
        // SAFETY: as in `write_by_engine`.
        Self::change_by_engine(part, || unsafe {
            self.engines().fill(self.inner.context(), part.device_ptr(), pattern, len)
        })
    }

    /// Records a failed copy that the device may still be making, so that the memory is not freed before it ends.
    /// Returns the error.
    fn record(&self, failure: Failure) -> Error {
        if let Failure::Unfinished(_) = failure {
            self.expose();
            self.inner.uses.lock().record_unfinished_copy();
        }
        failure.into()
    }
}
