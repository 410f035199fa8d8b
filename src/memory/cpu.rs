//! [`Memory`]'s methods for the CPU: flush, invalidate, map guards, slices, writes, reads and fills; and copies by the CPU or the
//! GPU's copy engine.
#![expect(
    unsafe_code,
    reason = "copies bytes that the memory keeps alive, and offers slices that the device may change"
)]

use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::slice;

use bytemuck::{AnyBitPattern, NoUninit, Pod};
use cudarc::driver::sys::{CUdeviceptr, CUstream};

use super::Memory;
use crate::copy;
use crate::driver::cuda::cuda;
use crate::driver::fork;
use crate::engine;
use crate::range;
use crate::{CopyPolicy, CopyThresholds, Error, MapGuard, MapMode, Result, Writer};

impl Memory {
    /// Makes the CPU's writes to a range visible to the device.
    ///
    /// The range may start and end anywhere; it is rounded outwards to whole atoms. Writes of the device to the rest of
    /// these atoms may be lost, unless they were invalidated before the CPU wrote, as [`map`](Self::map) does.
    ///
    /// For coherent memory this only orders this thread's write-combined stores: a kernel that is already running sees them before
    /// this thread's later stores. So call it on the thread that wrote. For device memory it does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::ReversedRange`], and for non-coherent memory [`Error::Forked`] and the errors of
    /// `vkFlushMappedMemoryRanges`.
    #[inline]
    pub fn flush(&self, range: impl RangeBounds<usize>) -> Result<()> {
        let (offset, len) = range::resolve(&range, self.len())?;
        self.allocation().flush(self.offset() + offset, len)
    }

    /// Makes the device's writes to a range visible to the CPU.
    ///
    /// The device's work must have finished: synchronise its stream first, or use [`map`](Self::map). The range
    /// is rounded outwards to whole atoms, and CPU writes to those atoms that were not flushed may be lost.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::ReversedRange`], and for non-coherent memory [`Error::Forked`] and the errors of
    /// `vkInvalidateMappedMemoryRanges`.
    #[inline]
    pub fn invalidate(&self, range: impl RangeBounds<usize>) -> Result<()> {
        let (offset, len) = range::resolve(&range, self.len())?;
        self.allocation().invalidate(self.offset() + offset, len)
    }

