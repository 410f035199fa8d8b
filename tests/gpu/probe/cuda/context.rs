//! Contexts.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{c_int, c_uint};
use std::ptr;

use vkgdr::cudarc::driver::sys::{CUcontext, CUdevice};

use super::{Answer, Cuda, check, symbol};

impl Cuda {
    /// The current context's address and id.
    #[expect(clippy::unused_self, reason = "a value proves that the driver is loaded")]
    pub(crate) fn current_context(&self) -> Answer<(usize, u64)> {
        let (mut context, mut id): (CUcontext, u64) = (ptr::null_mut(), 0);
        call!("cuCtxGetCurrent", (*mut CUcontext), (&raw mut context))?;
        call!("cuCtxGetId", (CUcontext, *mut u64), (ptr::null_mut(), &raw mut id))?;
        Ok((context.addr(), id))
    }

    /// The current context's address alone.
    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn current_address(&self) -> Answer<usize> {
        let mut context: CUcontext = ptr::null_mut();
        call!("cuCtxGetCurrent", (*mut CUcontext), (&raw mut context))?;
        Ok(context.addr())
    }

    /// Makes no context current.
    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn leave_context(&self) -> Answer<()> {
        call!("cuCtxSetCurrent", (CUcontext), (ptr::null_mut()))
    }

    /// Destroys the primary context and all that belongs to it.
    pub(crate) fn reset(&self) -> Answer<()> {
        call!("cuDevicePrimaryCtxReset_v2", (CUdevice), (self.device))
    }

    /// Whether the device has a primary context.
    pub(crate) fn has_primary_context(&self) -> Answer<bool> {
        let (mut flags, mut active): (c_uint, c_int) = (0, 0);
        call!(
            "cuDevicePrimaryCtxGetState",
            (CUdevice, *mut c_uint, *mut c_int),
            (self.device, &raw mut flags, &raw mut active)
        )?;
        Ok(active != 0)
    }
}

/// A context made by `cuCtxCreate`. It lives until it is destroyed or the process ends.
pub(crate) struct OrdinaryContext(CUcontext);

impl OrdinaryContext {
    /// Creates it on top of this thread's stack of contexts.
    pub(crate) fn create(cuda: &Cuda) -> Answer<Self> {
        let mut context: CUcontext = ptr::null_mut();
        call!("cuCtxCreate_v2", (*mut CUcontext, c_uint, CUdevice), (&raw mut context, 0, cuda.device))?;
        Ok(Self(context))
    }

    /// Removes the current context from this thread's stack.
    pub(crate) fn pop() -> Answer<()> {
        let mut context: CUcontext = ptr::null_mut();
        call!("cuCtxPopCurrent_v2", (*mut CUcontext), (&raw mut context))
    }

    /// Destroys it. The caller makes no further use of anything that belongs to it.
    pub(crate) fn destroy(self) -> Answer<()> {
        call!("cuCtxDestroy_v2", (CUcontext), (self.0))
    }
}
