//! What a pool does beside lending: looking after the threads' caches, giving blocks back, counting.
#![forbid(unsafe_code)]

use super::core::Core;
use super::depot::Rubbish;
use super::local::{Cache, Home};

impl Home for Core {
    fn is_holding(&self) -> bool {
        self.depot().is_holding()
    }

    fn admit(&self, cache: Cache) {
        self.caches().push(cache.clone());
        // The pool may have stopped holding meanwhile, and not have seen the cache.
        if !self.is_holding() {
            self.empty(&cache, true);
        }
    }

    fn retire(&self, cache: &Cache) {
        self.empty(cache, true);
        self.caches().retain(|other| !other.is(cache));
    }
}

impl Core {
    /// Puts a cache's pieces where all threads find them. Returns the bytes that go back to the drivers by that.
    fn empty(&self, cache: &Cache, close: bool) -> usize {
        let mut pieces = Vec::new();
        let lent = cache.drain(close, &mut pieces);
        self.count_here(lent);
        self.put(pieces)
    }

    fn empty_all(&self, close: bool) -> usize {
        let caches = self.caches().clone();
        caches.iter().map(|cache| self.empty(cache, close)).sum()
    }

    /// Gives free blocks back to the drivers, until no more than `keep` bytes are managed. Returns the bytes given back.
    pub(super) fn trim(&self, keep: usize) -> usize {
        // A pool that holds nothing gives blocks back as soon as their last piece comes.
        let freed = self.empty_all(false) + self.put(self.fences().poll(usize::MAX));
        let mut gone = Rubbish::default();
        freed + self.depot().trim(keep.saturating_sub(self.alone()), &mut gone)
    }

    /// Waits for the device, and puts what it may have used where all threads find it. Returns the bytes that go back to
    /// the drivers by that. Where waiting fails the pieces stay where they are.
    pub(super) fn put_waited_for(&self) -> usize {
        let waited_for = self.fences().wait().unwrap_or_else(|error| {
            log::debug!("waiting for a pool's context: {error}");
            Vec::new()
        });
        self.put(waited_for)
    }

    /// Waits for the device, gives every free block back, and waits for the release queue. Whether that may have given
    /// the drivers any memory.
    pub(super) fn free_held(&self) -> bool {
        let freed = self.put_waited_for() + self.trim(0) > 0;
        self.owner().gpu().release_queue().drain() | freed
    }

    /// Keeps no free piece from now on.
    pub(super) fn stop_holding(&self) {
        self.depot().stop_holding();
        self.empty_all(true);
        self.free_held();
    }

    /// Gives everything up but what is in use.
    pub(super) fn close(&self) {
        let mut gone = Rubbish::default();
        self.depot().close(&mut gone);
        self.empty_all(true);
        drop(gone);
        self.fences().close();
    }

    /// The pieces that are free but kept.
    pub(super) fn held(&self) -> usize {
        let near: usize = self.caches().iter().map(|cache| cache.count().0).sum();
        self.depot().held() + self.fences().held() + near
    }

    pub(super) fn managed(&self) -> usize {
        self.depot().managed() + self.alone()
    }

    /// The pieces that are lent and the bytes that were asked for.
    pub(super) fn lent(&self) -> (usize, usize) {
        let mut sum = self.counted_here();
        for cache in self.caches().iter() {
            let (_, lent) = cache.count();
            sum += lent;
        }
        (usize::try_from(sum.pieces).unwrap_or(0), usize::try_from(sum.bytes).unwrap_or(0))
    }
}
