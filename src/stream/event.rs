//! [`Event`]: a point in a stream's work that can be queried and waited for.
#![forbid(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;

use cudarc::driver::sys::{CUcontext, CUevent};

use crate::driver::context::{Context, Entered};
use crate::driver::raw_event::RawEvent;
use crate::error::CudaCode;
use crate::report::report;
use crate::{Error, Result};

/// An event from [`StreamRef::record`](crate::StreamRef::record): complete once all work that was submitted to the
/// stream before it has finished.
///
/// It belongs to the stream's context and may outlive the stream. It may be used and dropped on any thread, with any
/// context current. Dropping it destroys the CUDA event; work that waits for it is not affected. Drop it before its context
/// is destroyed: the destruction cannot always be detected, see [`Memory`](crate::Memory#contexts).
pub struct Event {
    event: RawEvent,
    context: Context,
}

impl Event {
    pub(crate) fn new(event: RawEvent, context: Context) -> Self {
        Self { event, context }
    }

    /// Whether the event is complete. Does not wait.
    ///
    /// # Errors
    ///
    /// The driver's errors, including those of earlier, asynchronous work, `CUDA_ERROR_CONTEXT_IS_DESTROYED`, and
    /// [`Error::Forked`].
    pub fn is_complete(&self) -> Result<bool> {
        self.context.run(|| self.event.is_complete())
    }

    /// Whether the event is complete or never will be: its context was destroyed or is broken, or this process is a
    /// forked child. False for temporary errors, such as those during a stream capture.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_complete().unwrap_or_else(|error| ends(&error))
    }

    /// As [`is_over`](Self::is_over), for what waits for the event: logs a temporary error.
    pub(crate) fn releases(&self) -> bool {
        self.is_complete().unwrap_or_else(|error| {
            report!(Debug, "a deferred free: {error}");
            ends(&error)
        })
    }

    /// Waits until the event is complete.
    ///
    /// # Errors
    ///
    /// The errors of [`is_complete`](Self::is_complete).
    pub fn synchronize(&self) -> Result<()> {
        self.context.run(|| self.event.synchronize())
    }

    /// The driver's handle, valid until this value is dropped or its context is destroyed.
    #[must_use]
    pub fn raw(&self) -> CUevent {
        self.event.raw()
    }

    /// The context that the event belongs to.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.context.raw()
    }

    /// Fails if the event's context was destroyed. `here` is not checked: the caller enters it next.
    pub(super) fn check_alive_from(&self, here: Context) -> Result<()> {
        if self.context == here { Ok(()) } else { self.context.run(|| Ok(())) }
    }
}

/// Whether an event that cannot be asked because of this error never will be complete.
fn ends(error: &Error) -> bool {
    const ENDED: &[i32] = &[CudaCode::DEINITIALIZED, CudaCode::INVALID_CONTEXT, CudaCode::CONTEXT_IS_DESTROYED];
    let ended = error.cuda_code().is_some_and(|code| ENDED.contains(&code));
    ended || error.is_fatal_to_context() || matches!(error, Error::Forked)
}

impl Drop for Event {
    fn drop(&mut self) {
        let event = std::mem::take(&mut self.event);
        match self.context.try_enter() {
            // CUDA destroyed it with the context.
            Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => {
                let _ = ManuallyDrop::new(event);
            }
            // If the context cannot be entered, the driver destroys the event with any context current.
            Ok(Entered::Current(_)) | Err(_) => drop(event),
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("raw", &self.raw()).field("context", &self.context()).finish()
    }
}
