//! The memory that a pool gives.
#![expect(unsafe_code, reason = "slices are the caller's responsibility")]

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::slice;

use bytemuck::Pod;

use super::thread_cache;
use crate::memory::chunk::ChunkRef;
use crate::{Memory, Result};

/// Memory from a [`Pool`](crate::Pool), which goes back there when it and its regions are gone.
///
/// Everything that [`Memory`] and [`Region`](crate::Region) do it does, too: it dereferences to them. Its addresses are
/// aligned as [`PoolOptions::alignment`](crate::PoolOptions::alignment) says. When it is given out again is said at
/// [`Pool`](crate::Pool). It may be used and dropped on any thread.
///
/// What differs: it cannot be exported as a descriptor ([`Error::Pooled`](crate::Error::Pooled)), since it shares an
/// allocation with other memory; [`free`](Self::free) and a drop give it back, in the order of ten nanoseconds.
pub struct PoolMemory {
    /// Taken by a drop.
    memory: ManuallyDrop<Memory>,
}

impl PoolMemory {
    #[inline]
    pub(super) const fn new(memory: Memory) -> Self {
        Self { memory: ManuallyDrop::new(memory) }
    }

    /// The memory, unless this thread's cache has kept it.
    #[inline]
    fn uncached(self) -> Option<Memory> {
        let mut memory = ManuallyDrop::new(self);
        // SAFETY: it is used again only if it was not kept.
        let kept = unsafe { thread_cache::put(&mut memory.memory) };
        // SAFETY: nothing uses the field afterwards.
        if kept { None } else { Some(unsafe { ManuallyDrop::take(&mut memory.memory) }) }
    }

    fn into_memory(self) -> Memory {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: nothing uses the field afterwards.
        unsafe { ManuallyDrop::take(&mut this.memory) }
    }

    /// The bytes as a mutable slice, see [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    ///
    /// # Errors
    ///
    /// As [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    ///
    /// # Safety
    ///
    /// As [`Region::as_mut_slice`](crate::Region::as_mut_slice).
    pub unsafe fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        let (pointer, count) = self.elements::<T>()?;
        // SAFETY: mapped and aligned, every bit pattern is a `T`, and nobody else uses the bytes by this method's
        // contract.
        Ok(unsafe { slice::from_raw_parts_mut(pointer.as_ptr(), count) })
    }

    /// Gives the memory back, as a drop does, and reports what goes wrong. If regions of it are alive, it goes back with
    /// the last of them.
    ///
    /// # Errors
    ///
    /// The drivers' first error, where one has to be asked. The memory has gone back all the same, and is not given out
    /// again before the device is known to have finished.
    #[inline]
    pub fn free(self) -> Result<()> {
        self.uncached().map_or(Ok(()), |memory| memory.into_chunk().free())
    }

    /// Gives memory back that the device has finished with, see [`Memory::free_idle`].
    ///
    /// # Errors
    ///
    /// As [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// As [`Memory::free_idle`].
    #[inline]
    pub unsafe fn free_idle(self) -> Result<()> {
        self.uncached().map_or(Ok(()), |memory| memory.into_chunk().free_idle())
    }

    /// Turns the memory into a pointer, for [`from_raw`](Self::from_raw) and [`borrow_raw`](Self::borrow_raw). What it
    /// points at is private.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> *mut c_void {
        self.into_memory().into_chunk().into_raw().cast()
    }

    /// The memory of a pointer; none if it was freed already, as far as that can be seen: until the pool lends the bytes
    /// again or gives them back to the drivers.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), and not be used afterwards.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(memory: *mut c_void) -> Option<Self> {
        // SAFETY: by this function's contract.
        let chunk = unsafe { ChunkRef::from_raw(memory.cast()) }?;
        Some(Self::new(Memory::lent_again(chunk)))
    }

    /// The memory of a pointer, which still stands for it; none if it was freed already, as far as that can be seen.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), and the memory not be dropped, nor used once the pointer
    /// was given to [`from_raw`](Self::from_raw).
    #[inline]
    #[must_use]
    pub unsafe fn borrow_raw(memory: *mut c_void) -> Option<ManuallyDrop<Self>> {
        // SAFETY: by this function's contract; the reference is not dropped.
        let chunk = unsafe { ChunkRef::from_raw(memory.cast()) }?;
        let len = chunk.len();
        Some(ManuallyDrop::new(Self::new(Memory::new(chunk, len))))
    }
}

impl Drop for PoolMemory {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is used again only if it was not kept.
        if unsafe { thread_cache::put(&mut self.memory) } {
            return;
        }
        // SAFETY: nothing uses what was dropped.
        drop_uncached(unsafe { ManuallyDrop::take(&mut self.memory) });
    }
}

/// Gives memory back, and logs what goes wrong.
#[cold]
fn drop_uncached(memory: Memory) {
    drop(memory.into_chunk());
}

impl Deref for PoolMemory {
    type Target = Memory;

    #[inline]
    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl From<PoolMemory> for Memory {
    /// For code that does not care where memory comes from: it goes back to its pool all the same.
    #[inline]
    fn from(memory: PoolMemory) -> Self {
        let memory = memory.into_memory();
        memory.record_len();
        memory
    }
}

impl fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory").field("memory", &**self).finish()
    }
}
