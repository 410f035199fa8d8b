//! The health of a context: its error, and whether it is being destroyed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::code::{Code, Outcome, SUCCESS};

// The time that a destroyed context gives its running kernels.
const PATIENCE: Duration = Duration::from_secs(2);

/// The state of a context that its streams need, even after its destruction.
#[derive(Default)]
pub(crate) struct Health {
    error: AtomicI32,
    closing: OnceLock<Instant>,
}

impl Health {
    /// The error that asynchronous work left behind. It stays until the context is destroyed.
    pub(crate) fn check(&self) -> Outcome {
        match self.error.load(Ordering::Acquire) {
            SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// Records the first error of asynchronous work.
    pub(crate) fn fail(&self, code: Code) {
        let _ = self.error.compare_exchange(SUCCESS, code, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Notes that the context is being destroyed.
    pub(crate) fn close(&self) {
        self.closing.get_or_init(Instant::now);
    }

    /// Whether the context is being destroyed, so that waits for values must end.
    pub(crate) fn closing(&self) -> bool {
        self.closing.get().is_some()
    }

    /// Whether running kernels must end: at once after an error, as on a GPU; after [`PATIENCE`] when the context is
    /// destroyed.
    pub(crate) fn ends_kernels(&self) -> bool {
        self.check().is_err() || self.closing.get().is_some_and(|since| since.elapsed() > PATIENCE)
    }
}
