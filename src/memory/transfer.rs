//! Copies between private memory and a region, by the CPU or by the GPU's copy engine.
#![expect(unsafe_code, reason = "copies bytes that the region keeps")]

use std::ops::RangeBounds;

use bytemuck::{NoUninit, Pod};

use super::region::Region;
use crate::access::copy::{self, HostAccess};
use crate::access::range;
use crate::access::view::View;
use crate::access::writer::Writer;
use crate::copy_engine::policy::{CopyPath, Direction, MemoryProperties};
use crate::copy_engine::{CopyEngines, Failure};
use crate::driver::fill_pattern::FillPattern;
use crate::driver::process;
use crate::{CopyPolicy, Result};

impl Region {
    /// Copies `source` to the bytes at `offset`, which need not be aligned. Does not flush.
    ///
    /// Whatever this thread stores later comes after all of these bytes, as the device sees it; among themselves they
    /// have no order. [`writer`](Self::writer) makes many small writes faster, and
    /// [`write_with`](Self::write_with) says who copies: here it is the CPU, and for large writes of mapped memory the
    /// GPU's copy engine where that is faster ([`CopyPolicy::Auto`](crate::CopyPolicy::Auto)). Either way this returns
    /// when it is done.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::NoHostView`], and what the driver says of a copy that the copy engine has begun,
    /// which may be an error of earlier, asynchronous work.
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
        let access = self.host_access();
        let HostAccess::Cached(_) = access else { return self.write_uncached(access, offset, source) };
        let to = self.host_range(offset, source.len())?;
        // SAFETY: `to` has room for `source.len()` bytes, which this region keeps mapped.
        unsafe { copy::write(access, to, source) };
        Ok(())
    }

    /// Begins writes that are ordered together, with one fence at the end instead of one each.
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
    /// memory.write(4000, &[1_u32])?; // tells a running kernel that the packets are there
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn writer(&self) -> Writer<'_> {
        Writer::new(self.view())
    }

    /// Copies the bytes at `offset`, which need not be aligned, to `target`. Does not invalidate.
    ///
    /// Reading mapped memory through the PCIe BAR is slow; memory of kind `Host` is made for that. Reads of mapped memory
    /// of more than a few KiB are left to the GPU's copy engine ([`CopyPolicy::Auto`](crate::CopyPolicy::Auto)), which
    /// [`read_with`](Self::read_with) can choose. Where that cannot be had, large reads are spread over at most eight
    /// threads, which are gone when this returns.
    ///
    /// The bytes are loaded after whatever this thread has loaded before, such as a flag. A load other than by this
    /// method that follows may be carried out before them.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    #[inline]
    pub fn read<T: Pod>(&self, offset: usize, target: &mut [T]) -> Result<()> {
        let target = bytemuck::cast_slice_mut(target);
        let access = self.host_access();
        let HostAccess::Cached(_) = access else { return self.read_uncached(access, offset, target) };
        let from = self.host_range(offset, target.len())?;
        // SAFETY: `from` has `target.len()` bytes, which this region keeps mapped.
        unsafe { copy::read(access, from, target) };
        Ok(())
    }

    /// Repeats `value` over a range of bytes, whose length must be a multiple of the value's size. Does not
    /// flush.
    ///
    /// The GPU fills ranges of mapped memory that are as large as writes that are left to its copy engine
    /// ([`CopyThresholds`](crate::CopyThresholds)), with values that it can repeat: of one, two or four bytes, at an
    /// address that is a multiple of that, and larger ones that are made of such, zeros for example. Either way this
    /// returns when it is done.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`], and as [`write`](Self::write).
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

    /// Repeats several values over a range of bytes, whose length must be a multiple of the values' size together. Does
    /// not flush. No values fill nothing.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    pub fn fill_pattern<T: NoUninit>(&self, range: impl RangeBounds<usize>, pattern: &[T]) -> Result<()> {
        let (offset, len) = range::resolve(&range, self.len())?;
        self.fill_bytes(offset, len, bytemuck::cast_slice(pattern))
    }

    /// As [`write`](Self::write), by whom the policy says.
    ///
    /// The copy engine ([`CopyPolicy::Dma`]) also writes to memory without a host view, which [`CopyPolicy::Auto`] leaves
    /// to it. It has no order with the device's other work: work that uses the memory must have been waited for, and work
    /// that is launched when this has returned sees the bytes. It comes after what this thread wrote to the same bytes.
    ///
    /// The memory's first such copy in a context makes 2 MiB of pinned memory and two streams there, which stay until
    /// [`Vkgdr::collect`] or another such copy finds the context destroyed. One copy at a time uses them; others wait.
    /// They are made in relaxed mode, should a stream be captured. A copy is never part of a capture.
    ///
    /// Private memory that is page-locked (`cuMemHostAlloc`, `cuMemHostRegister`) the copy engine reaches by itself: then
    /// nothing goes through that pinned memory, and large copies take as long as `cuMemcpyHtoDAsync` and a wait.
    ///
    /// On memory that is not coherent the copy engine flushes before and invalidates afterwards, in whole atoms, so that
    /// nobody else may write to these meanwhile. Other views of the same bytes, such as those of another allocation that
    /// imported them, must be invalidated before they are flushed: a flush of what they have would undo the copy.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange); [`Error::NoHostView`](crate::Error::NoHostView) where the CPU is
    /// to copy; what the drivers return of the copy engine's work, also errors of earlier, asynchronous work, and
    /// [`Error::Forked`](crate::Error::Forked). Which of the bytes were written is unknown then. With
    /// [`CopyPolicy::Auto`] the CPU copies where the copy engine cannot be had, such as in a forked process.
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

    /// As [`read`](Self::read), by whom the policy says; see [`write_with`](Self::write_with).
    ///
    /// On memory that is not coherent the copy engine flushes before it reads, so that it sees what this thread has
    /// written. As before any read, what the device wrote must be invalidated first, lest the flush undo it.
    ///
    /// # Errors
    ///
    /// As [`write_with`](Self::write_with). What `target` holds is unspecified then.
    pub fn read_with<T: Pod>(&self, policy: CopyPolicy, offset: usize, target: &mut [T]) -> Result<()> {
        self.read_bytes(policy, offset, bytemuck::cast_slice_mut(target))
    }

    /// [`write`](Self::write) to memory that is not copied as cached memory. Inlined, since access to thread-local storage
    /// from another crate's code is a call. Rare cases go to another function, so that this one saves no registers.
    #[inline]
    pub(super) fn write_uncached(&self, access: HostAccess, offset: usize, source: &[u8]) -> Result<()> {
        if access != HostAccess::WriteCombined {
            return self.write_unusual(offset, source);
        }
        let engines = self.engines();
        let (direction, len) = (Direction::Write, source.len());
        let to = self.host_range(offset, len)?;
        if len >= engines.threshold(direction) || !engines.counters().count_cpu_again(direction, len) {
            return self.write_unusual(offset, source);
        }
        // SAFETY: `to` has room for `source.len()` bytes, which this region keeps mapped.
        unsafe { copy::write(access, to, source) };
        Ok(())
    }

    /// As [`write_uncached`](Self::write_uncached), for [`read`](Self::read).
    #[inline]
    pub(super) fn read_uncached(&self, access: HostAccess, offset: usize, target: &mut [u8]) -> Result<()> {
        if access != HostAccess::WriteCombined {
            return self.read_unusual(offset, target);
        }
        // First: the fence would wait for the loads below.
        copy::order_reads(access);
        let engines = self.engines();
        let (direction, len) = (Direction::Read, target.len());
        let from = self.host_range(offset, len)?;
        if len >= engines.threshold(direction) || !engines.counters().count_cpu_again(direction, len) {
            return self.read_unusual(offset, target);
        }
        // SAFETY: `from` has `target.len()` bytes, which this region keeps mapped, and an allocation is whole lines.
        unsafe { copy::read_unordered(access, from, target) };
        Ok(())
    }

    /// Writes by the copy engine, by a routine to cached memory, the first of a thread, and those that are refused.
    #[cold]
    fn write_unusual(&self, offset: usize, source: &[u8]) -> Result<()> {
        // Memory without a host view is refused.
        let policy = if self.kind().has_host_view() { CopyPolicy::Auto } else { CopyPolicy::Cpu };
        self.write_bytes(policy, offset, source)
    }

    /// As [`write_unusual`](Self::write_unusual).
    #[cold]
    fn read_unusual(&self, offset: usize, target: &mut [u8]) -> Result<()> {
        let policy = if self.kind().has_host_view() { CopyPolicy::Auto } else { CopyPolicy::Cpu };
        self.read_bytes(policy, offset, target)
    }

    fn path(&self, policy: CopyPolicy, direction: Direction, len: usize) -> CopyPath {
        let properties = MemoryProperties {
            host_view: self.kind().has_host_view(),
            coherent: self.is_coherent(),
            write_combined: self.host_access() == HostAccess::WriteCombined,
        };
        match CopyPath::choose(policy, properties, len, self.engines().threshold(direction)) {
            // Setting an engine up for one copy is not worth it.
            CopyPath::EngineOrCpu if !CopyEngines::keeps_engine(self.block().context()) => CopyPath::Cpu,
            path => path,
        }
    }

    #[inline]
    fn engines(&self) -> &'static CopyEngines {
        self.block().engines()
    }

    fn write_bytes(&self, policy: CopyPolicy, offset: usize, source: &[u8]) -> Result<()> {
        let view = self.view();
        match self.path(policy, Direction::Write, source.len()) {
            CopyPath::Cpu => self.write_by_cpu(view, offset, source),
            CopyPath::Engine => self.write_by_engine(view, offset, source)?.map_err(|failure| self.after(failure)),
            CopyPath::EngineOrCpu => {
                self.or_by_cpu(self.write_by_engine(view, offset, source)?, || self.write_by_cpu(view, offset, source))
            }
        }
    }

    fn read_bytes(&self, policy: CopyPolicy, offset: usize, target: &mut [u8]) -> Result<()> {
        let view = self.view();
        match self.path(policy, Direction::Read, target.len()) {
            CopyPath::Cpu => self.read_by_cpu(view, offset, target),
            CopyPath::Engine => self.read_by_engine(view, offset, target)?.map_err(|failure| self.after(failure)),
            CopyPath::EngineOrCpu => {
                self.or_by_cpu(self.read_by_engine(view, offset, target)?, || self.read_by_cpu(view, offset, target))
            }
        }
    }

    /// [`fill_pattern`](Self::fill_pattern), of a range that has been checked.
    pub(super) fn fill_bytes(&self, offset: usize, len: usize, pattern: &[u8]) -> Result<()> {
        let view = self.view();
        let by_cpu = || self.fill_by_cpu(view, offset, len, pattern);
        match self.fill_pattern_for_engine(view, offset, len, pattern) {
            Some(pattern) => self.or_by_cpu(self.fill_by_engine(view, offset, len, pattern)?, by_cpu),
            None => by_cpu(),
        }
    }

    /// The value that the copy engine is to repeat; none where the CPU fills, or refuses to.
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

    /// What became of a copy by the copy engine; where that could not be had, the CPU's.
    fn or_by_cpu(&self, copied: std::result::Result<(), Failure>, by_cpu: impl FnOnce() -> Result<()>) -> Result<()> {
        match copied {
            Err(Failure::Unavailable(error)) => {
                log::debug!("a copy is left to the CPU: {error}");
                by_cpu()
            }
            copied => copied.map_err(|failure| self.after(failure)),
        }
    }

    fn write_by_cpu(&self, view: View<'_>, offset: usize, source: &[u8]) -> Result<()> {
        view.write(offset, source)?;
        if view.access() == HostAccess::WriteCombined {
            self.engines().counters().count_cpu(Direction::Write, source.len());
        }
        Ok(())
    }

    fn read_by_cpu(&self, view: View<'_>, offset: usize, target: &mut [u8]) -> Result<()> {
        view.read(offset, target)?;
        if view.access() == HostAccess::WriteCombined {
            self.engines().counters().count_cpu(Direction::Read, target.len());
        }
        Ok(())
    }

    fn fill_by_cpu(&self, view: View<'_>, offset: usize, len: usize, pattern: &[u8]) -> Result<()> {
        view.fill(offset, len, pattern)?;
        if view.access() == HostAccess::WriteCombined {
            self.engines().counters().count_cpu(Direction::Write, len);
        }
        Ok(())
    }

    /// The outer result is of what came before the copy.
    fn write_by_engine(
        &self,
        view: View<'_>,
        offset: usize,
        source: &[u8],
    ) -> Result<std::result::Result<(), Failure>> {
        let part = view.part(offset, source.len())?;
        if source.is_empty() {
            return Ok(process::check().map_err(Failure::Unavailable));
        }
        // SAFETY: the region keeps the bytes, and an unfinished copy is noted where the memory's release looks.
        Self::change_by_engine(part, || unsafe {
            self.engines().write(self.block().context(), part.device_ptr(), source)
        })
    }

    /// Has the device change all of a view's bytes.
    fn change_by_engine(
        part: View<'_>,
        change: impl FnOnce() -> std::result::Result<(), Failure>,
    ) -> Result<std::result::Result<(), Failure>> {
        // What this thread wrote comes first.
        part.flush(0, part.len())?;
        let changed = change();
        if changed.is_ok() {
            part.invalidate(0, part.len())?;
        }
        Ok(changed)
    }

    /// As [`write_by_engine`](Self::write_by_engine).
    fn read_by_engine(
        &self,
        view: View<'_>,
        offset: usize,
        target: &mut [u8],
    ) -> Result<std::result::Result<(), Failure>> {
        let part = view.part(offset, target.len())?;
        if target.is_empty() {
            return Ok(process::check().map_err(Failure::Unavailable));
        }
        part.flush(0, target.len())?;
        // SAFETY: as for a write.
        Ok(unsafe { self.engines().read(self.block().context(), part.device_ptr(), target) })
    }

    /// As [`write_by_engine`](Self::write_by_engine).
    fn fill_by_engine(
        &self,
        view: View<'_>,
        offset: usize,
        len: usize,
        pattern: FillPattern,
    ) -> Result<std::result::Result<(), Failure>> {
        let part = view.part(offset, len)?;
        // SAFETY: as for a write.
        Self::change_by_engine(part, || unsafe {
            self.engines().fill(self.block().context(), part.device_ptr(), pattern, len)
        })
    }

    /// The error of a copy that failed. The memory must not go while the device may be at it.
    fn after(&self, failure: Failure) -> crate::Error {
        if let Failure::Unfinished(_) = failure {
            self.chunk().record_unfinished_copy();
        }
        failure.into()
    }
}
