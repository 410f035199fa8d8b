//! [`RawEvent`]: a CUDA event without timing.
#![expect(unsafe_code, reason = "hands its live handle to the driver")]

use cudarc::driver::sys::{CUevent, CUstream};

use super::cuda::cuda;
use super::{Handle, fork};
use crate::Result;
use crate::report::report;

/// An event that is recorded on a stream. It belongs to the context that was current when it was created. The default
/// is an event that was destroyed.
#[derive(Debug, Default)]
pub(crate) struct RawEvent {
    /// `None` once it was destroyed.
    raw: Option<Handle<CUevent>>,
}

impl RawEvent {
    /// Records an event after all work that was submitted to `stream` so far.
    ///
    /// # Safety
    ///
    /// `stream` must be a live stream of the current context.
    pub(crate) unsafe fn record(stream: CUstream) -> Result<Self> {
        let cuda = cuda()?;
        let raw = cuda.event_create()?;
        let event = Self { raw: Some(Handle(raw)) };
        // SAFETY: the event was just made, and the stream is live by this function's contract.
        unsafe { cuda.event_record(raw, stream) }?;
        Ok(event)
    }

    /// The driver's handle; null once it was destroyed.
    pub(crate) fn raw(&self) -> CUevent {
        self.raw.map_or(std::ptr::null_mut(), |raw| raw.0)
    }

    /// Whether the stream has passed the event. Does not wait.
    pub(crate) fn is_complete(&self) -> Result<bool> {
        // SAFETY: the event is live.
        self.raw.map_or(Ok(true), |raw| unsafe { cuda()?.event_is_complete(raw.0) })
    }

    /// Waits until the stream has passed the event.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is live.
        self.raw.map_or(Ok(()), |raw| unsafe { cuda()?.event_synchronize(raw.0) })
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        if fork::is_forked() {
            return;
        }
        // SAFETY: the event is live, and this value is its only owner.
        if let Err(error) = cuda().and_then(|cuda| unsafe { cuda.event_destroy(raw.0) }) {
            report!(Warn, "releasing a CUDA event: {error}");
        }
    }
}
