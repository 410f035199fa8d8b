//! [`SingleFlight`]: one thread makes what several need, while the others wait for it.
#![forbid(unsafe_code)]

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

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
        crate::lock::before_wait();
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

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
