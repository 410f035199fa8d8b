//! [`Lock`]: a mutex without poisoning. Debug builds check that none is held over a log line or a wait.
//!
//! The logger, or the thread that is waited for, may call this library. Debug builds track the locks that each thread
//! holds, and panic on a violation; those of [`Lock::lock_across_waits`] may be held over waits.
#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
#[cfg(debug_assertions)]
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex. A panic of a holder leaves it usable.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

/// The value while it is locked.
#[derive(Debug)]
pub(crate) struct LockGuard<'a, T> {
    value: MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    #[track_caller]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        LockGuard { value, _held: Held::new(Across::Nothing) }
    }

    /// For a value with which its holder waits, one thread at a time: a copy engine, or one end of a ring.
    #[track_caller]
    pub(crate) fn lock_across_waits(&self) -> LockGuard<'_, T> {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        LockGuard { value, _held: Held::new(Across::Waits) }
    }

    /// None while another thread has it.
    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        let value = match self.0.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(value)) => value.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(LockGuard { value, _held: Held::new(Across::Nothing) })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
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

/// The events that a lock may be held over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Across {
    Nothing,
    Waits,
}

/// Before a log line: no lock may be held.
#[inline]
#[track_caller]
pub(crate) fn before_log() {
    check(&[Across::Nothing, Across::Waits], "over a log line");
}

/// Before a wait for the device or another thread: no lock may be held but those for waits.
#[inline]
#[track_caller]
pub(crate) fn before_wait() {
    check(&[Across::Nothing], "over a wait");
}

#[cfg(debug_assertions)]
#[track_caller]
fn check(refused: &[Across], what: &str) {
    let held: Vec<_> = held::all().into_iter().filter(|(_, across)| refused.contains(across)).collect();
    assert!(held.is_empty() || std::thread::panicking(), "locks are held {what}: {held:?}");
}

#[cfg(not(debug_assertions))]
#[inline]
fn check(_: &[Across], _: &str) {}

/// An entry in this thread's list of locks, in debug builds.
#[derive(Debug)]
struct Held(#[cfg(debug_assertions)] &'static Location<'static>);

#[cfg(not(debug_assertions))]
impl Held {
    #[inline]
    fn new(_: Across) -> Self {
        Self()
    }
}

#[cfg(debug_assertions)]
impl Held {
    #[track_caller]
    fn new(across: Across) -> Self {
        let place = Location::caller();
        held::push(place, across);
        Self(place)
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        held::remove(self.0);
    }
}

/// The locks of this thread. Nothing is known while the thread ends.
#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;
    use std::panic::Location;

    use super::Across;

    type Entry = (&'static Location<'static>, Across);

    thread_local! {
        static HELD: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn push(place: &'static Location<'static>, across: Across) {
        let _ = HELD.try_with(|held| held.borrow_mut().push((place, across)));
    }

    pub(super) fn remove(place: &'static Location<'static>) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(last) = held.iter().rposition(|(known, _)| *known == place) {
                held.remove(last);
            }
        });
    }

    pub(super) fn all() -> Vec<Entry> {
        HELD.try_with(|held| held.borrow().clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_lock_that_is_held_over_a_log_line_or_a_wait_is_named() {
        if !cfg!(debug_assertions) {
            return;
        }
        let lock = Lock::new(0);
        let over = |check: fn()| {
            let _held = lock.lock();
            catch_unwind(check)
                .err()
                .and_then(|panic| panic.downcast::<String>().ok())
                .map_or_else(String::new, |text| *text)
        };
        assert!(over(before_log).contains("lock.rs"), "{}", over(before_log));
        assert!(over(before_wait).contains("over a wait"));
        before_log();
        before_wait();
    }

    #[test]
    fn a_lock_for_waits_may_be_held_over_a_wait_and_over_no_log_line() {
        let lock = Lock::new(0);
        let held = lock.lock_across_waits();
        before_wait();
        assert!(!cfg!(debug_assertions) || catch_unwind(before_log).is_err());
        drop(held);
        before_log();
    }

    #[test]
    fn a_panic_of_the_holder_leaves_the_lock_usable() {
        let lock = Lock::new(1);
        let panic = catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut value = lock.lock();
            *value = 2;
            panic!("of the holder");
        }));
        assert!(panic.is_err());
        assert_eq!((*lock.lock(), lock.try_lock().map(|value| *value)), (2, None));
    }
}
