//! The CUDA driver's functions on streams and events, and copies and fills on streams.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUevent, CUstream};

use super::{Cuda, call};
use crate::Result;
use crate::error::CudaCode;

/// For events that only order.
const EVENT_DISABLE_TIMING: c_uint = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
/// For streams that do not wait for the legacy default stream.
const STREAM_NON_BLOCKING: c_uint = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
const CAPTURE_STATUS_NONE: c_uint = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint;
const CAPTURE_MODE_RELAXED: c_uint = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;
const WAIT_DEFAULT: c_uint = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT as c_uint;

impl Cuda {
    /// A stream of the current context that is not ordered with any other.
    pub(crate) fn stream_create(&self) -> Result<CUstream> {
        let mut stream = ptr::null_mut();
        call!(self, cuStreamCreate(&raw mut stream, STREAM_NON_BLOCKING))?;
        Ok(stream)
    }

    /// Runs `work` in relaxed capture mode: its calls are not part of any stream capture. While a capture in global
    /// mode is active, CUDA would otherwise refuse some of them and invalidate the capture
    /// (`cuThreadExchangeStreamCaptureMode`).
    pub(crate) fn outside_captures<T>(&self, work: impl FnOnce() -> T) -> T {
        let _before = CaptureMode::exchange(self, CAPTURE_MODE_RELAXED);
        work()
    }

    /// Runs `release`, and again outside of captures if one forbids it: nothing is leaked, although the first call has made that
    /// capture invalid.
    #[inline]
    pub(super) fn despite_captures(&self, release: impl Fn() -> Result<()>) -> Result<()> {
        match release() {
            Err(error) if error.is_of_capture() => self.outside_captures(release),
            result => result,
        }
    }

    /// # Safety
    ///
    /// `stream` must be live and not be used afterwards.
    pub(crate) unsafe fn stream_destroy(&self, stream: CUstream) -> Result<()> {
        call!(self, cuStreamDestroy_v2(stream))
    }

    /// # Safety
    ///
    /// `stream` must be a live stream, or one of the default streams of the current context.
    pub(crate) unsafe fn stream_context(&self, stream: CUstream) -> Result<CUcontext> {
        let mut context = ptr::null_mut();
        call!(self, cuStreamGetCtx(stream, &raw mut context))?;
        Ok(context)
    }

    /// Whether a capture records the stream's work, or did until it became invalid. Unlike a question about the work itself, it
    /// leaves the capture valid (`cuStreamIsCapturing`).
    ///
    /// # Safety
    ///
    /// As for [`Self::stream_context`].
    pub(crate) unsafe fn stream_is_capturing(&self, stream: CUstream) -> Result<bool> {
        let Some(is_capturing) = self.table.cuStreamIsCapturing else { return Ok(false) };
        let mut status = CAPTURE_STATUS_NONE;
        // SAFETY: `status` is a live local, and the stream is live by this method's contract.
        let code = unsafe { is_capturing(stream, &raw mut status) };
        self.check("cuStreamIsCapturing", code)?;
        Ok(status != CAPTURE_STATUS_NONE)
    }

    /// # Safety
    ///
    /// The contract of [`Self::stream_context`].
    pub(crate) unsafe fn stream_synchronize(&self, stream: CUstream) -> Result<()> {
        crate::lock::before_wait();
        call!(self, cuStreamSynchronize(stream))
    }

    pub(crate) fn event_create(&self) -> Result<CUevent> {
        let mut event = ptr::null_mut();
        call!(self, cuEventCreate(&raw mut event, EVENT_DISABLE_TIMING))?;
        Ok(event)
    }

    /// # Safety
    ///
    /// `event` must be live, and `stream` as for [`Self::stream_context`].
    pub(crate) unsafe fn event_record(&self, event: CUevent, stream: CUstream) -> Result<()> {
        call!(self, cuEventRecord(event, stream))
    }

