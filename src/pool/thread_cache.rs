//! Each thread's own few free chunks of a pool.
//!
//! A thread reaches its cache under an uncontended lock word: one atomic exchange, no wait and no call. Other threads take
//! the same lock to empty or to count it. A thread that finds its cache locked uses the arena instead.
//!
//! A lock word of our own instead of a `Mutex`, which unlocks by a second atomic exchange: LOCK_BENCH
#![expect(unsafe_code, reason = "a lock word, and a pointer to the cache that was used last")]

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use super::classes::Classes;
use super::inner::PoolInner;
use crate::driver::process;
use crate::loom::{AtomicBool, Ordering, UnsafeCell, yield_now};
use crate::memory::chunk::Chunk;

/// Bytes of a class that a thread keeps at most. Classes of more than half of it are not kept.
const MAX_BYTES: usize = 512 << 10;
/// Chunks of a class that a thread keeps at most.
const MAX_CHUNKS: usize = 64;

/// The id of a pool whose threads have no caches.
pub(super) const NO_CACHE: u32 = u32::MAX;

/// How many chunks of a size a thread keeps.
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

/// A value that one thread uses at a time: a spin lock whose owner never spins.
#[derive(Debug)]
struct TryLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the thread that set `locked` alone, which may be any thread if `T` may be sent.
unsafe impl<T: Send> Sync for TryLock<T> {}

/// Unlocks when it goes, also when the work panics.
struct Unlock<'a>(&'a AtomicBool);

impl Drop for Unlock<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next holder sees what was done to the value.
        self.0.store(false, Ordering::Release);
    }
}

impl<T> TryLock<T> {
    fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `work` on the value; nothing while it is locked, by this thread or another.
    #[inline]
    fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Acquire: what the last holder did to the value is visible.
        if self.locked.swap(true, Ordering::Acquire) {
            return None;
        }
        let _unlock = Unlock(&self.locked);
        // SAFETY: `locked` was false and is true now, so that no other call is here.
        Some(self.value.with_mut(|value| work(unsafe { &mut *value })))
    }

    /// As [`try_with`](Self::try_with), after whoever holds the lock: for nanoseconds, since no work calls out.
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut work = Some(work);
        loop {
            if let Some(result) = self.try_with(|value| work.take().map(|work| work(value))).flatten() {
                return result;
            }
            yield_now();
        }
    }
}

/// What is in use: chunks lent less chunks taken back, and the bytes that were asked for.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Used {
    pub(super) chunks: isize,
    pub(super) bytes: isize,
}

/// The free chunks of a class. No room before the first ones are stocked, and for `most` from then on.
#[derive(Debug)]
struct Bin {
    chunks: Vec<Box<Chunk>>,
    most: usize,
}

#[derive(Debug)]
struct Bins {
    bins: Box<[Bin]>,
    used: Used,
    /// Whether the pool keeps free chunks.
    open: bool,
}

impl Bins {
    #[inline]
    fn take(&mut self, class: usize, len: usize) -> Option<Box<Chunk>> {
        let chunk = self.bins.get_mut(class)?.chunks.pop()?;
        self.used.chunks += 1;
        self.used.bytes += len.cast_signed();
        Some(chunk)
    }

    /// Keeps a chunk of a class that was lent, if there is room; gives it back if not.
    #[inline]
    fn put(&mut self, chunk: Box<Chunk>, class: usize) -> Option<Box<Chunk>> {
        match self.bins.get_mut(class) {
            // Nothing is reallocated here: a closed cache and a class that is not kept have no capacity.
            Some(bin) if bin.chunks.len() < bin.chunks.capacity() => {
                self.used.chunks -= 1;
                self.used.bytes -= chunk.len().cast_signed();
                bin.chunks.push(chunk);
                None
            }
            _ => Some(chunk),
        }
    }
}

/// One thread's free chunks of one pool, on cache lines of its own and on the pair that some processors fetch at once.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ThreadCache(TryLock<Bins>);

impl ThreadCache {
    fn new(classes: &Classes) -> Self {
        let bin = |class| Bin { chunks: Vec::new(), most: capacity(classes.size(class)) };
        let bins = (0..classes.count()).map(bin).collect();
        Self(TryLock::new(Bins { bins, used: Used::default(), open: true }))
    }

    /// The number of free chunks, and what is in use.
    pub(super) fn count(&self) -> (usize, Used) {
        self.0.with(|bins| (bins.bins.iter().map(|bin| bin.chunks.len()).sum(), bins.used))
    }

    /// Moves all chunks to `into`.
    pub(super) fn drain(&self, into: &mut Vec<Box<Chunk>>) {
        self.0.with(|bins| bins.bins.iter_mut().for_each(|bin| into.append(&mut bin.chunks)));
    }

