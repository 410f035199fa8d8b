//! A reference count and a try-lock, of which loom checks every interleaving; and a single flight.
#![expect(unsafe_code, reason = "reaches a value by one thread at a time")]

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::loom::{AtomicBool, AtomicU32, MutPtr, Ordering, UnsafeCell, yield_now};

/// A count of references, 0 while there are none.
#[derive(Debug)]
pub(crate) struct RefCount(AtomicU32);

impl RefCount {
    #[inline]
    pub(crate) fn new(count: u32) -> Self {
        Self(AtomicU32::new(count))
    }

    /// More references than threads can make before this one aborts.
    const LIMIT: u32 = u32::MAX / 2;

    /// Whether the caller's reference is the only one. If so it stays the only one, and what the others did before they
    /// went is visible.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// Adds a reference. The caller holds one.
    pub(crate) fn add(&self) {
        // Relaxed: a new holder gets its reference from the caller.
        if self.0.fetch_add(1, Ordering::Relaxed) > Self::LIMIT {
            std::process::abort();
        }
    }

    /// Removes the caller's reference. Tells whether it was the last: then what the others did before is visible.
    #[inline]
    pub(crate) fn remove(&self) -> bool {
        if self.is_one() {
            // Nobody else looks at the count any more.
            self.0.store(0, Ordering::Relaxed);
            return true;
        }
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// A value that one thread uses at a time: a spin lock whose owner never spins.
#[derive(Debug)]
pub(crate) struct TryLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the thread that set `locked` alone, which may be any thread if `T` may be sent.
unsafe impl<T: Send> Sync for TryLock<T> {}

/// The value while it is locked.
#[derive(Debug)]
pub(crate) struct Locked<'a, T> {
    value: MutPtr<T>,
    // After the value: a drop unlocks.
    _unlock: Unlock<'a>,
}

#[derive(Debug)]
struct Unlock<'a>(&'a AtomicBool);

impl Drop for Unlock<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next holder sees what was done to the value.
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value outlives the lock, and only the holder of the lock reaches it.
        self.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and this is borrowed exclusively.
        self.value.with(|value| unsafe { &mut *value })
    }
}

impl<T> TryLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value; none while it is locked, by this thread or another.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, T>> {
        // Acquire: what the last holder did to the value is visible.
        if self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        let _unlock = Unlock(&self.locked);
        Some(Locked { value: self.value.get_mut(), _unlock })
    }

    /// Locks the value, spinning while another thread holds it: for nanoseconds, since no holder calls out.
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        loop {
            if let Some(locked) = self.try_lock() {
                return locked;
            }
            yield_now();
        }
    }
}

/// Lets one thread do what several need, while the others wait for it.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight {
    thread: Mutex<Option<ThreadId>>,
    done: Condvar,
}

/// Returned by `begin`. `taken` is false if the wait timed out, or this thread has the turn already: then a drop does
/// nothing.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    owner: &'a SingleFlight,
    taken: bool,
}

