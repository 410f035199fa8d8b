//! Streams.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream, CUstream_flags, CUstream_st};

use super::context::Raw;
use super::gate::{self, Gate};
use crate::codes;
use crate::driver::{call, check, error_name, report};

/// `CU_STREAM_LEGACY`, an explicit handle of the default stream: `((CUstream)0x1)` in cuda.h, missing in cudarc.
pub const LEGACY_STREAM: CUstream = without_provenance_mut(1);
/// `CU_STREAM_PER_THREAD`: each thread's own default stream. `((CUstream)0x2)` in cuda.h.
pub const PER_THREAD_STREAM: CUstream = without_provenance_mut(2);
const NON_BLOCKING: u32 = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
const DISABLE_TIMING: u32 = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;

/// A stream of the current context, destroyed on drop.
///
/// It does not synchronise with the legacy default stream (`CU_STREAM_NON_BLOCKING`), so that synchronous copies work
/// while it is blocked.
#[derive(Debug)]
pub struct Stream(Raw<CUstream_st>);

impl Stream {
    /// Creates a stream in the current context.
    ///
    /// # Panics
    /// When the driver refuses, for instance because no context is current.
    #[must_use]
    #[track_caller]
    pub fn create() -> Self {
        let mut raw: CUstream = null_mut();
        // SAFETY: `raw` is a valid output.
        check("cuStreamCreate", unsafe { call::cuStreamCreate(&raw mut raw, NON_BLOCKING) });
        Self(Raw(raw))
    }

    /// The driver's handle.
    #[must_use]
    pub fn raw(&self) -> CUstream {
        self.0.0
    }

    /// Waits until the stream's work is done.
    ///
    /// # Panics
    /// When the driver reports an error.
    #[track_caller]
    pub fn synchronize(&self) {
        // SAFETY: the stream lives as long as `self`.
        check("cuStreamSynchronize", unsafe { call::cuStreamSynchronize(self.raw()) });
    }

    /// Whether all of the stream's work is done.
    ///
    /// # Panics
    /// When the driver reports an error.
    #[must_use]
    #[track_caller]
    pub fn is_idle(&self) -> bool {
        // SAFETY: the stream lives as long as `self`.
        let code = unsafe { call::cuStreamQuery(self.raw()) };
        assert!(code == 0 || code == codes::NOT_READY, "cuStreamQuery failed: {} ({code})", error_name(code));
        code == 0
    }

    /// Delays the stream's later work for a number of whole microseconds, so that the CPU gets ahead of it.
    ///
    /// # Panics
    /// When the driver refuses.
    ///
    /// # Safety
    /// The stream must be alive.
    #[track_caller]
    pub unsafe fn delay(raw: CUstream, time: Duration) {
        let micros = without_provenance_mut(usize::try_from(time.as_micros()).unwrap_or(usize::MAX));
        // SAFETY: the stream is live by this function's contract; the host function takes a number as its argument.
        check("cuLaunchHostFunc", unsafe { call::cuLaunchHostFunc(raw, dawdle, micros) });
    }

    /// Blocks the stream: work enqueued from now on waits until the gate is opened or dropped.
    ///
    /// A host function blocks the stream's queue. A wait for the whole context includes it: do not synchronise on the
    /// thread that is to open the gate.
    ///
    /// # Panics
    /// When the driver refuses.
    #[must_use]
    #[track_caller]
    pub fn hold(&self) -> Gate {
        // SAFETY: the stream lives as long as `self`.
        unsafe { Self::hold_raw(self.raw()) }
    }

    /// Blocks this stream behind another, which is blocked already, and for longer: once the other's present work is done, this
    /// stream reaches a gate of its own.
    ///
    /// A driver may run the host functions of all streams on one thread. Two gates that are reached at the same time would then
    /// open in the order of the driver's choice; these are reached one after the other.
    ///
    /// # Panics
    /// When the driver refuses.
    ///
    /// # Safety
    /// Both streams must be alive, and the context of `first` must be current.
    #[must_use]
    #[track_caller]
    pub unsafe fn hold_raw_behind(raw: CUstream, first: CUstream) -> Gate {
        let mut event: CUevent = null_mut();
        // SAFETY: `event` is a valid output.
        check("cuEventCreate", unsafe { call::cuEventCreate(&raw mut event, DISABLE_TIMING) });
        // SAFETY: the event is live, and the stream by this function's contract.
        check("cuEventRecord", unsafe { call::cuEventRecord(event, first) });
        // SAFETY: as above; 0 is the only flag that streams without a graph take.
        check("cuStreamWaitEvent", unsafe { call::cuStreamWaitEvent(raw, event, 0) });
        // SAFETY: the event has one owner. The stream's wait does not need it any longer.
        check("cuEventDestroy_v2", unsafe { call::cuEventDestroy_v2(event) });
        // SAFETY: by this function's contract.
        unsafe { Self::hold_raw(raw) }
    }

    /// As [`hold`](Self::hold), for a stream of any owner.
    ///
    /// # Panics
    /// When the driver refuses.
    ///
    /// # Safety
    /// The stream must be alive.
    #[must_use]
    #[track_caller]
    pub unsafe fn hold_raw(raw: CUstream) -> Gate {
        let gate = Gate::new();
        let data = Arc::into_raw(gate.shared()).cast_mut().cast();
        // SAFETY: `data` is a reference to the gate's state, and the function takes ownership of it.
        let code = unsafe { call::cuLaunchHostFunc(raw, gate::wait, data) };
        if code != 0 {
            // SAFETY: the function was not enqueued, so that the reference was not taken.
            unsafe { gate::release(data) };
        }
        check("cuLaunchHostFunc", code);
        // Under the profile `late`, work starts when a program asks about it.
        // SAFETY: the stream is live by this function's contract.
        let _ = unsafe { call::cuStreamQuery(raw) };
        gate
    }
}

/// A host function that sleeps for a number of microseconds.
unsafe extern "C" fn dawdle(micros: *mut c_void) {
    std::thread::sleep(Duration::from_micros(micros.addr() as u64));
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created by `create`, with one owner. The driver completes its pending work.
        report("cuStreamDestroy_v2", unsafe { call::cuStreamDestroy_v2(self.raw()) });
    }
}

/// As [`Stream::hold`], for a stream of cudarc; returns once the stream has reached the gate.
///
/// # Panics
/// When the driver refuses, or the stream does not reach the gate in time.
#[must_use]
#[track_caller]
pub fn hold(stream: &CudaStream) -> Gate {
    // SAFETY: the reference keeps the stream alive.
    let gate = unsafe { Stream::hold_raw(stream.cu_stream()) };
    gate.wait_until_reached();
    gate
}