    /// Moves all chunks to `into` and keeps none from now on. Returns what is in use, which is not counted here any more.
    pub(super) fn close(&self, into: &mut Vec<Box<Chunk>>) -> Used {
        self.0.with(|bins| {
            bins.open = false;
            for bin in &mut bins.bins {
                into.append(&mut std::mem::take(&mut bin.chunks));
            }
            std::mem::take(&mut bins.used)
        })
    }
}

struct Entry {
    pool_id: u32,
    cache: Arc<ThreadCache>,
    pool: Weak<PoolInner>,
}

/// The caches of a thread, which return their chunks to the pools when it ends.
struct Caches(RefCell<Vec<Entry>>);

impl Drop for Caches {
    fn drop(&mut self) {
        LATEST.set((NO_CACHE, ptr::null()));
        if process::is_forked() {
            return;
        }
        for Entry { cache, pool, .. } in std::mem::take(self.0.get_mut()) {
            if let Some(pool) = pool.upgrade() {
                pool.retire(&cache);
            }
        }
    }
}

thread_local! {
    static CACHES: Caches = const { Caches(RefCell::new(Vec::new())) };
    /// One-entry cache of the last lookup: a pool's id, and this thread's cache of it.
    static LATEST: Cell<(u32, *const ThreadCache)> = const { Cell::new((NO_CACHE, ptr::null())) };
}

/// Runs `work` on this thread's cache of a pool; nothing where it has none, or another thread holds it.
#[inline]
fn with<R>(pool_id: u32, work: impl FnOnce(&mut Bins) -> R) -> Option<R> {
    let cache = match LATEST.get() {
        (latest, cache) if latest == pool_id => cache,
        _ => find(pool_id)?.as_ptr(),
    };
    // SAFETY: null, or a cache of this thread, which is removed from `LATEST` before it goes.
    unsafe { cache.as_ref() }?.0.try_with(work)
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

/// Takes a chunk to be lent for `len` bytes, if this thread has one.
#[inline]
pub(super) fn take(pool_id: u32, class: usize, len: usize) -> Option<Box<Chunk>> {
    with(pool_id, |bins| bins.take(class, len)).flatten()
}

/// Keeps a chunk of a class that was lent, if this thread has room; gives it back if not.
#[inline]
pub(super) fn put(pool_id: u32, class: usize, chunk: Box<Chunk>) -> Option<Box<Chunk>> {
    let mut chunk = Some(chunk);
    with(pool_id, |bins| chunk = chunk.take().and_then(|chunk| bins.put(chunk, class)));
    chunk
}

/// Counts what is in use; tells whether this thread's cache does.
pub(super) fn count(pool_id: u32, used: Used) -> bool {
    let counted = with(pool_id, |bins| {
        if bins.open {
            bins.used.chunks += used.chunks;
            bins.used.bytes += used.bytes;
        }
        bins.open
    });
    counted == Some(true)
}

/// Keeps free chunks of a class, as far as there is room; where the class is full, half of it makes room. What is not kept
/// remains in `chunks`, or is added.
pub(super) fn stock(pool_id: u32, class: usize, chunks: &mut Vec<Box<Chunk>>) {
    with(pool_id, |bins| {
        let Some(bin) = bins.bins.get_mut(class).filter(|bin| bins.open && bin.most > 0) else { return };
        if bin.chunks.capacity() == 0 {
            bin.chunks.reserve_exact(bin.most);
        }
        let room = bin.most.saturating_sub(bin.chunks.len());
        let stay = chunks.len() - chunks.len().min(room.max(1));
        let arrived: Vec<_> = chunks.drain(stay..).collect();
        if room == 0 {
            chunks.extend(bin.chunks.drain(..bin.most.div_ceil(2)));
        }
        bin.chunks.extend(arrived);
    });
}

/// Makes this thread's cache of a pool if there is none yet. Returns how many chunks of a class to fetch at once.
pub(super) fn enrol(pool: &Arc<PoolInner>, class: usize) -> usize {
    let pool_id = pool.id;
    if pool_id != NO_CACHE && find(pool_id).is_none() && pool.keeps_free_chunks() {
        let cache = Arc::new(ThreadCache::new(&pool.classes));
        let entry = Entry { pool_id, cache: cache.clone(), pool: Arc::downgrade(pool) };
        let entered = CACHES.try_with(|caches| {
            let mut caches = caches.0.try_borrow_mut().ok()?;
            LATEST.set((NO_CACHE, ptr::null()));
            caches.retain(|entry| entry.pool.strong_count() > 0);
            caches.push(entry);
            Some(())
        });
        if let Ok(Some(())) = entered {
            pool.admit(cache);
        }
    }
    let most = with(pool_id, |bins| if bins.open { bins.bins[class].most } else { 0 });
    (most.unwrap_or(0) / 2).max(1)
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
