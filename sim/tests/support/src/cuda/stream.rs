//! Streams.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys::{CUstream, CUstream_flags};

use super::gate::{self, Gate};
use crate::codes;
use crate::driver::{call, check, error_name, report};

const NON_BLOCKING: u32 = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;

/// A stream's handle.
#[derive(Debug)]
struct Raw(CUstream);

// SAFETY: a stream is a handle that the driver lets any thread use; nothing is read through it here.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

/// A stream of the current context, destroyed on drop.
///
/// It does not synchronise with the legacy default stream (`CU_STREAM_NON_BLOCKING`), so that synchronous copies work
/// while it is blocked.
#[derive(Debug)]
pub struct Stream(Raw);

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

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created by `create`, with one owner. The driver completes its pending work.
        report("cuStreamDestroy_v2", unsafe { call::cuStreamDestroy_v2(self.raw()) });
    }
}
