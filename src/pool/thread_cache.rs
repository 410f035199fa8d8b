//! Each thread's cache of freed memory of a pool, kept as [`Memory`], ready to be allocated again.
//!
//! A thread reaches its cache under an uncontended lock word: one atomic exchange, no wait and no call. Other threads take
//! the same lock to empty or to count it. A thread that finds its cache locked uses the arena instead.
//!
//! The lock word is ours and not a `Mutex`, which needs a second atomic exchange to unlock: to replace one of 1,000 live
//! chunks took 12.5 ns, with two exchanges 15.0 ns (minima of a loop over `Pool::allocate`, interleaved, on an AMD EPYC;
//! `benches/pool.rs` has that row).
#![expect(unsafe_code, reason = "keeps a pointer to the cache that was used last")]

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use super::classes::Classes;
use crate::Memory;
use crate::chunk::{Block, ChunkRef, FreeChunk};
use crate::driver::fork;
use crate::sync::{Locked, TryLock};

/// The most bytes that a thread keeps of one class. Chunks of more than half of that are not kept.
const MAX_BYTES: usize = 512 << 10;
/// The most chunks that a thread keeps of one class.
const MAX_CHUNKS: usize = 64;

/// The id of a pool whose threads have no caches.
pub(crate) const NO_CACHE: u32 = u32::MAX - 1;

// `Region::new` treats memory of `NO_POOL` as exposed to the device, so no pool, with a cache or without, may have that
// id.
const _: () = assert!(NO_CACHE < Block::NO_POOL);

/// The most chunks of a size that a thread keeps.
const fn capacity(size: usize) -> usize {
    let count = MAX_BYTES / size;
    if count < 2 {
        0
    } else if count > MAX_CHUNKS {
        MAX_CHUNKS
    } else {
        count
    }
}

/// Allocations minus frees: the number of chunks, and their requested bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Used {
    pub(super) chunks: isize,
    pub(super) bytes: isize,
}

/// The free chunks of a class. `chunks` has room for `max`, except before the first chunk arrives and after the cache
/// is closed: then it has no capacity.
#[derive(Debug)]
struct Bin {
    chunks: Vec<Memory>,
    max: usize,
}

/// The two counters are not adjacent: the compiler would update them as one vector, whose store-to-load forwarding from one
/// call to the next costs more than the calls.
#[derive(Debug)]
#[repr(C)]
struct Bins {
    used_chunks: isize,
    bins: Box<[Bin]>,
    used_bytes: isize,
    /// Whether the pool keeps free chunks.
    open: bool,
}

impl Bins {
    #[inline]
    fn count(&mut self, used: Used) {
        self.used_chunks += used.chunks;
        self.used_bytes += used.bytes;
    }

    const fn used(&self) -> Used {
        Used { chunks: self.used_chunks, bytes: self.used_bytes }
    }
}

/// One thread's free chunks of one pool. Aligned to 128 bytes: some processors fetch cache lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ThreadCache(TryLock<Bins>);

impl ThreadCache {
    fn new(classes: &Classes) -> Self {
        let bin = |class| Bin { chunks: Vec::new(), max: capacity(classes.size(class)) };
        let bins = (0..classes.count()).map(bin).collect();
        Self(TryLock::new(Bins { used_chunks: 0, bins, used_bytes: 0, open: true }))
    }

    /// The number of free chunks, and the counts of memory in use.
    pub(super) fn count(&self) -> (usize, Used) {
        let cache = self.0.lock();
        (cache.bins.iter().map(|bin| bin.chunks.len()).sum(), cache.used())
    }

    /// Moves all chunks to `into`.
    pub(super) fn drain(&self, into: &mut Vec<FreeChunk>) {
        self.0.lock().bins.iter_mut().for_each(|bin| into.extend(bin.chunks.drain(..).filter_map(free)));
    }

    /// Moves all chunks to `into` and keeps none from now on. Returns the counts of memory in use, and resets them.
    pub(super) fn close(&self, into: &mut Vec<FreeChunk>) -> Used {
        let mut cache = self.0.lock();
        cache.open = false;
        for bin in &mut cache.bins {
            into.extend(std::mem::take(&mut bin.chunks).into_iter().filter_map(free));
        }
        let used = cache.used();
        (cache.used_chunks, cache.used_bytes) = (0, 0);
        used
    }
}

