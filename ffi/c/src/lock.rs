//! [`lock`]: locks a mutex, which a forked child only tries.
#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex; none in a forked child while a thread of the parent holds it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    if vkgdr_rs::is_forked() {
        mutex.try_lock().ok()
    } else {
        Some(mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
