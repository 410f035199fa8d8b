//! `within`: runs work in the context of memory, for functions of the crate that use the current one.
#![expect(unsafe_code, reason = "makes a context current")]

use std::ptr::null_mut;

use vkgdr::cudarc::driver::sys::{self, CUcontext, CUresult};

use crate::error::{Failure, Result};

/// Makes the context that was current before so again.
struct Pushed;

impl Drop for Pushed {
    fn drop(&mut self) {
        let mut popped = null_mut();
        // SAFETY: `within` pushed a context on this thread; the pointer is good for writing.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
    }
}

/// Runs `work` with a context current on this thread.
///
/// # Safety
///
/// The context must be alive.
pub(crate) unsafe fn within<T>(context: CUcontext, work: impl FnOnce() -> vkgdr::Result<T>) -> Result<T> {
    // SAFETY: by this function's contract.
    let code = unsafe { sys::cuCtxPushCurrent_v2(context) };
    if code != CUresult::CUDA_SUCCESS {
        return Err(Failure::Buffer(format!("the memory's CUDA context cannot be made current: {code:?}")));
    }
    let _pushed = Pushed;
    Ok(work()?)
}
