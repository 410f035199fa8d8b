//! The memory that a pool gives.
#![expect(unsafe_code, reason = "slices are the caller's responsibility")]

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

use bytemuck::Pod;

use super::thread_cache;
use crate::memory::chunk::{Chunk, ChunkRef};
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
    class: u32,
    /// The pool's id. With the class it says where the chunk goes, before the chunk has arrived in the CPU's cache.
    pool_id: u32,
}

impl PoolMemory {
    /// A chunk for `len` bytes of the pool with this id.
    #[inline]
    pub(super) fn new(pool_id: u32, chunk: Box<Chunk>, len: usize) -> Self {
        let class = chunk.class().into();
        Self { memory: ManuallyDrop::new(Memory::new(ChunkRef::new(chunk, len))), class, pool_id }
    }

    #[inline]
    fn into_memory(self) -> Memory {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: nothing uses the field afterwards.
        unsafe { ManuallyDrop::take(&mut this.memory) }
    }

    /// Keeps a chunk in this thread's cache if that is possible; gives it back if not.
    #[inline]
    fn cache(pool_id: u32, class: u32, chunk: Option<Box<Chunk>>) -> Option<Box<Chunk>> {
        let chunk = chunk?;
        if chunk.is_idle() { thread_cache::put(pool_id, class as usize, chunk) } else { Some(chunk) }
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
        let (pool_id, class) = (self.pool_id, self.class);
        let chunk = self.into_memory().into_chunk().release();
        Self::cache(pool_id, class, chunk).map_or(Ok(()), Chunk::give_back)
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
        let (pool_id, class) = (self.pool_id, self.class);
        let chunk = self.into_memory().into_chunk().release_idle();
        Self::cache(pool_id, class, chunk).map_or(Ok(()), Chunk::give_back)
    }

    /// Turns the memory into a pointer, for [`from_raw`](Self::from_raw). What it points at is private.
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> NonNull<c_void> {
        self.into_memory().into_chunk().into_raw().cast()
    }

    /// The memory of a pointer; none if it was freed already, as far as that can be seen: until the pool lends the bytes
    /// again or gives them back to the drivers.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), and be used once, or the memory that it gives be forgotten
    /// ([`ManuallyDrop`]) each time but the last.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(memory: NonNull<c_void>) -> Option<Self> {
        // SAFETY: by this function's contract.
        let chunk = unsafe { ChunkRef::from_raw(memory.cast()) }?;
        let (class, pool_id) = (chunk.class().into(), chunk.block().pool_id());
        Some(Self { memory: ManuallyDrop::new(Memory::new(chunk)), class, pool_id })
    }
}

impl Drop for PoolMemory {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nothing uses what was dropped.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        if let Some(chunk) = Self::cache(self.pool_id, self.class, memory.into_chunk().release()) {
            drop_uncached(chunk);
        }
    }
}

#[cold]
fn drop_uncached(chunk: Box<Chunk>) {
    if let Err(error) = chunk.give_back() {
        log::warn!("releasing memory of a pool: {error}");
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
    /// For code that does not care where memory comes from: it goes back to its pool all the same.
    #[inline]
    fn from(memory: PoolMemory) -> Self {
        memory.into_memory()
    }
}

impl fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMemory").field("memory", &**self).finish()
    }
}
