//! [`PoolMemory`]: memory of a pool, with a fast path for drops.
#![expect(unsafe_code, reason = "slices are the caller's responsibility")]

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::slice;

use bytemuck::Pod;
use cudarc::driver::sys::CUdeviceptr;

use super::thread_cache;
use crate::chunk::ChunkRef;
use crate::driver::fork;
use crate::{Error, Memory, Result};

/// Memory of a [`Pool`](crate::Pool), returned to the pool when it and its regions are dropped.
///
/// It dereferences to [`Memory`], and so to [`Region`](crate::Region), and may be used and dropped on any thread.
/// [`Pool`](crate::Pool) says when the bytes are reused; [`PoolOptions::alignment`](crate::PoolOptions::alignment) says
/// how addresses are aligned.
///
/// Two things differ from other memory. It cannot be exported as a descriptor
/// ([`Error::Pooled`]), since it shares an allocation with other memory. [`free`](Self::free) and
/// a drop return it to the pool without a driver call, in about ten nanoseconds, if its device address was never
/// requested.
pub struct PoolMemory {
    /// Taken by the drop.
    memory: ManuallyDrop<Memory>,
}

impl PoolMemory {
    #[inline]
    pub(super) const fn new(memory: Memory) -> Self {
        Self { memory: ManuallyDrop::new(memory) }
    }

    /// Puts the memory into this thread's cache; returns it if the cache does not keep it.
    #[inline]
    fn uncached(self) -> Option<Memory> {
        let mut memory = ManuallyDrop::new(self);
        // SAFETY: the field is used again only if the cache did not keep it.
        let kept = unsafe { thread_cache::put(&mut memory.memory) };
        // SAFETY: as above.
        let kept = kept || unsafe { put_shared(&mut memory.memory) };
        // SAFETY: the field is not used afterwards.
        if kept { None } else { Some(unsafe { ManuallyDrop::take(&mut memory.memory) }) }
    }

    fn into_memory(self) -> Memory {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the field is not used afterwards.
        unsafe { ManuallyDrop::take(&mut this.memory) }
    }

