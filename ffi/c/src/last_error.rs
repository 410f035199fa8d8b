//! Storage for this thread's last error.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;
use crate::status::vkgdr_status as Status;

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Whether any thread ever had a last error. Checked first: thread-local storage is slow to access in a shared library.
static EVER: AtomicBool = AtomicBool::new(false);

/// Sets this thread's last error, and returns its status. Its text is made when it is asked for: a poll may fail often.
#[cold]
pub(crate) fn set(failure: Failure) -> Status {
    let status = failure.status();
    EVER.store(true, Ordering::Relaxed);
    replace(Some(failure));
    status
}

/// Clears this thread's last error. Most calls find none to clear, which takes nanoseconds.
#[inline]
pub(crate) fn clear() {
    if EVER.load(Ordering::Relaxed) && LAST.try_with(|slot| slot.borrow().is_some()).unwrap_or(false) {
        replace(None);
    }
}

#[cold]
fn replace(last: Option<Failure>) {
    // A thread that is exiting has no last error any more.
    let _ = LAST.try_with(|slot| slot.replace(last));
}

/// Passes this thread's last error to `read`. Returns `None` without an error, and while the thread exits.
pub(crate) fn with<T>(read: impl FnOnce(&Failure) -> T) -> Option<T> {
    LAST.try_with(|slot| slot.borrow().as_ref().map(read)).ok().flatten()
}
