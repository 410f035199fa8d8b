//! CUDA streams that this crate creates.
#![expect(unsafe_code, reason = "passes its live handle and the callers' addresses to the driver")]

use std::ptr::NonNull;

use cudarc::driver::sys::{CUdeviceptr, CUstream};

use super::cuda::{FillPattern, cuda};
use super::{Handle, fork};
use crate::Result;
use crate::report::report;

/// A stream of the context that was current when it was created, not ordered with any other stream. That context must
/// be current in every call.
#[derive(Debug)]
pub(crate) struct OwnedStream {
    raw: Handle<CUstream>,
}

impl OwnedStream {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { raw: Handle(cuda()?.stream_create()?) })
    }

    const fn raw(&self) -> CUstream {
        self.raw.0
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
    pub(crate) unsafe fn fill(&self, to: CUdeviceptr, value: FillPattern, count: usize) -> Result<()> {
        // SAFETY: by this method's contract, and the stream is live.
        unsafe { cuda()?.fill(to, value, count, self.raw()) }
    }

    /// Waits for all work of the stream.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live.
        unsafe { cuda()?.stream_synchronize(self.raw()) }
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        // SAFETY: the stream is live, and this value is its only owner.
        if let Err(error) = cuda().and_then(|cuda| unsafe { cuda.stream_destroy(self.raw()) }) {
            report!(Warn, "releasing a CUDA stream: {error}");
        }
    }
}
