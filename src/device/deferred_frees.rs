//! [`DeferredFrees`]: the queue of frees that wait for the device, and [`WaitScope`]: which of them a poll may wait for.
//!
//! This file decides when an entry is released; `chunk/block.rs` implements what that means for memory.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::driver::context::Context;
use crate::driver::fork;
use crate::lock::Lock;

/// Which contexts a scan may wait for, where an entry has no event to ask.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitScope {
    None,
    /// One that the caller has just waited for.
    Context(Context),
    All,
}

impl WaitScope {
    pub(crate) fn covers(self, context: Context) -> bool {
        match self {
            Self::None => false,
            Self::Context(other) => other == context,
            Self::All => true,
        }
    }
}

/// An object to release once the device has finished with it.
pub(crate) trait Deferred: Send {
    /// Whether the device has finished. False where that cannot be known without a wait that is not allowed.
    fn is_ready(&self, scope: WaitScope) -> bool;
    /// Waits until the device has finished. Returns false if that cannot be known yet.
    fn wait(&self) -> bool;
    /// Releases it, and logs errors.
    fn release(self: Box<Self>);
}

/// The deferred frees of a GPU, oldest first. There is no background thread: allocations and drops poll some of them,
/// [`Vkgdr::collect`](crate::Vkgdr::collect) all.
///
/// The lock is held only to move entries: entries call the drivers and the log, which may call back.
#[derive(Default)]
pub(crate) struct DeferredFrees {
    entries: Lock<VecDeque<Box<dyn Deferred>>>,
    /// The number of entries, including those that a thread has taken out to scan.
    len: AtomicUsize,
    /// How often an entry that was taken out was put back, as not finished.
    put_back: AtomicUsize,
}

thread_local! {
    /// Whether this thread is scanning entries of any GPU.
    static SCANNING: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as scanning while it lives, also when a log line panics.
struct Scanning;

impl Scanning {
    /// `None` when the thread is scanning already.
    fn begin() -> Option<Self> {
        // Not `then_some`, whose argument is dropped, which would end the mark of the scan that goes on.
        if SCANNING.replace(true) { None } else { Some(Self) }
    }
}

impl Drop for Scanning {
    fn drop(&mut self) {
        SCANNING.set(false);
    }
}

/// The counts of one scan.
#[derive(Default)]
struct Scanned {
    released: usize,
    put_back: usize,
}

/// Subtracts an entry from the count when dropped: after its release, or when its release panics.
struct Uncount<'a>(&'a AtomicUsize);

impl Drop for Uncount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DeferredFrees {
    /// Entries that one poll scans, so that many deferred frees make neither an allocation nor a drop slow.
    const SCANNED_PER_POLL: usize = 8;

    pub(crate) fn push(&self, entry: Box<dyn Deferred>) {
        self.len.fetch_add(1, Ordering::Relaxed);
        self.put(entry);
    }

    /// The number of entries, including those that a thread is scanning.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Scans some of the oldest entries and releases those that are ready.
    #[inline]
    pub(crate) fn poll(&self, scope: WaitScope) {
        if self.len() == 0 {
            return;
        }
        self.scan(Self::SCANNED_PER_POLL, |entry| entry.is_ready(scope));
    }

    /// Releases every entry that is ready; waits for those that have no event to ask. Returns their number.
    pub(crate) fn collect(&self) -> usize {
        self.scan(usize::MAX, |entry| entry.is_ready(WaitScope::All)).released
    }

