//! [`Memory`]'s methods for the CPU's view of the bytes: flush and invalidate, map guards, slices.
#![expect(unsafe_code, reason = "offers slices over memory that the device may change")]

use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::slice;

use bytemuck::{AnyBitPattern, Pod};

use super::Memory;
use crate::access::{self, range};
use crate::{Error, MapGuard, MapMode, Result};

impl Memory {
    /// Makes the CPU's writes to a range visible to the device.
    ///
    /// The range may start and end anywhere; it is rounded outwards to whole atoms. Writes of the device to the rest of
    /// these atoms may be lost, unless they were invalidated before the CPU wrote, as [`map`](Self::map) does.
    ///
    /// For coherent memory this only orders write-combined stores: a kernel that is already running sees them before
    /// this thread's later stores. For device memory it does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::ReversedRange`], and for non-coherent memory [`Error::Forked`] and the errors of
    /// `vkFlushMappedMemoryRanges`.
    #[inline]
    pub fn flush(&self, range: impl RangeBounds<usize>) -> Result<()> {
        let (offset, len) = range::resolve(&range, self.len())?;
        access::flush(self.block().allocation(), self.access, self.offset() + offset, len)
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
        access::invalidate(self.block().allocation(), self.access, self.offset() + offset, len)
    }

    /// The CPU's routine for copies between private memory and this memory.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn copy_routine(&self) -> crate::CopyRoutine {
        self.access
    }

    /// Begins a scope in which the CPU uses a range.
    ///
    /// Waits for the bound stream and invalidates; dropping the guard flushes. If the memory is not bound, wait for the
    /// device's work first. The mode determines which of the bytes are invalidated and flushed. Non-coherent memory is
    /// invalidated and flushed by whole atoms: guards whose ranges share an atom must not be alive at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::ReversedRange`], [`Error::NoHostView`], [`Error::Forked`], and the errors of
    /// `cuStreamSynchronize` and `vkInvalidateMappedMemoryRanges`.
    pub fn map(&self, mode: MapMode, range: impl RangeBounds<usize>) -> Result<MapGuard<'_>> {
        let (offset, len) = range::resolve(&range, self.len())?;
        if !self.kind().has_host_view() {
            return Err(Error::NoHostView { kind: self.kind() });
        }
        self.wait_for_stream()?;
        MapGuard::new(self, (offset, len), mode)
    }

    /// The bytes as elements of `T`, as pointer and count.
    pub(crate) fn elements<T>(&self) -> Result<(NonNull<T>, usize)> {
        let pointer = self.host_range(0, self.len)?;
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
    /// While the slice lives, neither the device nor the CPU may access the bytes except through it, on any thread,
    /// through this or any other reference.
    pub unsafe fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        let (pointer, count) = self.elements::<T>()?;
        // SAFETY: mapped and aligned, every bit pattern is a `T`, and nothing else accesses the bytes, by this method's
        // contract.
        Ok(unsafe { slice::from_raw_parts_mut(pointer.as_ptr(), count) })
    }
}
