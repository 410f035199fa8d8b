//! CUDA streams that the caller owns, and events: points in their work.
#![expect(unsafe_code, reason = "uses streams and addresses that the caller guarantees")]

#[cfg(feature = "__internal")]
mod copy;
mod event;

use std::fmt;

use cudarc::driver::sys::{CUcontext, CUstream};

use crate::driver::Handle;
use crate::driver::context::Context;
use crate::driver::cuda::cuda;
use crate::driver::raw_event::RawEvent;
use crate::{Error, Result};
#[cfg(feature = "__internal")]
pub use copy::{CopyPtr, Extent, PitchedPtr};
pub use event::Event;

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
    /// The stream must outlive the last use of this value and its clones.
    pub unsafe fn in_current_context(raw: CUstream) -> Result<Self> {
        let context = Context::current()?;
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

    fn checked(raw: CUstream, found: CUcontext, context: Context) -> Result<Self> {
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

    /// Records an event after all work that was submitted to the stream so far.
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`Error::Forked`].
    pub fn record(&self) -> Result<Event> {
        // SAFETY: live by the constructors' contract, and its context is current.
        let event = self.context.run(|| unsafe { RawEvent::record(self.raw()) })?;
        Ok(Event::new(event, self.context))
    }

    /// Makes later work of the stream wait for an event, which may belong to another context. Returns at once.
    ///
    /// # Errors
    ///
    /// The driver's errors, `CUDA_ERROR_CONTEXT_IS_DESTROYED` for either context, and [`Error::Forked`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        event.check_alive_from(self.context)?;
        // SAFETY: the event lives, since its context does; the stream lives by the constructors' contract.
        self.context.run(|| unsafe { cuda()?.stream_wait_event(self.raw(), event.raw()) })
    }
}

impl fmt::Debug for StreamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRef").field("raw", &self.raw()).field("context", &self.context()).finish()
    }
}
