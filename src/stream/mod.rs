//! CUDA streams that the caller owns, and events: points in their work.
#![expect(unsafe_code, reason = "uses streams and addresses that the caller guarantees")]

#[cfg(feature = "__internal")]
mod copy;

use std::fmt;

use cudarc::driver::sys::{CUcontext, CUevent, CUstream};

use crate::driver::Handle;
use crate::driver::context::Context;
use crate::driver::cuda::cuda;
use crate::report::log_failure;
use crate::{Error, Result};
#[cfg(feature = "__internal")]
pub use {
    crate::driver::stream::FillPattern,
    copy::{CopyPtr, Extent, PitchedPtr},
};

/// A CUDA stream that the caller owns and keeps alive.
///
/// Every method makes the stream's context current for its duration, so that it may be called from any thread, with any
/// context current. Methods that submit work return before it has finished, except that CUDA may wait for copies from
/// and to pageable host memory.
///
/// The unsafe constructors require the stream to outlive the last use of this value and its clones; the safe methods
/// rely on that.
#[derive(Clone, Copy)]
pub struct StreamRef {
    pub(crate) context: Context,
    raw: Handle<CUstream>,
}

impl StreamRef {
    /// A stream of the context that is current on this thread.
    ///
    /// Null and 1 (`CU_STREAM_LEGACY`) are the context's legacy default stream, 2 (`CU_STREAM_PER_THREAD`) is the
    /// default stream of the calling thread.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::ForeignStream`] when the stream belongs to
    /// another context, [`Error::Forked`], and other errors of the driver.
    ///
    /// # Safety
    ///
    /// The stream must outlive the last use of this value and its clones. Events of it must be dropped before its context ends.
    pub unsafe fn in_current_context(raw: CUstream) -> Result<Self> {
        let (context, _) = Context::current()?;
        // SAFETY: live by this function's contract.
        let found = unsafe { cuda()?.stream_context(raw) }?;
        Self::checked(raw, found, context)
    }

    /// A stream of `context`, which need not be current.
    ///
    /// # Safety
    ///
    /// See [`in_current_context`](Self::in_current_context).
    pub(crate) unsafe fn in_context(raw: CUstream, context: Context) -> Result<Self> {
        // SAFETY: live by this function's contract; a default stream belongs to the entered context.
        let found = context.run(|| unsafe { cuda()?.stream_context(raw) }.map(Handle))?;
        Self::checked(raw, found.0, context)
    }

    /// A stream of `context`, if that is the `found` one.
    pub(crate) fn checked(raw: CUstream, found: CUcontext, context: Context) -> Result<Self> {
        if found == context.raw() { Ok(Self { context, raw: Handle(raw) }) } else { Err(Error::ForeignStream) }
    }

    /// The driver's handle.
    #[must_use]
    pub fn raw(&self) -> CUstream {
        self.raw.0
    }

    /// The context that the stream belongs to.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.context.raw()
    }

    /// Waits for all work that was submitted to the stream.
    ///
    /// # Errors
    ///
    /// The driver's errors, including those of earlier, asynchronous work and `CUDA_ERROR_CONTEXT_IS_DESTROYED`, which
    /// every method here may return, and [`Error::Forked`].
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: live by the constructors' contract.
        self.context.run(|| unsafe { cuda()?.stream_synchronize(self.raw()) })
    }

    /// Whether the stream is being captured (`cuStreamIsCapturing`).
    ///
    /// # Errors
    ///
    /// The driver's errors, `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for the legacy default stream during a capture that it would
    /// take part in, and [`Error::Forked`].
    #[doc(hidden)]
    pub fn is_capturing(&self) -> Result<bool> {
        // SAFETY: live by the constructors' contract.
        self.context.run(|| unsafe { cuda()?.stream_is_capturing(self.raw()) })
    }

    /// Records an event after all work that was submitted to the stream so far.
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`Error::Forked`].
    pub fn record(&self) -> Result<Event> {
        self.context.run(|| {
            let event = Event { raw: Handle(cuda()?.create_event()?), context: self.context };
            // SAFETY: the event was just made, the stream is live by the constructors' contract, and their context is current.
            unsafe { cuda()?.record_event(event.raw(), self.raw()) }?;
            Ok(event)
        })
    }

    /// Makes later work of the stream wait for an event, which may belong to another context. Returns at once.
    ///
    /// # Errors
    ///
    /// The driver's errors, `CUDA_ERROR_CONTEXT_IS_DESTROYED` for either context, and [`Error::Forked`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        if event.context != self.context {
            // Fails if it was destroyed.
            event.context.run(|| Ok(()))?;
        }
        // SAFETY: the event lives, since its context does; the stream lives by the constructors' contract.
        self.context.run(|| unsafe { cuda()?.stream_wait_event(self.raw(), event.raw()) })
    }
}

impl fmt::Debug for StreamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRef").field("raw", &self.raw()).field("context", &self.context.raw()).finish()
    }
}

/// An event from [`StreamRef::record`]: complete once all work that was submitted to the stream before it has finished.
///
/// It belongs to the stream's context and may outlive the stream. It may be used and dropped on any thread, with any
/// context current. Dropping it destroys the CUDA event; work that waits for it is not affected. Drop it before its context
/// ends, as the contract of its stream says. A primary context ends with the last handle and the last memory in it. That cannot
/// always be detected, see [`Memory`](crate::Memory#contexts).
pub struct Event {
    /// Destroyed by the drop alone, unless CUDA has destroyed it.
    raw: Handle<CUevent>,
    context: Context,
}

impl Event {
    /// Whether the event is complete. Does not wait.
    ///
    /// # Errors
    ///
    /// The driver's errors, including those of earlier, asynchronous work, `CUDA_ERROR_CONTEXT_IS_DESTROYED`, and
    /// [`Error::Forked`].
    pub fn is_complete(&self) -> Result<bool> {
        // SAFETY: the event lives, since its context does.
        self.context.run(|| unsafe { cuda()?.event_is_complete(self.raw()) })
    }

    /// Waits until the event is complete.
    ///
    /// # Errors
    ///
    /// The errors of [`is_complete`](Self::is_complete).
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: as in `is_complete`.
        self.context.run(|| unsafe { cuda()?.event_synchronize(self.raw()) })
    }

    /// The driver's handle, valid until this value is dropped or its context is destroyed.
    #[must_use]
    pub fn raw(&self) -> CUevent {
        self.raw.0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // If the context cannot be entered, the driver destroys the event with any context current.
        let entered = self.context.enter();
        if entered.as_ref().is_err_and(Error::context_is_gone) {
            // CUDA destroyed it with the context.
            return;
        }
        // SAFETY: destroyed only here, once.
        let destroyed = cuda().and_then(|cuda| unsafe { cuda.destroy_event(self.raw()) });
        log_failure("a CUDA event", destroyed);
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("raw", &self.raw()).field("context", &self.context.raw()).finish()
    }
}