    /// The device address of the first byte.
    #[inline]
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        self.memory.device_ptr()
    }

    /// The bytes as a mutable slice, see [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    ///
    /// # Errors
    ///
    /// The errors of [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    ///
    /// # Safety
    ///
    /// See [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    pub unsafe fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        let (pointer, count) = self.elements::<T>()?;
        // SAFETY: mapped and aligned, every bit pattern is a `T`, and nothing else accesses the bytes, by this method's
        // contract.
        Ok(unsafe { slice::from_raw_parts_mut(pointer.as_ptr(), count) })
    }

    /// Returns the memory to the pool as a drop does, but reports errors instead of logging them. While regions of it
    /// are alive, the last of them returns it.
    ///
    /// # Errors
    ///
    /// The first error of the drivers, if one was called. The memory is returned even then, and not reused before the
    /// device is known to have finished.
    #[inline]
    pub fn free(self) -> Result<()> {
        self.uncached().map_or(Ok(()), |memory| memory.into_chunk().free())
    }

    /// Returns memory that the device has finished with to the pool, which can reuse it at once, see
    /// [`Memory::free_idle`].
    ///
    /// # Errors
    ///
    /// The errors of [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// See [`Memory::free_idle`].
    #[inline]
    pub unsafe fn free_idle(self) -> Result<()> {
        let Some(memory) = self.uncached() else { return Ok(()) };
        // Its device address was requested, or the cache is full.
        thread_cache::put_chunk(memory.into_chunk()).map_or(Ok(()), ChunkRef::free_idle)
    }

    /// Converts the memory into an opaque pointer, for [`from_raw`](Self::from_raw) and
    /// [`borrow_raw`](Self::borrow_raw).
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> *mut c_void {
        self.into_memory().into_chunk().into_raw().cast()
    }

    /// The pointer that [`into_raw`](Self::into_raw) gave for memory of a pool, from another reference to it
    /// ([`memory_of`](crate::memory_of)); `None` for other memory, and once [`from_raw`](Self::from_raw) was called.
    #[must_use]
    pub fn raw_of(memory: &Memory) -> Option<*mut c_void> {
        memory.raw_chunk().map(<*mut _>::cast)
    }

    /// Converts a pointer back into the memory. Returns none if the memory was freed already, which is detected until
    /// the pool reuses the bytes or frees their block.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), and not be used afterwards.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(memory: *mut c_void) -> Option<Self> {
        // SAFETY: by this function's contract.
        let chunk = unsafe { ChunkRef::from_raw(memory.cast()) }?;
        Some(Self::new(Memory::allocated(chunk)))
    }

    /// Frees the memory behind a pointer: by [`free`](Self::free) if it is bound to a stream, otherwise by
    /// [`free_idle`](Self::free_idle).
    ///
    /// # Errors
    ///
    /// [`Error::Freed`] where [`from_raw`](Self::from_raw) returns none, and the errors of [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// The contract of [`from_raw`](Self::from_raw) and, if the memory is not bound, the contract of
    /// [`free_idle`](Self::free_idle).
    #[doc(hidden)]
    #[inline]
    pub unsafe fn free_raw(memory: *mut c_void) -> Result<()> {
        // SAFETY: by this function's contract.
        let Some(chunk) = (unsafe { ChunkRef::from_raw(memory.cast()) }) else { return Err(Error::Freed) };
        thread_cache::put_chunk(chunk).map_or(Ok(()), free_uncached)
    }

    /// The memory behind a pointer, which stays valid. Returns none if the memory was freed already, which is detected
    /// as by [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw). The returned memory must not be dropped, nor used after
    /// the pointer was passed to [`from_raw`](Self::from_raw).
    #[inline]
    #[must_use]
    pub unsafe fn borrow_raw(memory: *mut c_void) -> Option<ManuallyDrop<Self>> {
        // SAFETY: by this function's contract; the reference is not dropped.
        let chunk = unsafe { ChunkRef::borrow_raw(memory.cast()) }?;
        let len = chunk.len();
        Some(ManuallyDrop::new(Self::new(Memory::new(ManuallyDrop::into_inner(chunk), len))))
    }
}

impl Drop for PoolMemory {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the field is used again only if the cache did not keep it.
        if !unsafe { thread_cache::put(&mut self.memory) } {
            // SAFETY: the value is being dropped, and the cache did not keep the memory.
            unsafe { drop_uncached(&mut self.memory) };
        }
    }
}

/// [`thread_cache::put`] for memory that was shared, if only the CPU has used it and no other reference is left.
///
/// # Safety
///
/// Memory that was kept must not be used again.
#[inline]
unsafe fn put_shared(memory: &mut ManuallyDrop<Memory>) -> bool {
    // SAFETY: by this function's contract.
    !fork::is_forked() && memory.try_unshare() && unsafe { thread_cache::put(memory) }
}

/// Returns a chunk that the fast path did not keep to its pool. Unless it is bound, the device has finished with it.
#[inline(never)]
fn free_uncached(chunk: ChunkRef) -> Result<()> {
    if chunk.bound_stream().is_some() { chunk.free() } else { chunk.free_idle() }
}

/// Returns memory that the fast path did not keep to its pool, and logs errors.
///
/// # Safety
///
/// The memory must not be used again.
#[inline(never)]
unsafe fn drop_uncached(memory: &mut ManuallyDrop<Memory>) {
    // SAFETY: by this function's contract.
    if !unsafe { put_shared(memory) } {
        // SAFETY: the cache did not keep it.
        drop(unsafe { ManuallyDrop::take(memory) }.into_chunk());
    }
}

impl Deref for PoolMemory {
    type Target = Memory;

    #[inline]
    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl From<PoolMemory> for Memory {
    /// Converts for code that takes memory of any origin. The memory still returns to its pool.
    #[inline]
    fn from(memory: PoolMemory) -> Self {
        let memory = memory.into_memory();
        memory.share();
        memory
    }
}

impl fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory").field("memory", &**self).finish()
    }
}
