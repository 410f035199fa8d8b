#![expect(unsafe_code, reason = "waits by futex, which tells of signals")]
//! Locks that survive a panic: the tables stay usable for every later call. A condition whose waits notice signals.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks `mutex`, whether or not a thread panicked while it held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Something may have changed, or the time is over.
    Changed,
    /// A signal handler ran in the waiting thread.
    Signal,
}

/// A condition variable. Unlike the standard library's, its waits end when a signal handler has run.
#[derive(Default)]
pub(crate) struct Condition {
    changes: AtomicU32,
}

impl Condition {
    /// Wakes all threads that wait. What they wait for was changed under their mutex.
    pub(crate) fn notify_all(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        let all = i32::MAX;
        // SAFETY: the word is live, and nothing else is read.
        unsafe {
            libc::syscall(libc::SYS_futex, self.changes.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, all)
        };
    }

    /// Unlocks the mutex, waits, and locks it again. May end without a reason.
    pub(crate) fn wait<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        time: Option<Duration>,
    ) -> (MutexGuard<'a, T>, Wake) {
        // Read under the mutex, so that every later change is noticed.
        let changes = self.changes.load(Ordering::Acquire);
        drop(guard);
        // Without a time the kernel would resume the wait after handlers with SA_RESTART.
        let time = time.unwrap_or(Duration::from_secs(3600));
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(time.subsec_nanos()),
        };
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the time live through the call.
        let failed =
            unsafe { libc::syscall(libc::SYS_futex, self.changes.as_ptr(), operation, changes, ptr::from_ref(&time)) }
                != 0;
        let signal = failed && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        (lock(mutex), if signal { Wake::Signal } else { Wake::Changed })
    }
}
