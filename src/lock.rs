//! [`Lock`]: a mutex without poisoning.
//!
//! No lock is held over a log line: the logger may call this library. Only a copy engine's and a ring end's are held over their
//! own waits, and a GPU's over the search for Vulkan. A turn ([`Lock::try_lock_for_a_second`]) is held over work of any kind.
#![forbid(unsafe_code)]

use std::hint;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// A mutex. A panic of a holder leaves it usable.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// Waits with growing pauses, then in the system. The standard library's mutex looks without a pause, so that the lock and
    /// what it guards move between two processors each time. A pool's pair then takes 285 ns with two threads, with these pauses
    /// 123 ns, with one thread 83 ns. `benches/pool.rs` measured that on an AMD EPYC with two processors.
    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        /// Doublings of the pause: from 16 to 512 turns of the processor's spin hint, some 20 us in all.
        const PAUSES: Range<u32> = 4..10;
        for pause in PAUSES {
            (0..1 << pause).for_each(|_| hint::spin_loop());
            if let Some(value) = self.try_lock() {
                return value;
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn to do what several threads need, while others wait for it. `None` after a second: the thread at work may be in a
    /// logger, which waits for this thread or has called back.
    pub(crate) fn try_lock_for_a_second(&self) -> Option<MutexGuard<'_, T>> {
        const PAUSE: Duration = Duration::from_micros(100);
        let end = Instant::now() + Duration::from_secs(1);
        loop {
            match self.try_lock() {
                None if Instant::now() < end => thread::sleep(PAUSE),
                turn => return turn,
            }
        }
    }

    /// None while another thread has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(value)) => Some(value.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: PartialEq, V: Default> Lock<Vec<(K, Weak<V>)>> {
    /// The value of a key: one, as long as anyone has it.
    pub(crate) fn shared(&self, key: K) -> Arc<V> {
        let mut values = self.lock();
        values.retain(|(_, value)| value.strong_count() > 0);
        let known = values.iter().find(|(of, _)| *of == key);
        known.and_then(|(_, value)| value.upgrade()).unwrap_or_else(|| {
            let value = Arc::default();
            values.push((key, Arc::downgrade(&value)));
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

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
    fn one_thread_works_at_a_time_and_its_own_calls_do_not_wait_for_ever() {
        let (lock, at_work) = (Lock::new(()), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let turn = lock.try_lock_for_a_second();
                    assert!(turn.is_some() && at_work.fetch_add(1, Ordering::SeqCst) == 0);
                    at_work.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let _turn = lock.lock();
        assert!(lock.try_lock_for_a_second().is_none());
    }
}
