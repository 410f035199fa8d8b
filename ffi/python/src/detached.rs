//! [`Detached`]: a value that is dropped detached from the interpreter, since the drop may wait.
//!
//! Other Python threads go on meanwhile: one of them may be what the drop waits for.
#![expect(unsafe_code, reason = "takes the value out in the drop")]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::logging;

/// Whether the interpreter ends.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Called at the interpreter's end, when others, such as `pycuda.autoinit`, destroy their contexts: what is dropped in a context
/// of others from then on is left to the end of the process.
#[pyfunction]
pub(crate) fn interpreter_ends() {
    ENDING.store(true, Ordering::Relaxed);
}

/// Whether what is in contexts of others is left to the end of the process.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

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
pub(crate) struct Detached<T: Send> {
    value: ManuallyDrop<T>,
    /// Whether it is in a context that nothing of this package keeps alive.
    in_others_context: bool,
}

impl<T: Send> Detached<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), in_others_context: false }
    }

    /// A value in a context, which this package retains, or which others may destroy at the interpreter's end.
    pub(crate) const fn in_context(value: T, is_retained: bool) -> Self {
        Self { value: ManuallyDrop::new(value), in_others_context: !is_retained }
    }

    /// Whether the value is left to the end of the process.
    pub(crate) fn is_left(&self) -> bool {
        self.in_others_context && is_ending()
    }

    /// The value, for a caller that detaches where need be.
    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither dropped nor used afterwards.
        unsafe { ManuallyDrop::take(&mut this.value) }
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        if self.is_left() {
            return;
        }
        // SAFETY: runs once, and nothing uses the field afterwards.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        detached(|| drop(value));
    }
}
