//! CUDA contexts: remembering one, making it current for a scope, and retaining a device's primary context.
#![expect(unsafe_code, reason = "pushes contexts that it does not own")]

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::cuda::{Cuda, cuda};
use super::{Handle, process};
use crate::error::CudaCode;
use crate::report::report;
use crate::{Error, Result};

/// A context that the caller owns, remembered so that it can be made current later, on any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Context {
    raw: Handle<CUcontext>,
    /// Distinguishes a destroyed context from a new one at the same address.
    id: Option<u64>,
}

impl Context {
    /// The context that is current on this thread; `CUDA_ERROR_INVALID_CONTEXT` when there is none.
    pub(crate) fn current() -> Result<Self> {
        let cuda = cuda()?;
        let raw = cuda.context_current()?;
        if raw.is_null() {
            // Fails with the driver's own error.
            cuda.context_device()?;
        }
        Self::new(cuda, raw)
    }

    fn new(cuda: &Cuda, raw: CUcontext) -> Result<Self> {
        // SAFETY: the driver has just returned the context.
        let id = unsafe { cuda.context_id(raw) }?;
        Ok(Self { raw: Handle(raw), id })
    }

    pub(crate) const fn raw(self) -> CUcontext {
        self.raw.0
    }

    /// Whether the context can be distinguished from a later one at its address: from CUDA 12 on.
    pub(crate) const fn has_unique_id(self) -> bool {
        self.id.is_some()
    }

    /// Makes the context current until the guard is dropped; for callers that continue when the context is gone.
    #[inline]
    pub(crate) fn try_enter(self) -> Result<Entered> {
        let cuda = cuda()?;
        match self.is_current() {
            Ok(true) => Ok(Entered::Current(ContextGuard { cuda, pushed: false })),
            Ok(false) => self.try_push(cuda),
            Err(error) => Entered::failed(error, &[]),
        }
    }

    /// Makes the context current, which it is not, until the guard is dropped.
    fn try_push(self, cuda: &'static Cuda) -> Result<Entered> {
        // SAFETY: `raw` was a context when it was captured, which is all that the driver asks.
        if let Err(error) = unsafe { cuda.context_push(self.raw()) } {
            return Entered::failed(error, &CudaCode::GONE);
        }
        let guard = ContextGuard { cuda, pushed: true };
        let Some(id) = self.id else { return Ok(Entered::Current(guard)) };
        // SAFETY: null asks for the current context, which the push has just set.
        match unsafe { cuda.context_id(std::ptr::null_mut()) } {
            Ok(current) if current == Some(id) => Ok(Entered::Current(guard)),
            Ok(_) => Ok(Entered::Destroyed(cuda.destroyed_context())),
            Err(error) => Entered::failed(error, &[CudaCode::CONTEXT_IS_DESTROYED]),
        }
    }

    /// Whether this context is current on this thread, and alive. False before CUDA 12, where only a push can tell.
    #[inline]
    pub(crate) fn is_current(self) -> Result<bool> {
        let cuda = cuda()?;
        if self.id.is_none() {
            return Ok(false);
        }
        // SAFETY: null asks for the current context.
        match unsafe { cuda.context_id(std::ptr::null_mut()) } {
            Ok(current) => Ok(current == self.id),
            // No context is current, or a destroyed one.
            Err(error) if error.cuda_code().is_some_and(|code| CudaCode::GONE.contains(&code)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the context still exists.
    pub(crate) fn is_alive(self) -> bool {
        matches!(self.try_enter(), Ok(Entered::Current(_)))
    }

    /// Makes the context current until the guard is dropped.
    pub(crate) fn enter(self) -> Result<ContextGuard> {
        match self.try_enter()? {
            Entered::Current(guard) => Ok(guard),
            Entered::Destroyed(error) | Entered::ShutDown(error) => Err(error),
        }
    }

    /// Waits for all work of the context. A context that is gone or broken has none.
    pub(crate) fn finish(self) -> Result<()> {
        match self.run(|| cuda()?.context_synchronize()) {
            Err(error) if !error.ends_all_work() => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs `work` with the context current.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let guard = self.enter()?;
        let value = work()?;
        if let Err(error) = guard.leave() {
            // The value's drop needs the context.
            let _context = self.enter();
            drop(value);
            return Err(error);
        }
        Ok(value)
    }
}

/// The outcome of [`Context::try_enter`].
pub(crate) enum Entered {
    /// The context is current while the guard lives.
    Current(ContextGuard),
    /// The context was destroyed, and with it everything that it owned.
    Destroyed(Error),
    /// The process is exiting, and CUDA has shut down.
    ShutDown(Error),
}

impl Entered {
    /// Classifies a failure, where the codes in `gone` mean that the context is gone.
    fn failed(error: Error, gone: &[i32]) -> Result<Self> {
        match error.cuda_code() {
            Some(CudaCode::DEINITIALIZED) => Ok(Self::ShutDown(error)),
            Some(code) if gone.contains(&code) => Ok(Self::Destroyed(error)),
            _ => Err(error),
        }
    }
}

/// Runs `work` and restores the current context. For calls that change it, such as cudarc's.
pub(crate) fn keeping_current<T>(work: impl FnOnce() -> T) -> T {
    let current = || cuda().and_then(Cuda::context_current);
    let before = retry_once(current);
    let value = work();
    if let Ok(before) = before
        && !current().is_ok_and(|after| after == before)
    {
        // SAFETY: `before` was current on this thread, or null.
        let restored = retry_once(|| cuda().and_then(|cuda| unsafe { cuda.context_set_current(before) }));
        if let Err(error) = restored {
            report!(Warn, "making a CUDA context current again: {error}");
        }
    }
    value
}

/// Calls the driver, and once more when it fails: the error may be one of earlier, asynchronous work, which is reported
/// once.
fn retry_once<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    call().or_else(|_| call())
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
            && !process::is_forked()
            && let Err(error) = self.cuda.context_pop()
        {
            report!(Warn, "leaving a CUDA context: {error}");
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
        let cuda = cuda()?;
        let raw = cuda.primary_context_retain(device)?;
        // A value with `Drop`, before the next call that can fail.
        let mut retained = Self { context: Context { raw: Handle(raw), id: None }, device };
        retained.context = Context::new(cuda, raw)?;
        Ok(retained)
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        if let Err(error) = cuda().and_then(|cuda| cuda.primary_context_release(self.device)) {
            report!(Warn, "releasing the primary context of CUDA device {}: {error}", self.device);
        }
    }
}
