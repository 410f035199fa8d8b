//! [`KnownContext`]: a context whose destruction can be detected, for packages that wrap this crate.
#![forbid(unsafe_code)]

use super::context::{Context, Entered};
use super::{anchor, fork};
use crate::Result;

/// A context whose destruction can be detected, for objects that packages which wrap this crate make in it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct KnownContext(Context);

impl KnownContext {
    /// The context that is current on this thread.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, other errors of the driver, and
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn current() -> Result<Self> {
        let context = Context::current()?;
        anchor::keep(context)?;
        Ok(Self(context))
    }

    /// Runs `work` with the context current, unless that was destroyed, CUDA has shut down with the process, or this is a forked
    /// child. If it cannot be made current for another reason, which may pass, runs `work` in the context that is current.
    pub fn run_unless_destroyed(&self, work: impl FnOnce()) {
        if fork::is_forked() {
            return;
        }
        let entered = self.0.try_enter();
        if !matches!(entered, Ok(Entered::Destroyed(_) | Entered::ShutDown(_))) {
            work();
        }
    }
}
