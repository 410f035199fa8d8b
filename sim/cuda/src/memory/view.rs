//! A launch's view of the memory table, from the moment it is queued. Every access is checked against the live windows.
//!
//! Each thread caches the windows that it used last, with their pages pinned, behind a lock that it shares with no other
//! thread unless there are more than [`SLOTS`]. Removing a window from the table invalidates all caches before it
//! returns, so no kernel accesses the pages afterwards, except launches that were told to keep them.

use std::sync::atomic::{self, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::bytes;
use super::table::{self, Pinned, Window};
use crate::context::Health;
use crate::sync::lock;

const SLOTS: usize = 64;
const REMEMBERED: usize = 8;

static VIEWS: Mutex<Vec<Weak<View>>> = Mutex::new(Vec::new());

/// The memory of one launch.
pub(crate) struct View {
    health: Arc<Health>,
    slots: [Slot; SLOTS],
    // Windows that were freed since the launch was queued, and stay alive for it.
    kept: Mutex<Vec<Pages>>,
}

type Pages = (Window, Pinned);

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
    fn has(&mut self, address: usize, len: usize, kept: &Mutex<Vec<Pages>>) -> bool {
        if self.windows.get(self.last).is_some_and(|(window, _)| window.contains(address, len)) {
            return true;
        }
        if let Some(index) = self.windows.iter().position(|(window, _)| window.contains(address, len)) {
            self.last = index;
            return true;
        }
        let among_kept = || lock(kept).iter().find(|(window, _)| window.contains(address, len)).cloned();
        let Some(found) = table::pin_window(address, len).or_else(among_kept) else { return false };
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

/// Invalidates every view's cache. Windows removed from the table before this call are not accessed after it.
pub(super) fn forget_all() {
    let views: Vec<Arc<View>> = lock(&VIEWS).iter().filter_map(Weak::upgrade).collect();
    for view in views {
        for Slot(recent) in &view.slots {
            let forgotten = std::mem::take(&mut *lock(recent));
            drop(forgotten);
        }
    }
}

/// Keeps a window that is about to be removed from the table usable for launches that are already queued.
pub(super) fn keep(window: Window, pages: &Pinned) {
    for view in lock(&VIEWS).iter().filter_map(Weak::upgrade) {
        lock(&view.kept).push((window, pages.clone()));
    }
}

impl View {
    /// A view for a launch in the context with this health.
    pub(crate) fn new(health: Arc<Health>) -> Arc<View> {
        let view = Arc::new(View { health, slots: std::array::from_fn(|_| Slot::default()), kept: Mutex::default() });
        let mut views = lock(&VIEWS);
        views.retain(|view| view.strong_count() > 0);
        views.push(Arc::downgrade(&view));
        view
    }

    // Runs `access` while the range's window is pinned.
    fn access<T>(&self, address: u64, bytes: u32, access: impl FnOnce(usize, usize) -> T) -> Option<T> {
        let (address, len) = (usize::try_from(address).ok()?, usize::try_from(bytes).ok()?);
        let mut recent = lock(&self.slots[thread_number() % SLOTS].0);
        recent.has(address, len, &self.kept).then(|| access(address, len))
    }
}

fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl ptx::Memory for View {
    fn load(&self, address: u64, bytes: u32) -> Option<u64> {
        self.access(address, bytes, bytes::load)
    }

    fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()> {
        self.access(address, bytes, |address, len| bytes::store(address, len, value))
    }

    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        self.access(address, bytes, |address, len| bytes::update(address, len, change))
    }

    fn fence(&self) {
        atomic::fence(Ordering::SeqCst);
    }

    fn interrupted(&self) -> bool {
        self.health.ends_kernels()
    }
}
