//! Memory that was dropped while the device still used it, waiting for the device to finish.
//!
//! The queue knows only when something may go; what it is and how it goes is the business of
//! [`memory::release`](crate::memory).
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Something that is released once the device has finished with it.
pub(crate) trait Retired: Send {
    /// Whether the device has finished. Does not wait.
    fn is_ready(&self) -> bool;
    /// Waits until the device has finished.
    fn wait(&self);
    /// Releases it, and logs what goes wrong.
    fn release(self: Box<Self>);
}

/// A GPU's release queue. Nothing runs in the background: allocations, drops and
/// [`Vkgdr::collect`](crate::Vkgdr::collect) look after it.
#[derive(Default)]
pub(crate) struct ReleaseQueue {
    entries: Mutex<Vec<Box<dyn Retired>>>,
    /// The number of entries, so that looking after an empty queue takes no lock.
    len: AtomicUsize,
}

impl ReleaseQueue {
    pub(crate) fn push(&self, entry: Box<dyn Retired>) {
        self.change(|entries| entries.push(entry));
    }

    /// Releases what is ready. Returns how many entries that were.
    pub(crate) fn collect(&self) -> usize {
        if self.len.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let ready = self.change(|entries| entries.extract_if(.., |entry| entry.is_ready()).collect::<Vec<_>>());
        release(ready)
    }

    /// Waits for everything and releases it. Returns how many entries that were.
    pub(crate) fn drain(&self) -> usize {
        let all = self.change(std::mem::take);
        all.iter().for_each(|entry| entry.wait());
        release(all)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Box<dyn Retired>>) -> T) -> T {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let value = change(&mut entries);
        self.len.store(entries.len(), Ordering::Relaxed);
        value
    }
}

/// Releases entries with the queue unlocked, since that calls the drivers and may take long.
fn release(entries: Vec<Box<dyn Retired>>) -> usize {
    let count = entries.len();
    for entry in entries {
        entry.release();
    }
    count
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[derive(Default)]
    struct Work {
        finished: AtomicBool,
        released: AtomicBool,
    }

    struct Entry(Arc<Work>);

    impl Retired for Entry {
        fn is_ready(&self) -> bool {
            self.0.finished.load(Ordering::SeqCst)
        }
        fn wait(&self) {
            self.0.finished.store(true, Ordering::SeqCst);
        }
        fn release(self: Box<Self>) {
            assert!(self.is_ready(), "released while in use");
            self.0.released.store(true, Ordering::SeqCst);
        }
    }

    fn queue(entries: usize) -> (ReleaseQueue, Vec<Arc<Work>>) {
        let queue = ReleaseQueue::default();
        let work: Vec<_> = (0..entries).map(|_| Arc::new(Work::default())).collect();
        work.iter().for_each(|w| queue.push(Box::new(Entry(w.clone()))));
        (queue, work)
    }

    #[test]
    fn only_what_is_ready_is_collected() {
        let (queue, work) = queue(3);
        assert_eq!(queue.collect(), 0);
        work[1].finished.store(true, Ordering::SeqCst);
        assert_eq!(queue.collect(), 1);
        let released: Vec<_> = work.iter().map(|w| w.released.load(Ordering::SeqCst)).collect();
        assert_eq!(released, [false, true, false]);
        assert_eq!(queue.collect(), 0);
    }

    #[test]
    fn draining_waits_for_everything() {
        let (queue, work) = queue(4);
        assert_eq!(queue.drain(), 4);
        assert!(work.iter().all(|w| w.released.load(Ordering::SeqCst)));
        assert_eq!(queue.drain(), 0);
    }
}
