//! CUDA contexts: remembering one, making it current for a scope, and retaining a device's primary context.
//!
//! A primary context can end by `cudaDeviceReset` alone, for which a public call can be asked. A context of `cuCtxCreate` must
//! outlive the handles and the memory that were made in it: its owner ends it.
#![expect(unsafe_code, reason = "pushes contexts that it does not own")]

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::cuda::{Cuda, call, cuda};
use super::{Handle, fork};
use crate::Result;
use crate::error::CudaCode;
use crate::report::log_failure;

/// A context, remembered so that it can be made current later, on any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Context {
    raw: Handle<CUcontext>,
    /// Distinguishes a destroyed context from a later one at its address; `None` before CUDA 12.
    id: Option<u64>,
    /// The device whose primary context it is.
    primary: Option<CUdevice>,
}

impl Context {
    /// The context that is current on this thread, and its device; `CUDA_ERROR_INVALID_CONTEXT` when there is none.
    pub(crate) fn current() -> Result<(Self, CUdevice)> {
        let cuda = cuda()?;
        let raw = cuda.context_current()?;
        // Fails with the driver's own error where no context is current.
        let device = cuda.context_device()?;
        let id = cuda.context_id(ptr::null_mut())?;
        // An active primary context has other references: the one that is released here is not the last.
        let is_primary =
            cuda.primary_context_is_active(device)? && PrimaryContext::retain(device)?.context.raw == Handle(raw);
        Ok((Self { raw: Handle(raw), id, primary: is_primary.then_some(device) }, device))
    }

    pub(crate) const fn raw(self) -> CUcontext {
        self.raw.0
    }

    /// The device whose primary context it is, if it is one.
    pub(crate) const fn primary_device(self) -> Option<CUdevice> {
        self.primary
    }

    /// Whether the context can be distinguished from a later one at its address: from CUDA 12 on.
    pub(crate) const fn has_unique_id(self) -> bool {
        self.id.is_some()
    }

    /// Makes the context current until the guard is dropped. The error of a context that is gone says so
    /// ([`context_is_gone`](crate::Error::context_is_gone)).
    #[inline]
    pub(crate) fn enter(self) -> Result<ContextGuard> {
        let cuda = cuda()?;
        if self.is_current()? {
            return Ok(ContextGuard { cuda, pushed: false });
        }
        if self.was_reset(cuda)? {
            return Err(cuda.error("cuCtxPushCurrent".into(), CudaCode::CONTEXT_IS_DESTROYED));
        }
        // Not reset if it is a primary context, and any other is alive by the contract of its owner.
        call!(cuda, cuCtxPushCurrent_v2(self.raw()))?;
        Ok(ContextGuard { cuda, pushed: true })
    }

    /// Whether this is a primary context that no longer exists.
    fn was_reset(self, cuda: &Cuda) -> Result<bool> {
        let Some(device) = self.primary else { return Ok(false) };
        if !cuda.primary_context_is_active(device)? {
            return Ok(true);
        }
        // Before CUDA 12, one that was made since the reset cannot be told from the one before.
        Ok(self.has_unique_id() && PrimaryContext::retain(device)?.context != self)
    }

    /// Whether this context is current on this thread, and alive. False before CUDA 12, where contexts have no ids.
    #[inline]
    pub(crate) fn is_current(self) -> Result<bool> {
        let cuda = cuda()?;
        if self.id.is_none() {
            return Ok(false);
        }
        match cuda.context_id(ptr::null_mut()) {
            Ok(current) => Ok(current == self.id),
            // No context is current, or a destroyed one.
            Err(error) if error.cuda_code().is_some_and(|code| CudaCode::GONE.contains(&code)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether this is a primary context that was reset, or CUDA has shut down.
    pub(crate) fn is_destroyed(self) -> bool {
        let asked = cuda().and_then(|cuda| Ok(!self.is_current()? && self.was_reset(cuda)?));
        asked.unwrap_or_else(|error| error.context_is_gone())
    }

    /// Waits for all work of the context. A context that is gone or broken has none.
    pub(crate) fn finish(self) -> Result<()> {
        match self.run(|| cuda()?.context_synchronize()) {
            Err(error) if !error.ends_all_work() => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs `work` with the context current. Where leaving it fails, the value is dropped outside of it.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let guard = self.enter()?;
        let value = work()?;
        guard.leave()?;
        Ok(value)
    }
}

/// Pops the context that [`Context::enter`] pushed, if it pushed one.
pub(crate) struct ContextGuard {
    cuda: &'static Cuda,
    pushed: bool,
}

impl ContextGuard {
    /// Pops now, and returns the driver's error.
    #[inline]
    pub(crate) fn leave(mut self) -> Result<()> {
        if std::mem::replace(&mut self.pushed, false) { self.cuda.context_pop() } else { Ok(()) }
    }
}

impl Drop for ContextGuard {
    #[inline]
    fn drop(&mut self) {
        if self.pushed
            && !fork::is_forked()
            && let Err(error) = self.cuda.context_pop()
        {
            log::warn!("leaving a CUDA context: {error}");
        }
    }
}

/// A device's primary context, retained for as long as this value lives.
#[derive(Debug)]
pub(crate) struct PrimaryContext {
    context: Context,
    device: CUdevice,
}

impl PrimaryContext {
    pub(crate) fn retain(device: CUdevice) -> Result<Self> {
        let (cuda, mut raw) = (cuda()?, ptr::null_mut());
        call!(cuda, cuDevicePrimaryCtxRetain(&raw mut raw, device))?;
        let context = Context { raw: Handle(raw), id: None, primary: Some(device) };
        let mut retained = Self { context, device };
        retained.context.id = cuda.context_id(raw)?;
        Ok(retained)
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        let released = cuda().and_then(|cuda| call!(cuda, cuDevicePrimaryCtxRelease_v2(self.device)));
        log_failure("a primary context", released);
    }
}