    /// Whether the work before the event is complete.
    ///
    /// # Safety
    ///
    /// `event` must be live.
    pub(crate) unsafe fn event_is_complete(&self, event: CUevent) -> Result<bool> {
        // SAFETY: the event is live by this method's contract.
        match unsafe { (self.table.cuEventQuery)(event) } {
            CudaCode::NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// # Safety
    ///
    /// `event` must be live.
    pub(crate) unsafe fn event_synchronize(&self, event: CUevent) -> Result<()> {
        crate::lock::before_wait();
        call!(self, cuEventSynchronize(event))
    }

    /// # Safety
    ///
    /// `event` must be live and not be used afterwards.
    pub(crate) unsafe fn event_destroy(&self, event: CUevent) -> Result<()> {
        call!(self, cuEventDestroy_v2(event))
    }

    /// Makes later work of the stream wait for the work before the event.
    ///
    /// # Safety
    ///
    /// `event` must be live, and `stream` as for [`Self::stream_context`].
    pub(crate) unsafe fn stream_wait_event(&self, stream: CUstream, event: CUevent) -> Result<()> {
        call!(self, cuStreamWaitEvent(stream, event, WAIT_DEFAULT))
    }

    /// # Safety
    ///
    /// `len` bytes must be valid at both addresses until the stream has passed the copy, and `stream` as for
    /// [`Self::stream_context`].
    pub(crate) unsafe fn copy_host_to_device(
        &self,
        to: CUdeviceptr,
        from: *const u8,
        len: usize,
        stream: CUstream,
    ) -> Result<()> {
        call!(self, cuMemcpyHtoDAsync_v2(to, from.cast::<c_void>(), len, stream))
    }

    /// # Safety
    ///
    /// The contract of [`Self::copy_host_to_device`].
    pub(crate) unsafe fn copy_device_to_host(
        &self,
        to: *mut u8,
        from: CUdeviceptr,
        len: usize,
        stream: CUstream,
    ) -> Result<()> {
        call!(self, cuMemcpyDtoHAsync_v2(to.cast::<c_void>(), from, len, stream))
    }

    /// # Safety
    ///
    /// The contract of [`Self::copy_host_to_device`].
    pub(crate) unsafe fn copy_on_device(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        len: usize,
        stream: CUstream,
    ) -> Result<()> {
        call!(self, cuMemcpyDtoDAsync_v2(to, from, len, stream))
    }

    /// Copies between two contexts' memory, each address with its context.
    ///
    /// # Safety
    ///
    /// The contract of [`Self::copy_host_to_device`], and both contexts must be live.
    pub(crate) unsafe fn copy_between_contexts(
        &self,
        (to, to_context): (CUdeviceptr, CUcontext),
        (from, from_context): (CUdeviceptr, CUcontext),
        len: usize,
        stream: CUstream,
    ) -> Result<()> {
        call!(self, cuMemcpyPeerAsync(to, to_context, from, from_context, len, stream))
    }

    /// Copies rows and slices.
    ///
    /// # Safety
    ///
    /// The bytes that `copy` describes must be valid on both sides until the stream has passed the copy, and `stream`
    /// be as for [`Self::stream_context`].
    pub(crate) unsafe fn copy_3d(&self, copy: &CUDA_MEMCPY3D, stream: CUstream) -> Result<()> {
        call!(self, cuMemcpy3DAsync_v2(ptr::from_ref(copy), stream))
    }

    /// Repeats a value.
    ///
    /// # Safety
    ///
    /// `count` values must be valid at `to` until the stream has passed the fill, and `stream` be as for
    /// [`Self::stream_context`].
    pub(crate) unsafe fn fill(
        &self,
        to: CUdeviceptr,
        value: FillPattern,
        count: usize,
        stream: CUstream,
    ) -> Result<()> {
        match value {
            FillPattern::One(value) => call!(self, cuMemsetD8Async(to, value, count, stream)),
            FillPattern::Two(value) => call!(self, cuMemsetD16Async(to, value, count, stream)),
            FillPattern::Four(value) => call!(self, cuMemsetD32Async(to, value, count, stream)),
        }
    }
}

/// A value that CUDA can fill memory with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillPattern {
    One(u8),
    Two(u16),
    Four(u32),
}

impl FillPattern {
    /// The smallest value that repeats to `pattern`; `None` if CUDA cannot fill with it at this address, which must be a
    /// multiple of the value's size (`cuMemsetD16Async`, `cuMemsetD32Async`).
    pub(crate) fn of(pattern: &[u8], address: CUdeviceptr) -> Option<Self> {
        let one = || repeated(pattern).map(|[byte]| Self::One(byte));
        let two = || repeated(pattern).map(u16::from_ne_bytes).map(Self::Two);
        let four = || repeated(pattern).map(u32::from_ne_bytes).map(Self::Four);
        one().or_else(two).or_else(four).filter(|value| address.is_multiple_of(value.size() as u64))
    }

    /// The size in bytes.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Two(_) => 2,
            Self::Four(_) => 4,
        }
    }
}

/// The bytes that repeat to the pattern.
fn repeated<const SIZE: usize>(pattern: &[u8]) -> Option<[u8; SIZE]> {
    let (units, rest) = pattern.as_chunks();
    let first = units.first()?;
    (rest.is_empty() && units.iter().all(|unit| unit == first)).then_some(*first)
}

/// The capture mode that the thread had before; restored on drop.
struct CaptureMode<'a> {
    cuda: &'a Cuda,
    mode: c_uint,
}

impl<'a> CaptureMode<'a> {
    /// Sets the thread's mode; `None` where the driver has no modes, or refuses.
    fn exchange(cuda: &'a Cuda, mut mode: c_uint) -> Option<Self> {
        let exchange = cuda.table.cuThreadExchangeStreamCaptureMode?;
        // SAFETY: `mode` is a live local, and the mode is this thread's alone.
        let code = unsafe { exchange(&mut mode) };
        cuda.check("cuThreadExchangeStreamCaptureMode", code).ok()?;
        Some(Self { cuda, mode })
    }
}

impl Drop for CaptureMode<'_> {
    fn drop(&mut self) {
        if let Some(exchange) = self.cuda.table.cuThreadExchangeStreamCaptureMode {
            // SAFETY: as in `exchange`. A failure leaves the relaxed mode, which forbids nothing.
            let _ = unsafe { exchange(&mut self.mode) };
        }
    }
}