impl SingleFlight {
    /// No thread waits for longer: the one at work may be in a logger, and that logger wait for this thread.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Waits for the thread at work, unless it is this one: then a logger called here.
    pub(crate) fn begin(&self) -> Flight<'_> {
        let me = thread::current().id();
        let other = |thread: &mut Option<ThreadId>| thread.is_some_and(|thread| thread != me);
        let waited = self.done.wait_timeout_while(self.lock(), Self::PATIENCE, other);
        let (mut thread, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let taken = thread.is_none();
        if taken {
            *thread = Some(me);
        }
        Flight { owner: self, taken }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if self.taken {
            *self.owner.lock() = None;
            self.owner.done.notify_one();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A chunk with two holders: their marks, and what its last holder alone touches.
    struct Counted {
        refs: RefCount,
        marks: [AtomicBool; 2],
        content: UnsafeCell<()>,
        taken: AtomicU32,
    }

    impl Counted {
        fn with_two_holders() -> Arc<Self> {
            let refs = RefCount::new(1);
            refs.add();
            let marks = [(), ()].map(|()| AtomicBool::new(false));
            Arc::new(Self { refs, marks, content: UnsafeCell::new(()), taken: AtomicU32::new(0) })
        }

        fn mark(&self) {
            self.marks.iter().for_each(|mark| mark.store(true, Ordering::Relaxed));
        }

        fn marks(&self) -> [bool; 2] {
            [0, 1].map(|index| self.marks[index].load(Ordering::Relaxed))
        }

        /// Uses the chunk and removes a reference; takes the chunk with the last.
        fn release(&self) {
            self.content.with(|_| ());
            if self.refs.remove() {
                self.content.with_mut(|_| ());
                self.taken.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn spawn<T: 'static>(
        chunk: &Arc<Counted>,
        work: impl FnOnce(Arc<Counted>) -> T + 'static,
    ) -> thread::JoinHandle<T> {
        let chunk = chunk.clone();
        thread::spawn(move || work(chunk))
    }

    fn join<T>(thread: thread::JoinHandle<T>) -> T {
        thread.join().unwrap_or_else(|_| panic!("a thread panicked"))
    }

    #[test]
    fn one_of_several_takes_the_chunk_after_all_others() {
        loom::model(|| {
            let chunk = Counted::with_two_holders();
            let other = spawn(&chunk, |chunk| {
                chunk.refs.add();
                chunk.release();
                chunk.release();
            });
            chunk.release();
            join(other);
            assert_eq!(chunk.taken.load(Ordering::Relaxed), 1);
        });
    }

    /// The reference is added by way of a borrow of the holder's, and outlives it.
    #[test]
    fn a_reference_that_a_borrower_added_counts() {
        loom::model(|| {
            let chunk = Counted::with_two_holders();
            assert!(!chunk.refs.remove());
            let borrower = spawn(&chunk, |chunk| {
                chunk.refs.add();
                thread::spawn(move || chunk.release())
            });
            let holder_of_the_new = join(borrower);
            chunk.release();
            join(holder_of_the_new);
            assert_eq!(chunk.taken.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn the_only_holder_sees_the_marks_of_the_others() {
        loom::model(|| {
            let chunk = Counted::with_two_holders();
            // Threads both: the first to be spawned may be through before the other begins.
            let marking = spawn(&chunk, |chunk| {
                chunk.mark();
                chunk.release();
            });
            let looking = spawn(&chunk, |chunk| {
                if chunk.refs.is_one() {
                    assert_eq!(chunk.marks(), [true, true]);
                }
                if chunk.refs.remove() {
                    assert_eq!(chunk.marks(), [true, true]);
                }
            });
            join(marking);
            join(looking);
        });
    }

    /// A cache, as far as a lock is concerned: what it keeps, and whether it is open.
    fn cache(chunks: Vec<u32>) -> Arc<TryLock<(Vec<u32>, bool)>> {
        Arc::new(TryLock::new((chunks, true)))
    }

    #[test]
    fn a_chunk_is_never_in_two_places_and_never_lost() {
        loom::model(|| {
            let lock = cache(vec![1, 2]);
            let owner = thread::spawn({
                let lock = lock.clone();
                move || {
                    let chunk = lock.try_lock()?.0.pop()?;
                    match lock.try_lock() {
                        Some(mut cache) if cache.1 => cache.0.push(chunk),
                        _ => return Some(chunk),
                    }
                    None
                }
            });
            let drained = std::mem::take(&mut lock.lock().0);
            let kept = owner.join().unwrap_or_else(|_| panic!("the owner panicked"));
            let rest = std::mem::take(&mut lock.lock().0);
            let mut all: Vec<_> = drained.into_iter().chain(kept).chain(rest).collect();
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
        });
    }

    #[test]
    fn a_cache_that_was_closed_stays_empty() {
        loom::model(|| {
            let lock = cache(Vec::new());
            let owner = thread::spawn({
                let lock = lock.clone();
                move || {
                    for chunk in [1, 2] {
                        if let Some(mut cache) = lock.try_lock().filter(|cache| cache.1) {
                            cache.0.push(chunk);
                        }
                    }
                }
            });
            *lock.lock() = (Vec::new(), false);
            assert!(owner.join().is_ok(), "the owner panicked");
            assert!(lock.lock().0.is_empty(), "kept after it was closed");
        });
    }

    #[test]
    fn threads_that_wait_for_the_lock_hold_it_one_at_a_time() {
        loom::model(|| {
            let lock = Arc::new(TryLock::new(0_u32));
            let visitor = thread::spawn({
                let lock = lock.clone();
                move || *lock.lock() += 1
            });
            *lock.lock() += 1;
            assert!(visitor.join().is_ok(), "a visitor panicked");
            assert_eq!(*lock.lock(), 2);
        });
    }
}
