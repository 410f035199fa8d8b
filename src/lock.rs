//! [`Lock`]: a mutex without poisoning. [`SingleFlight`]: one thread makes what several need, while the others wait for it.
//!
//! Debug builds check that no lock is held over a log line or a wait: the logger, or the thread that is waited for, may call this
//! library. They count the locks that each thread holds, and panic on a violation; those of [`Lock::lock_across_waits`] may be
//! held over waits.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};
use std::time::Duration;

thread_local! {
    /// The locks of this thread, and how many of them may not be held over waits. Counted in debug builds alone.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// A mutex. A panic of a holder leaves it usable.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

/// The value while it is locked.
#[derive(Debug)]
pub(crate) struct LockGuard<'a, T> {
    value: MutexGuard<'a, T>,
    across_waits: bool,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        LockGuard::new(self.0.lock().unwrap_or_else(PoisonError::into_inner), false)
    }

    /// For a value with which its holder waits, one thread at a time: a copy engine, or one end of a ring.
    pub(crate) fn lock_across_waits(&self) -> LockGuard<'_, T> {
        LockGuard::new(self.0.lock().unwrap_or_else(PoisonError::into_inner), true)
    }

    /// None while another thread has it.
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(value) => Some(LockGuard::new(value, false)),
            Err(TryLockError::Poisoned(value)) => Some(LockGuard::new(value.into_inner(), false)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, T> LockGuard<'a, T> {
    #[inline]
    fn new(value: MutexGuard<'a, T>, across_waits: bool) -> Self {
        if cfg!(debug_assertions) {
            let _ = HELD.try_with(|held| held.update(|(all, short)| (all + 1, short + usize::from(!across_waits))));
        }
        Self { value, across_waits }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            let _ =
                HELD.try_with(|held| held.update(|(all, short)| (all - 1, short - usize::from(!self.across_waits))));
        }
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Before a log line: no lock may be held.
#[inline]
#[track_caller]
pub(crate) fn before_log() {
    let all = HELD.try_with(Cell::get).map_or(0, |(all, _)| all);
    debug_assert!(all == 0 || thread::panicking(), "{all} locks are held over a log line");
}

/// Before a wait for the device or another thread: no lock may be held but those for waits.
#[inline]
#[track_caller]
pub(crate) fn before_wait() {
    let short = HELD.try_with(Cell::get).map_or(0, |(_, short)| short);
    debug_assert!(short == 0 || thread::panicking(), "{short} locks are held over a wait");
}

/// Lets one thread do what several need, while the others wait for it. Not a lock: the thread at work may log and call back.
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
    const TIMEOUT: Duration = Duration::from_secs(1);

    /// Waits for the thread at work, unless that is this thread, whose logger has called back.
    pub(crate) fn begin(&self) -> Flight<'_> {
        before_wait();
        let me = thread::current().id();
        let other = |thread: &mut Option<ThreadId>| thread.is_some_and(|thread| thread != me);
        let waited = self.done.wait_timeout_while(self.lock(), Self::TIMEOUT, other);
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_lock_is_held_over_a_log_line_and_over_a_wait_only_one_for_waits() {
        let [short, long] = [Lock::new(0), Lock::new(0)];
        let refused = |check: fn()| catch_unwind(check).is_err();
        let held = short.lock();
        assert_eq!((refused(before_log), refused(before_wait)), (cfg!(debug_assertions), cfg!(debug_assertions)));
        drop(held);
        let held = long.lock_across_waits();
        assert_eq!((refused(before_log), refused(before_wait)), (cfg!(debug_assertions), false));
        drop(held);
        assert!(!refused(before_log));
    }

    #[test]
    fn a_panic_of_the_holder_leaves_the_lock_usable() {
        let lock = Lock::new(1);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let mut value = lock.lock();
            *value = 2;
            panic!("of the holder");
        }));
        assert!(panic.is_err());
        assert_eq!((*lock.lock(), lock.try_lock().map(|value| *value)), (2, None));
    }

    #[test]
    fn one_thread_at_a_time_has_the_turn_and_its_own_calls_do_not_wait() {
        let (flight, at_work) = (SingleFlight::default(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let turn = flight.begin();
                    assert!(turn.taken && at_work.fetch_add(1, Ordering::SeqCst) == 0);
                    assert!(!flight.begin().taken, "the thread that is at work");
                    at_work.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }
}