    /// How long a drain waits for entries that other threads have taken out: such a thread may be in a logger that
    /// waits for this one, or in a drain that waits for longer work.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Waits for every entry and releases it, including entries that other threads are scanning. Returns true if there
    /// was any, even if another thread released it.
    pub(crate) fn drain(&self) -> bool {
        if self.len() == 0 || SCANNING.get() || fork::is_forked() {
            return false;
        }
        crate::lock::before_wait();
        let mut deadline = None;
        loop {
            let before = self.put_back.load(Ordering::Relaxed);
            let own = self.scan(usize::MAX, |entry| entry.wait()).put_back;
            let others_have_some = self.others_have_some();
            // Read after the queue: this counts entries that another thread put back before, behind the scan.
            let complete = self.put_back.load(Ordering::Relaxed) == before.wrapping_add(own);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + Self::PATIENCE);
            if complete && !others_have_some || Instant::now() >= deadline {
                return true;
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Whether another thread has taken out an entry, or has not put a new one in yet. Must not be called while this
    /// thread scans.
    fn others_have_some(&self) -> bool {
        let entries = self.entries.lock();
        // `len` counts an entry from before it is put in until after it is released.
        self.len() > entries.len()
    }

    /// Of the first `max` entries, releases those that are finished, and moves the others to the end. Does nothing
    /// when a log line of a scan calls it again on the same thread, or in a forked child, which does not own the
    /// entries.
    #[cold]
    fn scan(&self, max: usize, finished: impl Fn(&dyn Deferred) -> bool) -> Scanned {
        let mut scanned = Scanned::default();
        if fork::is_forked() {
            return scanned;
        }
        let Some(_scanning) = Scanning::begin() else { return scanned };
        for _ in 0..self.len().min(max) {
            let Some(entry) = self.take() else { break };
            if finished(&*entry) {
                let _uncount = Uncount(&self.len);
                entry.release();
                scanned.released += 1;
            } else {
                // Counted first: a drain that finds the entry in the queue sees the count.
                self.put_back.fetch_add(1, Ordering::Relaxed);
                scanned.put_back += 1;
                self.put(entry);
            }
        }
        scanned
    }

    fn take(&self) -> Option<Box<dyn Deferred>> {
        self.entries.lock().pop_front()
    }

    fn put(&self, entry: Box<dyn Deferred>) {
        self.entries.lock().push_back(entry);
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

    impl Deferred for Entry {
        fn is_ready(&self, _: WaitScope) -> bool {
            self.0.finished.load(Ordering::SeqCst)
        }
        fn wait(&self) -> bool {
            self.0.finished.store(true, Ordering::SeqCst);
            true
        }
        fn release(self: Box<Self>) {
            assert!(self.is_ready(WaitScope::None), "released while in use");
            self.0.released.store(true, Ordering::SeqCst);
        }
    }

    fn deferred(entries: usize) -> (DeferredFrees, Vec<Arc<Work>>) {
        let frees = DeferredFrees::default();
        let work: Vec<_> = (0..entries).map(|_| Arc::new(Work::default())).collect();
        work.iter().for_each(|w| frees.push(Box::new(Entry(w.clone()))));
        (frees, work)
    }

    fn released(work: &[Arc<Work>]) -> Vec<bool> {
        work.iter().map(|w| w.released.load(Ordering::SeqCst)).collect()
    }

    #[test]
    fn only_what_is_ready_is_collected() {
        let (frees, work) = deferred(3);
        assert_eq!(frees.collect(), 0);
        work[1].finished.store(true, Ordering::SeqCst);
        assert_eq!(frees.collect(), 1);
        assert_eq!(released(&work), [false, true, false]);
        assert_eq!(frees.collect(), 0);
    }

    /// An entry that is ready, and runs this when it is released.
    struct Runs<F>(F);

    impl<F: FnOnce() + Send> Deferred for Runs<F> {
        fn is_ready(&self, _: WaitScope) -> bool {
            true
        }
        fn wait(&self) -> bool {
            true
        }
        fn release(self: Box<Self>) {
            (self.0)();
        }
    }

    #[test]
    fn a_scan_within_a_scan_does_nothing_however_often_it_is_tried() {
        let (frees, work) = deferred(1);
        let frees = Arc::new(frees);
        work[0].finished.store(true, Ordering::SeqCst);
        let again = frees.clone();
        // As a logger does that allocates: a poll, and after a shortage a drain.
        let nests = move || {
            for _ in 0..2 {
                again.poll(WaitScope::All);
                assert!(SCANNING.get(), "the outer scan goes on");
                assert!(!again.drain());
            }
        };
        frees.entries.lock().push_front(Box::new(Runs(nests)));
        frees.len.fetch_add(1, Ordering::Relaxed);
        assert_eq!(frees.collect(), 2);
        assert!(!SCANNING.get());
    }

    #[test]
    fn a_panic_while_releasing_does_not_stop_later_releases() {
        let frees = DeferredFrees::default();
        frees.push(Box::new(Runs(|| panic!("a logger's panic"))));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| frees.collect()));
        assert!(caught.is_err());
        assert!(!frees.drain(), "the entry is still counted");
        let work = Arc::new(Work::default());
        frees.push(Box::new(Entry(work.clone())));
        work.finished.store(true, Ordering::SeqCst);
        assert_eq!(frees.collect(), 1, "the thread still counts as scanning");
    }

    #[test]
    fn draining_waits_for_everything() {
        let (frees, work) = deferred(4);
        assert!(frees.drain());
        assert_eq!(released(&work), [true; 4]);
        assert!(!frees.drain());
    }

    #[test]
    fn draining_waits_for_what_another_thread_has_taken_out_to_ask() {
        /// Is asked slowly, and was not finished then.
        struct Slow {
            asked: Arc<AtomicBool>,
            entry: Entry,
        }
        impl Deferred for Slow {
            fn is_ready(&self, _: WaitScope) -> bool {
                self.asked.store(true, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(50));
                false
            }
            fn wait(&self) -> bool {
                self.entry.wait()
            }
            fn release(self: Box<Self>) {
                Box::new(self.entry).release();
            }
        }
        let (frees, work, asked) =
            (DeferredFrees::default(), Arc::new(Work::default()), Arc::new(AtomicBool::new(false)));
        frees.push(Box::new(Slow { asked: asked.clone(), entry: Entry(work.clone()) }));
        thread::scope(|scope| {
            scope.spawn(|| frees.collect());
            while !asked.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            assert!(frees.drain());
            assert_eq!((released(&[work]), frees.len()), (vec![true], 0));
        });
    }

    #[test]
    fn polls_go_through_many_entries_in_turn() {
        let (frees, work) = deferred(3 * DeferredFrees::SCANNED_PER_POLL);
        let last = work.len() - 1;
        work[last].finished.store(true, Ordering::SeqCst);
        frees.poll(WaitScope::None);
        frees.poll(WaitScope::None);
        assert!(!released(&work)[last], "seen too early");
        frees.poll(WaitScope::None);
        assert!(released(&work)[last]);
    }
}
