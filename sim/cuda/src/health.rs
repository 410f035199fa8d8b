//! The health of a context: its error, and whether it is being destroyed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::code::{Code, Outcome, SUCCESS};

// The time that a destroyed context gives its running kernels.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a context that its streams need, even after its destruction.
#[derive(Default)]
pub(crate) struct Health {
    error: AtomicI32,
    closing: OnceLock<Instant>,
    /// The number of waits that end the work.
    ending: AtomicU32,
}

/// A wait that ends the context's work, until it is dropped.
pub(crate) struct Ending<'a>(&'a Health);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ending.fetch_sub(1, Ordering::AcqRel);
    }
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

    /// Ends kernels and waits for values without an error, those that run and those that start while the result lives.
    pub(crate) fn end_work(&self) -> Ending<'_> {
        self.ending.fetch_add(1, Ordering::AcqRel);
        Ending(self)
    }

    /// Whether the program's wait ends the work.
    pub(crate) fn ending(&self) -> bool {
        self.ending.load(Ordering::Acquire) > 0
    }

    /// Whether waits for values, semaphores and events of other processes must end: at once after an error, since what
    /// they wait for may come from work that is skipped; when the program is interrupted; when the context is destroyed.
    pub(crate) fn ends_waits(&self) -> bool {
        self.check().is_err() || self.ending() || self.closing.get().is_some()
    }

    /// Whether running kernels must end: at once after an error, as on a GPU, and when the program is interrupted; after
    /// [`TIMEOUT`] when the context is destroyed.
    pub(crate) fn ends_kernels(&self) -> bool {
        self.check().is_err() || self.ending() || self.closing.get().is_some_and(|since| since.elapsed() > TIMEOUT)
    }
}
