//! [`FreeChunk`]: a chunk without references, in one of a pool's lists or on its way to its release.
#![expect(unsafe_code, reason = "owns a chunk on the heap by a raw pointer")]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::shared_binding::LazyBinding;
use super::{Block, Chunk, EXPOSED, LISTED};
use crate::Result;
use crate::access::copy::HostAccess;
use crate::addresses;
use crate::allocation::LINE;
use crate::driver::fork;
use crate::stream::binding::Binding;
use crate::sync::RefCount;

/// A chunk without references, on the heap.
///
/// A raw pointer, not a box: lookups may read the reference count meanwhile.
pub(crate) struct FreeChunk(pub(super) NonNull<Chunk>);

// SAFETY: the only owner of a chunk, and chunks may be sent and shared.
unsafe impl Send for FreeChunk {}
// SAFETY: as for `Send`.
unsafe impl Sync for FreeChunk {}

impl Deref for FreeChunk {
    type Target = Chunk;

    #[inline]
    fn deref(&self) -> &Chunk {
        // SAFETY: a chunk that lives until this is dropped; all that others may change of it is atomic.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for FreeChunk {
    fn drop(&mut self) {
        self.unlist();
        // SAFETY: made from a box by `new`; not listed any more, so that nothing else refers to it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl fmt::Debug for FreeChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl FreeChunk {
    /// All of a block. If that is no pool's, the device may use it from the start.
    #[inline]
    pub(crate) fn dedicated(block: Block) -> Self {
        let (host_access, marks) = (block.host_access(), if block.pool().is_none() { EXPOSED } else { 0 });
        let chunk = Self::new(Arc::new(block), 0, host_access, 0, Chunk::DEDICATED);
        chunk.marks.store(marks, Ordering::Relaxed);
        chunk
    }

    /// The chunk of a size class at `offset`, a multiple of [`LINE`], of a block, with the block's `host_access`.
    #[inline]
    pub(crate) fn new(block: Arc<Block>, offset: usize, host_access: HostAccess, slot: u32, class: u16) -> Self {
        debug_assert!(offset.is_multiple_of(LINE));
        // A block has at most 128 GiB (`PoolOptions::block_len`; gpu-allocator's have 256 MiB at most), 2^31 lines.
        let line = u32::try_from(offset / LINE).unwrap_or(u32::MAX);
        let (refs, marks) = (RefCount::new(0), AtomicU8::new(0));
        let (len, binding) = (AtomicUsize::new(0), LazyBinding::default());
        let chunk = Box::new(Chunk { refs, slot, class, host_access, marks, line, len, binding, block });
        Self(NonNull::from(Box::leak(chunk)))
    }

    /// Resets the chunk to the state of a new one, but that it stays listed.
    #[inline]
    pub(crate) fn reset(&mut self) -> LastUse {
        self.forget_len();
        LastUse { exposed: self.unexpose(), binding: self.take_binding() }
    }

    #[inline]
    fn take_binding(&mut self) -> Binding {
        // SAFETY: a chunk that this owns; lookups reach its reference count alone.
        let binding = unsafe { &mut (*self.0.as_ptr()).binding };
        binding.take()
    }

    /// Removes the chunk from lookups, before its bytes become those of another: one chunk is listed per offset.
    pub(crate) fn unlist(&mut self) {
        // In a forked child a thread that does not exist there may hold the lock of the list.
        if self.marks.load(Ordering::Relaxed) & LISTED != 0
            && !fork::is_forked()
            && let Some(listing) = self.block.listing()
        {
            addresses::remove_chunk(listing, self.offset() as u64, self.0.as_ptr().cast());
            self.marks.fetch_and(!LISTED, Ordering::Relaxed);
        }
    }

    /// Forgets what the device did with the chunk, unless a copy of ours may still be under way.
    #[cold]
    pub(super) fn mark_cpu_only(&mut self) {
        if self.binding.known().is_none_or(|binding| !binding.get().has_unfinished_copy()) {
            self.unexpose();
            drop(self.take_binding());
        }
    }

    /// Returns the chunk to its pool, or releases its block if it belongs to none.
    #[cold]
    pub(crate) fn give_back(self) -> Result<()> {
        match self.block.pool() {
            Some(pool) => pool.clone().take_back(self),
            None => self.release_dedicated(),
        }
    }

    /// Releases a dedicated chunk with its block: as its binding says, or at once if it was never exposed.
    #[inline]
    pub(crate) fn release_dedicated(mut self) -> Result<()> {
        let LastUse { exposed, mut binding, .. } = self.reset();
        if !exposed {
            binding.release_immediately();
        }
        // SAFETY: a chunk that this owns; lookups reach its reference count alone.
        let block = unsafe { &mut (*self.0.as_ptr()).block };
        // All of the block: nothing else refers to it.
        Arc::get_mut(block).map_or(Ok(()), |block| block.release_once(&binding))
    }
}

/// How a chunk was used during its last allocation.
#[derive(Debug)]
pub(crate) struct LastUse {
    /// Whether the device may use the chunk.
    pub(crate) exposed: bool,
    pub(crate) binding: Binding,
}