/// Turns cached memory back into a free chunk.
fn free(mut memory: Memory) -> Option<FreeChunk> {
    memory.set_len(0);
    memory.into_chunk().release()
}

/// The pool of a thread's cache.
pub(super) trait CacheOwner: Send + Sync {
    /// Whether its threads may keep chunks.
    fn keeps_free_chunks(&self) -> bool;
    /// Adds a thread's cache.
    fn add_cache(&self, cache: Arc<ThreadCache>);
    /// Removes a thread's cache, at the thread's end.
    fn remove_cache(&self, cache: &Arc<ThreadCache>);
}

struct Entry {
    pool_id: u32,
    cache: Arc<ThreadCache>,
    pool: Weak<dyn CacheOwner>,
}

/// The caches of a thread, which return their chunks to the pools when it ends.
struct Caches(RefCell<Vec<Entry>>);

impl Drop for Caches {
    fn drop(&mut self) {
        LATEST.set((NO_CACHE, ptr::null()));
        let entries = std::mem::take(self.0.get_mut());
        if fork::is_forked() {
            // Leaked: a thread of the parent may have been emptying them.
            let _ = ManuallyDrop::new(entries);
            return;
        }
        for Entry { cache, pool, .. } in entries {
            if let Some(pool) = pool.upgrade() {
                pool.remove_cache(&cache);
            }
        }
    }
}

thread_local! {
    static CACHES: Caches = const { Caches(RefCell::new(Vec::new())) };
    /// One-entry cache of the last lookup: a pool's id, and this thread's cache of it.
    static LATEST: Cell<(u32, *const ThreadCache)> = const { Cell::new((NO_CACHE, ptr::null())) };
}

/// Locks this thread's cache of a pool; `None` where it has none, or another thread holds it.
#[inline]
fn lock<'a>(pool_id: u32) -> Option<Locked<'a, Bins>> {
    let cache = match LATEST.get() {
        (latest, cache) if latest == pool_id => cache,
        _ => find(pool_id)?.as_ptr(),
    };
    // SAFETY: null, or a cache of this thread, which is removed from `LATEST` before it is dropped; no lock outlives the functions
    // of this file.
    unsafe { cache.as_ref() }?.0.try_lock()
}

/// This thread's cache of a pool, if there is one.
#[cold]
fn find(pool_id: u32) -> Option<NonNull<ThreadCache>> {
    let found = CACHES.try_with(|caches| {
        let caches = caches.0.try_borrow().ok()?;
        let cache = &*caches.iter().find(|entry| entry.pool_id == pool_id)?.cache;
        LATEST.set((pool_id, cache));
        Some(NonNull::from(cache))
    });
    found.ok().flatten()
}

/// Takes a free chunk of the class from this thread's cache, as memory of `len` bytes.
#[inline]
pub(super) fn take(pool_id: u32, class: usize, len: usize) -> Option<Memory> {
    let mut cache = lock(pool_id)?;
    let mut memory = cache.bins.get_mut(class)?.chunks.pop()?;
    cache.count(Used { chunks: 1, bytes: len.cast_signed() });
    memory.set_len(len);
    Some(memory)
}

/// Caches freed memory if only the CPU has used it and this thread has room. Returns true if it did.
///
/// Takes a reference, so that the memory is copied once: from its holder to the cache.
///
/// # Safety
///
/// Memory that was kept must not be used again.
#[inline]
pub(super) unsafe fn put(memory: &mut ManuallyDrop<Memory>) -> bool {
    if !memory.is_unshared() || fork::is_forked() {
        return false;
    }
    let (pool_id, class) = memory.pool_and_class();
    let Some(mut cache) = lock(pool_id) else { return false };
    let cache = &mut *cache;
    // Nothing is reallocated here: a closed cache and a class that is not kept have no capacity.
    let Some(bin) = cache.bins.get_mut(usize::from(class)).filter(|bin| bin.chunks.len() < bin.chunks.capacity())
    else {
        return false;
    };
    let len = memory.len().cast_signed();
    // SAFETY: the caller does not use it again, by this function's contract.
    bin.chunks.push(unsafe { ManuallyDrop::take(memory) });
    cache.count(Used { chunks: -1, bytes: -len });
    true
}

