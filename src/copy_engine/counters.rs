//! Counts the copies by the CPU and by the copy engine, cheaply enough for small ones.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::policy::Direction;
use crate::driver::fork;
use crate::lock::{Lock, LockGuard};

/// Numbers of copies and of their bytes, for each direction.
#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// The values of [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
}

impl Counts {
    const fn of(&self, direction: Direction) -> (&AtomicU64, &AtomicU64) {
        match direction {
            Direction::Read => (&self.reads, &self.read_bytes),
            Direction::Write => (&self.writes, &self.written_bytes),
        }
    }

    /// Adds, from any thread.
    fn add(&self, direction: Direction, copies: u64, bytes: u64) {
        let (total, total_bytes) = self.of(direction);
        total.fetch_add(copies, Ordering::Relaxed);
        total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds, from the only thread that does, by plain loads and stores.
    #[inline]
    fn add_alone(&self, direction: Direction, len: usize) {
        let (total, total_bytes) = self.of(direction);
        total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        total_bytes.store(total_bytes.load(Ordering::Relaxed) + len as u64, Ordering::Relaxed);
    }

    fn totals(&self) -> Totals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            writes: get(&self.writes),
            written_bytes: get(&self.written_bytes),
        }
    }

    fn add_all(&self, other: Totals) {
        self.add(Direction::Read, other.reads, other.read_bytes);
        self.add(Direction::Write, other.writes, other.written_bytes);
    }
}

/// The copies of a GPU.
///
/// Copies by the copy engine take microseconds, beside which an atomic addition costs nothing. The CPU's copies of
/// write-combined memory take nanoseconds, and a locked instruction five: each thread has counts of its own for them,
/// and adds to them by plain loads and stores. Copies of cached memory are not counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    engine: Counts,
    /// Copies by the CPU of threads without counts of their own.
    others: Counts,
    /// The counts of each thread that has copied, never freed. New threads take over those of ended ones.
    threads: Lock<AllCounts>,
}

#[derive(Debug, Default)]
struct AllCounts {
    all: Vec<&'static Counts>,
    unused: Vec<&'static Counts>,
}

/// This thread's counts, which other threads may use once it has ended.
struct OwnCounts(RefCell<Vec<(&'static Counters, &'static Counts)>>);

thread_local! {
    static OWN: OwnCounts = const { OwnCounts(RefCell::new(Vec::new())) };
    /// The counts that were used last.
    static LATEST: Cell<Option<(&'static Counters, &'static Counts)>> = const { Cell::new(None) };
}

impl Drop for OwnCounts {
    fn drop(&mut self) {
        LATEST.set(None);
        // In a forked child, another thread of the parent may hold the lock for ever.
        if !fork::is_forked() {
            for (counters, counts) in self.0.get_mut().drain(..) {
                counters.lock().unused.push(counts);
            }
        }
    }
}

impl Counters {
    pub(super) fn count_engine(&self, direction: Direction, len: usize) {
        self.engine.add(direction, 1, len as u64);
    }

    /// Counts a copy by the CPU if the thread's latest counts are this GPU's. Returns false otherwise.
    #[inline]
    pub(crate) fn count_cpu_again(&self, direction: Direction, len: usize) -> bool {
        match LATEST.get() {
            Some((counters, counts)) if ptr::eq(counters, self) => {
                counts.add_alone(direction, len);
                true
            }
            _ => false,
        }
    }

    /// Counts a copy by the CPU. A GPU's counters exist for ever.
    pub(crate) fn count_cpu(&'static self, direction: Direction, len: usize) {
        match self.own_counts() {
            Some(counts) => {
                LATEST.set(Some((self, counts)));
                counts.add_alone(direction, len);
            }
            None => self.others.add(direction, 1, len as u64),
        }
    }

    /// This thread's counts; `None` in a forked child, and for a thread that is ending.
    fn own_counts(&'static self) -> Option<&'static Counts> {
        if fork::is_forked() {
            return None;
        }
        let find = |own: &OwnCounts| {
            let mut own = own.0.try_borrow_mut().ok()?;
            if let Some((_, counts)) = own.iter().find(|(counters, _)| ptr::eq(*counters, self)) {
                return Some(*counts);
            }
            let counts = self.lock().take();
            own.push((self, counts));
            Some(counts)
        };
        OWN.try_with(find).ok().flatten()
    }

    fn lock(&self) -> LockGuard<'_, AllCounts> {
        self.threads.lock()
    }

    pub(crate) fn engine(&self) -> Totals {
        self.engine.totals()
    }

    pub(crate) fn cpu(&self) -> Totals {
        let sum = Counts::default();
        if !fork::is_forked() {
            self.lock().all.iter().for_each(|counts| sum.add_all(counts.totals()));
            sum.add_all(self.others.totals());
        }
        sum.totals()
    }
}

impl AllCounts {
    fn take(&mut self) -> &'static Counts {
        self.unused.pop().unwrap_or_else(|| {
            let counts: &Counts = Box::leak(Box::default());
            self.all.push(counts);
            counts
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_copy_is_lost_whichever_thread_made_it_and_whether_it_lives() {
        let counters: &'static Counters = Box::leak(Box::default());
        let other: &'static Counters = Box::leak(Box::default());
        for round in 1..=3 {
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            counters.count_cpu(Direction::Write, 3);
                            counters.count_cpu(Direction::Read, 5);
                        }
                        other.count_cpu(Direction::Read, 7);
                    });
                }
            });
            let n = 8000 * round;
            assert_eq!(counters.cpu(), Totals { reads: n, read_bytes: 5 * n, writes: n, written_bytes: 3 * n });
            assert_eq!(other.cpu(), Totals { reads: 8 * round, read_bytes: 56 * round, ..Totals::default() });
        }
        assert_eq!(counters.engine(), Totals::default());
        // Threads that have ended leave their counts to the next ones.
        let threads = counters.lock().all.len();
        assert!(threads <= 16, "{threads}");
    }
}
