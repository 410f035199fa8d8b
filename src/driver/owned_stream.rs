//! CUDA streams that this crate creates.
#![expect(unsafe_code, reason = "passes its live handle and the callers' addresses to the driver")]

use std::ptr::NonNull;

use cudarc::driver::sys::{CUdeviceptr, CUevent, CUstream};

use super::cuda::cuda;
use super::fill_pattern::FillPattern;
use super::{Handle, fork};
use crate::Result;
use crate::report::report;

/// A stream of the context that was current when it was created, not ordered with any other stream. That context must
/// be current in every call.
#[derive(Debug)]
pub(crate) struct OwnedStream {
    /// `None` once it was destroyed or abandoned.
    raw: Option<Handle<CUstream>>,
}

impl OwnedStream {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { raw: Some(Handle(cuda()?.stream_create()?)) })
    }

    fn raw(&self) -> CUstream {
        // Null is never used: `raw` is None only after `abandon` or in `drop`.
        self.raw.map_or(std::ptr::null_mut(), |raw| raw.0)
    }

    /// # Safety
    ///
    /// `len` bytes must be valid at both addresses until the stream has passed the work.
    pub(crate) unsafe fn copy_to_device(&self, to: CUdeviceptr, from: NonNull<u8>, len: usize) -> Result<()> {
        // SAFETY: by this method's contract, and the stream is live.
        unsafe { cuda()?.copy_host_to_device(to, from.as_ptr(), len, self.raw()) }
    }

    /// # Safety
    ///
    /// The contract of [`copy_to_device`](Self::copy_to_device).
    pub(crate) unsafe fn copy_to_host(&self, to: NonNull<u8>, from: CUdeviceptr, len: usize) -> Result<()> {
        // SAFETY: by this method's contract, and the stream is live.
        unsafe { cuda()?.copy_device_to_host(to.as_ptr(), from, len, self.raw()) }
    }

    /// # Safety
    ///
    /// `count` values must be valid at `to` until the stream has passed the work.
    pub(crate) unsafe fn fill(&self, to: CUdeviceptr, pattern: FillPattern, count: usize) -> Result<()> {
        let (cuda, stream) = (cuda()?, self.raw());
        match pattern {
            // SAFETY: by this method's contract, and the stream is live.
            FillPattern::One(value) => unsafe { cuda.fill_u8(to, value, count, stream) },
            // SAFETY: as above.
            FillPattern::Two(value) => unsafe { cuda.fill_u16(to, value, count, stream) },
            // SAFETY: as above.
            FillPattern::Four(value) => unsafe { cuda.fill_u32(to, value, count, stream) },
        }
    }

    /// Makes later work of the stream wait for an event.
    ///
    /// # Safety
    ///
    /// The event must be live.
    pub(crate) unsafe fn wait(&self, event: CUevent) -> Result<()> {
        // SAFETY: the stream is live, and the event by this method's contract.
        unsafe { cuda()?.stream_wait_event(self.raw(), event) }
    }

    /// Records an event after the work of the stream so far.
    ///
    /// # Safety
    ///
    /// The event must be live, and of the stream's context.
    pub(crate) unsafe fn record(&self, event: CUevent) -> Result<()> {
        // SAFETY: the stream is live, and the event by this method's contract.
        unsafe { cuda()?.event_record(event, self.raw()) }
    }

    /// Waits for all work of the stream.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live.
        unsafe { cuda()?.stream_synchronize(self.raw()) }
    }

    /// Forgets the stream, after CUDA destroyed it with its context.
    pub(crate) fn abandon(&mut self) {
        self.raw = None;
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        if fork::is_forked() {
            return;
        }
        // SAFETY: the stream is live, and this value is its only owner.
        if let Err(error) = cuda().and_then(|cuda| unsafe { cuda.stream_destroy(raw.0) }) {
            report!(Warn, "releasing a CUDA stream: {error}");
        }
    }
}
