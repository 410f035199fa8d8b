//! The windows that the threads of a launch used last, with their pages pinned.
//!
//! Each thread has its own, behind a lock that it shares with no other thread unless there are more than [`SLOTS`].
//! Removing a window from the table invalidates all caches before it returns, so no kernel accesses the pages
//! afterwards, except launches that were told to keep them.
//!
//! Locks are taken in this order: the list of caches, a cache's slots, the table of windows. A cache that an upgrade of the
//! list keeps alive is dropped with the list unlocked, and with copies running: the last one returns memory to its pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::window::{Pinned, Window};
use crate::sync::lock;

const SLOTS: usize = 64;
const REMEMBERED: usize = 8;

static CACHES: Mutex<Vec<Weak<Cache>>> = Mutex::new(Vec::new());

/// Looks a range up that is in no cache: its window, with its pages pinned.
pub(super) type Find = fn(usize, usize) -> Option<Pages>;

/// A window and its pages.
pub(super) type Pages = (Window, Pinned);

// On separate cache lines, against false sharing.
#[repr(align(128))]
#[derive(Default)]
struct Slot(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    windows: Vec<Pages>,
    last: usize,
    oldest: usize,
}

impl Recent {
    // Whether the range lies in one usable window, which is then pinned.
    fn has(&mut self, address: usize, len: usize, kept: &Mutex<Vec<Pages>>, find: Find) -> bool {
        if self.windows.get(self.last).is_some_and(|(window, _)| window.contains(address, len)) {
            return true;
        }
        if let Some(index) = self.windows.iter().position(|(window, _)| window.contains(address, len)) {
            self.last = index;
            return true;
        }
        let among_kept = || lock(kept).iter().find(|(window, _)| window.contains(address, len)).cloned();
        let Some(found) = find(address, len).or_else(among_kept) else { return false };
        if self.windows.len() < REMEMBERED {
            self.last = self.windows.len();
            self.windows.push(found);
        } else {
            self.last = self.oldest;
            self.windows[self.last] = found;
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
        true
    }
}

/// The cache of one launch.
pub(super) struct Cache {
    slots: [Slot; SLOTS],
    // Windows that were freed since the launch was queued, and stay alive for it.
    kept: Mutex<Vec<Pages>>,
}

/// Invalidates every cache. Windows removed from the table before this call are not accessed after it.
pub(super) fn forget_all() {
    let caches: Vec<Arc<Cache>> = lock(&CACHES).iter().filter_map(Weak::upgrade).collect();
    for cache in caches {
        for Slot(recent) in &cache.slots {
            let forgotten = std::mem::take(&mut *lock(recent));
            drop(forgotten);
        }
    }
}

/// Runs `work` while no kernel accesses memory. The caches are for the caller to drop when copies run again.
pub(super) fn while_locked<T>(work: impl FnOnce() -> T) -> (T, Vec<Arc<Cache>>) {
    // Held throughout, so that no launch is queued meanwhile.
    let caches = lock(&CACHES);
    let live: Vec<Arc<Cache>> = caches.iter().filter_map(Weak::upgrade).collect();
    let slots = live.iter().flat_map(|cache| &cache.slots).map(|Slot(recent)| lock(recent)).collect::<Vec<_>>();
    let value = work();
    drop(slots);
    drop(caches);
    (value, live)
}

/// Keeps a window that is about to be removed from the table usable for launches that are already queued.
pub(super) fn keep(window: Window, pages: &Pinned) {
    let caches: Vec<Arc<Cache>> = lock(&CACHES).iter().filter_map(Weak::upgrade).collect();
    for cache in caches {
        lock(&cache.kept).push((window, pages.clone()));
    }
}

impl Cache {
    /// The cache of a launch that is queued now.
    pub(super) fn new() -> Arc<Cache> {
        let cache = Arc::new(Cache { slots: std::array::from_fn(|_| Slot::default()), kept: Mutex::default() });
        let mut caches = lock(&CACHES);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(Arc::downgrade(&cache));
        cache
    }

    /// Runs `access` while the range's window is pinned; `None` if the range lies in no usable one.
    pub(super) fn access<T>(&self, address: usize, len: usize, find: Find, access: impl FnOnce() -> T) -> Option<T> {
        let mut recent = lock(&self.slots[thread_number() % SLOTS].0);
        recent.has(address, len, &self.kept, find).then(access)
    }
}

impl Cache {
    /// Runs `access` while the window of the ranges at all addresses is pinned; `None` if they do not lie in one usable
    /// window.
    pub(super) fn access_all<T>(
        &self,
        addresses: &[usize; 32],
        len: usize,
        find: Find,
        access: impl FnOnce() -> T,
    ) -> Option<T> {
        let mut recent = lock(&self.slots[thread_number() % SLOTS].0);
        if !recent.has(addresses[0], len, &self.kept, find) {
            return None;
        }
        let (window, _) = recent.windows.get(recent.last)?;
        let outside = addresses.iter().fold(false, |outside, &address| outside | !window.contains(address, len));
        (!outside).then(access)
    }
}

fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