    /// The CPU's routine for copies between private memory and this memory.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn copy_routine(&self) -> crate::CopyRoutine {
        self.routine
    }

    /// Begins a scope in which the CPU uses a range.
    ///
    /// Waits for the bound stream and invalidates; dropping the guard flushes, unless the mode is `Read`. If the memory is not
    /// bound, wait for the device's work first. Non-coherent memory is invalidated and flushed by whole atoms: guards whose ranges
    /// share an atom must not be alive at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::ReversedRange`], [`Error::NoHostView`], [`Error::Forked`], and the errors of
    /// `cuStreamSynchronize` and `vkInvalidateMappedMemoryRanges`.
    pub fn map(&self, mode: MapMode, range: impl RangeBounds<usize>) -> Result<MapGuard<'_>> {
        let (offset, len) = range::resolve(&range, self.len())?;
        self.host_range(offset, len)?;
        self.wait_for_stream()?;
        MapGuard::new(self, (offset, len), mode)
    }

    /// The bytes as elements of `T`, as pointer and count.
    pub(crate) fn elements<T>(&self) -> Result<(NonNull<T>, usize)> {
        let pointer = self.host_range(0, self.len)?;
        self.expose_host();
        let (size, align) = (size_of::<T>().max(1), align_of::<T>());
        let address = pointer.addr().get();
        if !address.is_multiple_of(align) {
            return Err(Error::Misaligned { what: "the host address", value: address, unit: align });
        }
        if !self.len.is_multiple_of(size) {
            return Err(Error::Misaligned { what: "the length", value: self.len, unit: size });
        }
        Ok((pointer.cast(), self.len / size))
    }

    /// The bytes as a slice.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] when the address or the length does not fit `T`, [`Error::NoHostView`].
    ///
    /// # Safety
    ///
    /// While the slice lives, neither the device nor the CPU may write to the bytes, on any thread, through this or any
    /// other reference.
    pub unsafe fn as_slice<T: AnyBitPattern>(&self) -> Result<&[T]> {
        let (pointer, count) = self.elements::<T>()?;
        // SAFETY: mapped and aligned, every bit pattern is a `T`, and nothing writes, by this method's contract.
        Ok(unsafe { slice::from_raw_parts(pointer.as_ptr(), count) })
    }

    /// The bytes as a mutable slice.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] when the address or the length does not fit `T`, [`Error::NoHostView`].
    ///
    /// # Safety
    ///
    /// While the slice lives, neither the device nor the CPU may access the bytes except through it. That holds on any
    /// thread, and for this and any other reference.
    pub unsafe fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        let (pointer, count) = self.elements::<T>()?;
        // SAFETY: mapped and aligned, every bit pattern is a `T`, and nothing else accesses the bytes, by this method's
        // contract.
        Ok(unsafe { slice::from_raw_parts_mut(pointer.as_ptr(), count) })
    }

    /// Copies `source` to the bytes at `offset`, which need not be aligned, by the CPU. Calls no driver, and does not flush.
    ///
    /// The device sees all of these bytes before this thread's later stores; among themselves they have no order.
    /// [`writer`](Self::writer) makes many small writes faster, [`write_with`](Self::write_with) large ones from page-locked memory.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::NoHostView`](crate::Error::NoHostView).
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
        self.write_unordered(offset, bytemuck::cast_slice(source))?;
        copy::order_writes(self.routine);
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
        Writer::new(self)
    }

    /// [`write`](Self::write) without a fence, which must follow.
    #[inline]
    pub(crate) fn write_unordered(&self, offset: usize, source: &[u8]) -> Result<()> {
        let to = self.host_range(offset, source.len())?;
        // SAFETY: `to` has room for `source.len()` bytes, which this memory keeps mapped.
        unsafe { copy::write_unordered(self.routine, to, source) };
        Ok(())
    }

    /// Copies the bytes at `offset`, which need not be aligned, to `target`, by the CPU. Calls no driver, and does not invalidate.
    ///
    /// The CPU reads memory of kind `Host` at full speed, and mapped memory slowly through the PCIe BAR. After
    /// [`prepare_copies`](crate::Vkgdr::prepare_copies), [`read_with`](Self::read_with) is faster from some KiB on.
    ///
    /// The bytes are loaded after this thread's earlier loads, such as the load of a flag. A later load, other than by
    /// this method, may be executed before them.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write).
    #[inline]
    pub fn read<T: Pod>(&self, offset: usize, target: &mut [T]) -> Result<()> {
        let target: &mut [u8] = bytemuck::cast_slice_mut(target);
        // First: the fence would wait for the loads below.
        copy::order_reads(self.routine);
        let from = self.host_range(offset, target.len())?;
        // SAFETY: `from` has `target.len()` bytes, which this memory keeps mapped, and an allocation is whole lines.
        unsafe { copy::read_unordered(self.routine, from, target) };
        Ok(())
    }

    /// Fills a range of bytes with repetitions of `value`, by the CPU. The range's length must be a multiple of the value's size.
    /// Does not flush.
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

    /// Fills a range of bytes with repetitions of a pattern of several values. The range's length must be a multiple of
    /// the pattern's size in bytes. Does not flush. An empty pattern writes nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`fill`](Self::fill).
    pub fn fill_pattern<T: NoUninit>(&self, range: impl RangeBounds<usize>, pattern: &[T]) -> Result<()> {
        let (offset, len) = range::resolve(&range, self.len())?;
        let pattern: &[u8] = bytemuck::cast_slice(pattern);
        let unit = pattern.len().max(1);
        if !len.is_multiple_of(unit) {
            return Err(Error::Misaligned { what: "the length to fill", value: len, unit });
        }
        let to = self.host_range(offset, len)?;
        // SAFETY: `to` has room for `len` bytes, which this memory keeps mapped.
        unsafe { copy::fill(self.routine, to, len, pattern) };
        Ok(())
    }

    /// [`write`](Self::write) with a choice between the CPU and the GPU's copy engine.
    ///
    /// The copy engine ([`CopyPolicy::Dma`]) also writes to memory without a host view, for which [`CopyPolicy::Auto`]
    /// selects it. Its copies are not ordered with the device's other work: wait first for work that uses the memory.
    /// Work launched after this has returned sees the bytes. Earlier writes by this thread come before the copy.
    ///
    /// The handle's first such copy in a context makes a stream there, in relaxed capture mode, unless
    /// [`Vkgdr::prepare_copies`](crate::Vkgdr::prepare_copies) has. [`CopyPolicy::Auto`] leaves mapped memory to the CPU until
    /// then. It ends with the handle and its memory. Copies use it one at a time and are never part of a capture. Drivers older
    /// than CUDA 12 cannot tell a destroyed context from a later one at its address. There every copy makes its own, and
    /// [`CopyPolicy::Auto`] always uses the CPU where it can.
    ///
    /// Private memory is page-locked (`cuMemHostAlloc`, `cuMemHostRegister`) as a whole or not at all: the driver refuses
    /// other memory, which [`CopyPolicy::Auto`] then leaves to the CPU.
    ///
    /// On non-coherent memory this flushes before the copy and invalidates after it, in whole atoms: nothing else may
    /// write to these atoms meanwhile. Invalidate the device's earlier writes to them before: otherwise the flush may undo them.
    /// Other views of the same bytes, such as imported memory, must be invalidated before they are flushed, too.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::NoHostView`](crate::Error::NoHostView) for
    /// [`CopyPolicy::Cpu`], and for the copy engine [`Error::Forked`](crate::Error::Forked) and the driver's errors,
    /// including those of earlier, asynchronous work. Which of the bytes were written is then unspecified. With
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
        let source: &[u8] = bytemuck::cast_slice(source);
        let (from, len) = (source.as_ptr(), source.len());
        // SAFETY: this memory and the caller keep the bytes alive until `by_engine` returns, and the caller's stay as they are.
        let write = |stream, to| unsafe { cuda()?.copy_host_to_device(to, from, len, stream) };
        let is_suited = || engine::is_pinned(source);
        if self.by_engine(policy, |least| least.write, is_suited, (offset, len), write)? {
            return self.invalidate(offset..offset + len);
        }
        self.write(offset, source)
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
        let target: &mut [u8] = bytemuck::cast_slice_mut(target);
        let (to, len) = (target.as_mut_ptr(), target.len());
        // SAFETY: as in `write_with`; the caller's bytes are borrowed exclusively.
        let read = |stream, from| unsafe { cuda()?.copy_device_to_host(to, from, len, stream) };
        if self.by_engine(policy, |least| least.read, || true, (offset, len), read)? {
            return Ok(());
        }
        self.read(offset, target)
    }

    /// Makes a copy of `len` bytes by the copy engine, which is given their device address, and waits for it. False if the CPU is
    /// to make it: by the policy, because the copy is not long enough, or because the engine is unavailable.
    fn by_engine(
        &self,
        policy: CopyPolicy,
        least: impl FnOnce(CopyThresholds) -> usize,
        is_suited: impl FnOnce() -> bool,
        (offset, len): (usize, usize),
        copy: impl FnOnce(CUstream, CUdeviceptr) -> Result<()>,
    ) -> Result<bool> {
        range::check(offset, len, self.len)?;
        let has_view = self.kind().has_host_view();
        // The length first, since most copies are short; the private memory last, since that asks the driver.
        let is_long = || len >= least(self.owner().copy_thresholds());
        let takes_engine = match policy {
            CopyPolicy::Cpu => false,
            CopyPolicy::Dma => true,
            CopyPolicy::Auto => !has_view || (is_long() && self.may_use_engine() && is_suited()),
        };
        if !takes_engine {
            return Ok(false);
        }
        if len == 0 {
            return fork::check().map(|()| true);
        }
        // This thread's earlier writes come first.
        self.flush(offset..offset + len)?;
        let address = self.device_ptr + offset as u64;
        match self.owner().copy_engines().copy(self.inner.context(), |stream| copy(stream, address)) {
            Ok(copied) => copied.map(|()| true),
            Err(error) if policy == CopyPolicy::Auto && has_view => {
                log::debug!("copying by the CPU, since the copy engine is unavailable: {error}");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether [`CopyPolicy::Auto`] leaves long copies of memory with a host view to the engine. Not where the CPU caches the memory.
    /// Not where memory is not coherent: a flush by another thread that wrote to the same atom would undo part of the engine's
    /// write. Whether that can happen must not depend on the length. Not before the engine is made on purpose: that may wait for
    /// a kernel that waits for this copy.
    fn may_use_engine(&self) -> bool {
        let memory_type = self.allocation().memory_type();
        let is_prepared = || self.owner().copy_engines().is_prepared(self.inner.context());
        memory_type.coherent && !memory_type.is_cached() && is_prepared()
    }
}
