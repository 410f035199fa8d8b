//! How many copies went which way, without slowing down the small ones.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::policy::Direction;
use crate::driver::process;

/// Copies and their bytes, in one direction each.
#[derive(Debug, Default)]
struct Tally {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// What a tally says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
}

impl Tally {
    const fn of(&self, direction: Direction) -> (&AtomicU64, &AtomicU64) {
        match direction {
            Direction::Read => (&self.reads, &self.read_bytes),
            Direction::Write => (&self.writes, &self.written_bytes),
        }
    }

    /// Adds from any thread.
    fn add(&self, direction: Direction, copies: u64, bytes: u64) {
        let (total, total_bytes) = self.of(direction);
        total.fetch_add(copies, Ordering::Relaxed);
        total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds from the only thread that does: plain loads and stores.
    #[inline]
    fn add_alone(&self, direction: Direction, bytes: u64) {
        let (total, total_bytes) = self.of(direction);
        total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        total_bytes.store(total_bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
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
/// Those of the copy engine take microseconds: an atomic addition is nothing beside that. Those of the CPU to memory that
/// it does not cache take some tens of nanoseconds, of which a locked instruction, 5 ns each, would be seen: every thread
/// has a tally of its own for them, which costs loads and stores. Copies of cached memory are not counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    dma: Tally,
    /// Of threads that are gone, and of whom had no tally.
    cpu: Tally,
    threads: Mutex<Vec<Arc<Tally>>>,
}

/// A thread's tally for each GPU that it has copied to or from.
type Mine = Vec<(usize, Arc<Tally>)>;

thread_local! {
    static MINE: RefCell<Mine> = const { RefCell::new(Vec::new()) };
}

impl Counters {
    pub(super) fn count_dma(&self, direction: Direction, len: usize) {
        self.dma.add(direction, 1, len as u64);
    }

    /// To be called on a GPU's counters, which are there for ever.
    #[inline]
    pub(crate) fn count_cpu(&'static self, direction: Direction, len: usize) {
        let key = std::ptr::from_ref(self).addr();
        let counted = MINE.try_with(|mine| {
            let mine = mine.try_borrow().ok()?;
            let (_, tally) = mine.iter().find(|(gpu, _)| *gpu == key)?;
            tally.add_alone(direction, len as u64);
            Some(())
        });
        if !matches!(counted, Ok(Some(()))) {
            self.count_first(key, direction, len);
        }
    }

    /// The first copy of a thread.
    #[cold]
    fn count_first(&self, key: usize, direction: Direction, len: usize) {
        self.cpu.add(direction, 1, len as u64);
        // There, another thread of the parent may have the lock for ever.
        if process::is_forked() {
            return;
        }
        let tally = Arc::new(Tally::default());
        // A thread that is ending has no tally any more.
        let kept = MINE.try_with(|mine| mine.try_borrow_mut().map(|mut mine| mine.push((key, tally.clone()))));
        if let Ok(Ok(())) = kept {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            self.retire(&mut threads);
            threads.push(tally);
        }
    }

    /// Adds up what threads that are gone have counted.
    fn retire(&self, threads: &mut Vec<Arc<Tally>>) {
        threads.retain_mut(|tally| match Arc::get_mut(tally) {
            None => true,
            Some(tally) => {
                self.cpu.add_all(tally.totals());
                false
            }
        });
    }

    pub(crate) fn dma(&self) -> Totals {
        self.dma.totals()
    }

    pub(crate) fn cpu(&self) -> Totals {
        let sum = Tally::default();
        if !process::is_forked() {
            let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.iter().for_each(|tally| sum.add_all(tally.totals()));
            sum.add_all(self.cpu.totals());
        }
        sum.totals()
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
        assert_eq!(counters.dma(), Totals::default());
        // Those of threads that were gone when the next ones came are not kept.
        let threads = counters.threads.lock().map_or(usize::MAX, |threads| threads.len());
        assert!(threads <= 16, "{threads}");
    }
}