/// [`put`] for a reference to a chunk with a recorded length. The device must have finished with the bytes, unless they
/// are bound. Returns the reference if the cache did not keep the memory.
///
/// The memory is built in place: `Vec::push` builds it on the stack field by field and copies it by vector loads, which
/// stall until the fields are stored.
#[inline]
pub(super) fn put_chunk(chunk: ChunkRef) -> Option<ChunkRef> {
    if fork::is_forked() || !chunk.withdraw_idle() {
        return Some(chunk);
    }
    let Some(mut cache) = lock(chunk.pool_id()) else { return Some(chunk) };
    let cache = &mut *cache;
    let Some(bin) = cache.bins.get_mut(usize::from(chunk.class())) else { return Some(chunk) };
    let Some(place) = bin.chunks.spare_capacity_mut().first_mut() else { return Some(chunk) };
    let len = chunk.len().cast_signed();
    chunk.forget_len();
    place.write(Memory::new(chunk, 0));
    // SAFETY: the place after the last was just written.
    unsafe { bin.chunks.set_len(bin.chunks.len() + 1) };
    cache.count(Used { chunks: -1, bytes: -len });
    None
}

/// Adds to this thread's counts of memory in use. Returns false if the thread has no open cache, or another thread has
/// locked it.
pub(super) fn count(pool_id: u32, used: Used) -> bool {
    let Some(mut cache) = lock(pool_id).filter(|cache| cache.open) else { return false };
    cache.count(used);
    true
}

/// Caches free chunks of a class while there is room. If the class is full, caches one chunk and moves half of the
/// class to `chunks`. Chunks that are not cached remain in `chunks`.
pub(super) fn refill(pool_id: u32, class: usize, chunks: &mut Vec<FreeChunk>) {
    let Some(mut cache) = lock(pool_id).filter(|cache| cache.open) else { return };
    let Some(bin) = cache.bins.get_mut(class).filter(|bin| bin.max > 0) else { return };
    if bin.chunks.capacity() == 0 {
        bin.chunks.reserve_exact(bin.max);
    }
    let room = bin.max.saturating_sub(bin.chunks.len());
    let stay = chunks.len() - chunks.len().min(room.max(1));
    let arrived: Vec<_> = chunks.drain(stay..).map(|chunk| Memory::new(ChunkRef::new(chunk, 0), 0)).collect();
    if room == 0 {
        chunks.extend(bin.chunks.drain(..bin.max.div_ceil(2)).filter_map(free));
    }
    bin.chunks.extend(arrived);
}

/// Makes this thread's cache of a pool if there is none yet. Returns the number of chunks of a class to fetch at once.
pub(super) fn ensure_cache(
    pool: &Arc<impl CacheOwner + 'static>,
    pool_id: u32,
    classes: &Classes,
    class: usize,
) -> usize {
    if pool_id != NO_CACHE && find(pool_id).is_none() && pool.keeps_free_chunks() {
        let cache = Arc::new(ThreadCache::new(classes));
        let owner: Weak<dyn CacheOwner> = Arc::downgrade(pool) as Weak<dyn CacheOwner>;
        let entry = Entry { pool_id, cache: cache.clone(), pool: owner };
        let entered = CACHES.try_with(|caches| {
            let mut caches = caches.0.try_borrow_mut().ok()?;
            LATEST.set((NO_CACHE, ptr::null()));
            caches.retain(|entry| entry.pool.strong_count() > 0);
            caches.push(entry);
            Some(())
        });
        if let Ok(Some(())) = entered {
            pool.add_cache(cache);
        }
    }
    let max = lock(pool_id).filter(|cache| cache.open).map_or(0, |cache| cache.bins[class].max);
    (max / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_few_large_chunks_and_no_huge_ones() {
        let kept = [64, 4096, 64 << 10, 128 << 10, 256 << 10, (256 << 10) + 1].map(capacity);
        assert_eq!(kept, [64, 64, 8, 4, 2, 0]);
    }
}
