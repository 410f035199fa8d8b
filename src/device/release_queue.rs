//! Memory that was dropped while the device still used it, waiting for the device to finish.
//!
//! The queue knows only when something may go; what it is and how it goes is the business of
//! [`memory::release`](crate::memory).
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::driver::process;

/// Something that is released once the device has finished with it.
pub(crate) trait Retired: Send {
    /// Whether the device has finished.
    fn is_ready(&self) -> bool;
    /// Waits until the device has finished. False when that cannot be known yet.
    fn wait(&self) -> bool;
    /// Releases it, and logs what goes wrong.
    fn release(self: Box<Self>);
}

/// A GPU's release queue. Nothing runs in the background: allocations, drops and
/// [`Vkgdr::collect`](crate::Vkgdr::collect) look after it.
///
/// The lock is held only to move entries, since they call the drivers and the log, which may call back.
#[derive(Default)]
pub(crate) struct ReleaseQueue {
    entries: Mutex<VecDeque<Box<dyn Retired>>>,
    /// The number of entries, those being looked at included.
    len: AtomicUsize,
    draining: Mutex<()>,
}

thread_local! {
    /// Whether this thread is looking at entries of a queue.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as looking, until it goes: also when a log line panics.
struct Looking;

impl Looking {
    /// None when the thread is looking already.
    fn begin() -> Option<Self> {
        (!LOOKING.replace(true)).then_some(Self)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        LOOKING.set(false);
    }
}

/// Takes an entry off the count when it goes, once it has been released or its release has panicked.
struct Gone<'a>(&'a AtomicUsize);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReleaseQueue {
    /// How many entries an allocation or a drop looks at, so that a long queue makes neither of them slow.
    const GLANCE: usize = 8;

    pub(crate) fn push(&self, entry: Box<dyn Retired>) {
        self.len.fetch_add(1, Ordering::Relaxed);
        self.put(entry);
    }

    /// How many entries there are, those that a thread is looking at included.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Looks at some entries, the oldest first, and releases those that are ready.
    pub(crate) fn tend(&self) {
        self.look(Self::GLANCE, |entry| entry.is_ready());
    }

    /// Releases every entry that is ready. Returns how many those were.
    pub(crate) fn collect(&self) -> usize {
        self.look(usize::MAX, |entry| entry.is_ready())
    }

    /// Waits for every entry and releases it. Whether there was any, be it one that another thread has released.
    pub(crate) fn drain(&self) -> bool {
        if self.len() == 0 || LOOKING.get() || process::is_forked() {
            return false;
        }
        // A second thread finds nothing to wait for in the queue, and waits for the first.
        let _turn = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(usize::MAX, |entry| entry.wait());
        true
    }

    /// Releases those of the first `most` entries that are finished; the others go to the end of the queue. Does
    /// nothing when a log line of the same brings the thread here again, and in a process that was forked off, to which
    /// the entries do not belong.
    fn look(&self, most: usize, finished: impl Fn(&dyn Retired) -> bool) -> usize {
        if process::is_forked() {
            return 0;
        }
        let Some(_looking) = Looking::begin() else { return 0 };
        let mut released = 0;
        for _ in 0..self.len().min(most) {
            let Some(entry) = self.take() else { break };
            if finished(&*entry) {
                let _gone = Gone(&self.len);
                entry.release();
                released += 1;
            } else {
                self.put(entry);
            }
        }
        released
    }

    fn take(&self) -> Option<Box<dyn Retired>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn put(&self, entry: Box<dyn Retired>) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push_back(entry);
    }
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
        fn wait(&self) -> bool {
            self.0.finished.store(true, Ordering::SeqCst);
            true
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

    fn released(work: &[Arc<Work>]) -> Vec<bool> {
        work.iter().map(|w| w.released.load(Ordering::SeqCst)).collect()
    }

    #[test]
    fn only_what_is_ready_is_collected() {
        let (queue, work) = queue(3);
        assert_eq!(queue.collect(), 0);
        work[1].finished.store(true, Ordering::SeqCst);
        assert_eq!(queue.collect(), 1);
        assert_eq!(released(&work), [false, true, false]);
        assert_eq!(queue.collect(), 0);
    }

    #[test]
    fn a_panic_while_releasing_does_not_stop_what_comes_after() {
        struct Panics;
        impl Retired for Panics {
            fn is_ready(&self) -> bool {
                true
            }
            fn wait(&self) -> bool {
                true
            }
            fn release(self: Box<Self>) {
                panic!("as a logger may");
            }
        }
        let queue = ReleaseQueue::default();
        queue.push(Box::new(Panics));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.collect()));
        assert!(caught.is_err());
        assert!(!queue.drain(), "the entry is still counted");
        let work = Arc::new(Work::default());
        queue.push(Box::new(Entry(work.clone())));
        work.finished.store(true, Ordering::SeqCst);
        assert_eq!(queue.collect(), 1, "the thread still counts as looking");
    }

    #[test]
    fn draining_waits_for_everything() {
        let (queue, work) = queue(4);
        assert!(queue.drain());
        assert_eq!(released(&work), [true; 4]);
        assert!(!queue.drain());
    }

    #[test]
    fn glances_go_through_a_long_queue_in_turn() {
        let (queue, work) = queue(3 * ReleaseQueue::GLANCE);
        let last = work.len() - 1;
        work[last].finished.store(true, Ordering::SeqCst);
        queue.tend();
        queue.tend();
        assert!(!released(&work)[last], "seen too early");
        queue.tend();
        assert!(released(&work)[last]);
    }
}
