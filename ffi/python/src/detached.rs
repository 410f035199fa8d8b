//! [`Detached`]: a value that is dropped detached from the interpreter, since the drop may wait.
//!
//! Other Python threads go on meanwhile: one of them may be what the drop waits for.
#![expect(unsafe_code, reason = "takes the value out in the drop")]

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::logging;

/// Runs `work`, detached from the interpreter where this thread is attached.
pub(crate) fn detached(work: impl FnOnce() + Send) {
    let mut work = Some(work);
    logging::attached(|py| py.detach(|| work.take().map(|work| work())));
    if let Some(work) = work {
        work();
    }
}

/// A value whose drop may wait: it is dropped detached from the interpreter.
///
/// Not to be dropped under a lock that attached threads take.
pub(crate) struct Detached<T: Send>(ManuallyDrop<T>);

impl<T: Send> Detached<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// The value, for a caller that detaches where need be.
    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither dropped nor used afterwards.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        // SAFETY: runs once, and nothing uses the field afterwards.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        detached(|| drop(value));
    }
}
