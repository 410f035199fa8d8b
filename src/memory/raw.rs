//! [`RawMemory`]: memory that is freed by hand, as in vkgdr 0.1.
#![expect(unsafe_code, reason = "freeing by hand is unsafe by nature")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use cudarc::driver::sys::CUdeviceptr;

use crate::allocation::Allocation;
use crate::range;
use crate::{Error, MemoryKind, Result, Vkgdr};

/// Memory that is freed by hand, in the CUDA context that it was allocated in.
///
/// This is vkgdr 0.1's memory: it does not wait for the device, and **is not freed when dropped** (that leaks it, and its
/// handle). [`Memory`](crate::Memory) does both; use it unless you manage lifetimes yourself. It may be used from any
/// thread.
#[must_use = "raw memory leaks unless it is freed"]
pub struct RawMemory {
    /// `None` once freed.
    allocation: ManuallyDrop<Option<Allocation>>,
    len: usize,
    kind: MemoryKind,
}

impl RawMemory {
    /// Allocates `len` bytes in the handle's primary context if it retains that, otherwise in the current context,
    /// which must belong to the handle's device.
    ///
    /// The contents are undefined.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::WrongDevice`] when it is another device's.
    /// [`Error::Allocation`] when the size exceeds the heap or memory is exhausted (`CUDA_ERROR_OUT_OF_MEMORY` or
    /// `ENOMEM` where that does not come from Vulkan). [`Error::ZeroSize`], [`Error::NoSuitableMemoryType`],
    /// [`Error::Forked`], and other errors of the drivers.
    pub fn allocate(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        let allocation =
            owner.in_context(|context| Allocation::new(owner, context, len, kind, owner.shortage_deadline()))?;
        Ok(Self { allocation: ManuallyDrop::new(Some(allocation)), len, kind })
    }

    /// Frees the memory. A second call does nothing, and neither does a call in a forked child, where the memory is the
    /// parent's.
    ///
    /// Any context may be current; that of the allocation must exist, unless it is a primary one. Does not wait for the
    /// device. Everything is released even when a driver reports an error, which is often one of earlier, asynchronous work.
    ///
    /// # Errors
    ///
    /// The first error of the drivers.
    ///
    /// # Safety
    ///
    /// Neither the CPU nor the device may use the memory during or after this call.
    pub unsafe fn free(&mut self) -> Result<()> {
        self.allocation.take().map_or(Ok(()), |mut allocation| allocation.release())
    }

    /// The device address of the first byte; 0 once the memory was freed.
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        self.live().map_or(0, |allocation| allocation.device_ptr())
    }

    /// The host address of the first byte; `None` for device memory, and once the memory was freed.
    ///
    /// The device may change the bytes at any time: read and write through the pointer with volatile or atomic
    /// accesses. Make references to the bytes only while the device does not write them.
    #[must_use]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.live().and_then(|allocation| allocation.host_ptr())
    }

    /// The number of bytes requested.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes: never, since empty memory cannot be allocated.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The kind of memory.
    #[must_use]
    pub const fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Whether the host and the device see each other's writes without [`flush`](Self::flush) and
    /// [`invalidate`](Self::invalidate). `flush` still orders write-combined stores for kernels that are already
    /// running. True once the memory was freed.
    #[must_use]
    pub fn is_coherent(&self) -> bool {
        self.live().is_none_or(|allocation| allocation.memory_type().coherent)
    }

    /// The granularity of flushes in bytes: 1 for coherent memory and once the memory was freed. Otherwise it is
    /// Vulkan's `nonCoherentAtomSize`, or 64 for memory that does not come from Vulkan.
    #[must_use]
    pub fn non_coherent_atom_size(&self) -> usize {
        self.live().map_or(1, |allocation| allocation.memory_type().flush_unit())
    }

    /// Makes the CPU's writes to `len` bytes at `offset` visible to the device.
    ///
    /// The range may start and end anywhere; it is rounded outwards to whole atoms. Writes of the device to the rest of
    /// these atoms may be lost, unless they were invalidated before the CPU wrote. For coherent memory this only orders
    /// write-combined stores. For device memory it does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::Freed`], and for non-coherent memory the errors of `vkFlushMappedMemoryRanges` and
    /// [`Error::Forked`].
    #[inline]
    pub fn flush(&self, offset: usize, len: usize) -> Result<()> {
        self.checked(offset, len)?.flush(offset, len)
    }

    /// Makes the device's writes to `len` bytes at `offset` visible to the CPU.
    ///
    /// The device's work must have finished. The range is rounded outwards to whole atoms, and CPU writes to
    /// those atoms that were not flushed may be lost.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::Freed`], and for non-coherent memory the errors of `vkInvalidateMappedMemoryRanges` and
    /// [`Error::Forked`].
    #[inline]
    pub fn invalidate(&self, offset: usize, len: usize) -> Result<()> {
        self.checked(offset, len)?.invalidate(offset, len)
    }

    /// The allocation, until it is freed.
    fn live(&self) -> Option<&Allocation> {
        self.allocation.as_ref()
    }

    /// The allocation; an error once it is freed, or where it lacks the range.
    #[inline]
    fn checked(&self, offset: usize, len: usize) -> Result<&Allocation> {
        let allocation = self.live().ok_or(Error::Freed)?;
        range::check(offset, len, self.len)?;
        Ok(allocation)
    }
}

impl fmt::Debug for RawMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawMemory")
            .field("len", &self.len)
            .field("kind", &self.kind)
            .field("device_ptr", &format_args!("{:#x}", self.device_ptr()))
            .field("host_ptr", &self.host_ptr())
            .finish_non_exhaustive()
    }
}
