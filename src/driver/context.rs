//! CUDA contexts: remembering one, making it current for a scope, and retaining a device's primary context.
#![expect(unsafe_code, reason = "pushes contexts that it does not own")]

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::cuda::{Cuda, cuda};
use super::liveness::{self, ContextKey, Liveness};
use super::{Handle, fork};
use crate::error::CudaCode;
use crate::report::report;
use crate::{Error, Result};

/// A context that the caller owns, remembered so that it can be made current later, on any thread.
///
/// Only [`try_enter`](Self::try_enter) passes it to the driver, unless there is evidence that it was destroyed
/// ([`liveness`]).
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
        // SAFETY: null asks for the current context.
        let id = unsafe { cuda.context_id(ptr::null_mut()) }?;
        let context = Self { raw: Handle(raw), id };
        liveness::add(context.key(), || context.find_primary(cuda));
        Ok(context)
    }

    /// The device whose primary context this is. This context must be current.
    fn find_primary(self, cuda: &Cuda) -> Option<CUdevice> {
        let device = cuda.context_device().ok()?;
        if !cuda.primary_context_is_active(device).ok()? {
            return None;
        }
        // The primary context is active: this is not its first reference, and so not the last to be released.
        let retained = PrimaryContext::reference(cuda, device).ok()?;
        (retained.context.raw == self.raw).then_some(device)
    }

    pub(crate) const fn raw(self) -> CUcontext {
        self.raw.0
    }

    pub(crate) fn key(self) -> ContextKey {
        ContextKey { address: self.raw().addr(), id: self.id }
    }

    /// Whether the device's primary context exists and is this one.
    fn is_primary(self, cuda: &Cuda, device: CUdevice) -> Result<bool> {
        Ok(cuda.primary_context_is_active(device)? && PrimaryContext::retain(device)?.context() == self)
    }

    /// Whether the context can be distinguished from a later one at its address: from CUDA 12 on.
    pub(crate) const fn has_unique_id(self) -> bool {
        self.id.is_some()
    }

    /// Makes the context current until the guard is dropped; for callers that continue when the context is gone.
    ///
    /// A context of which nothing is known counts as alive: most are, on threads where they are not current.
    #[inline]
    pub(crate) fn try_enter(self) -> Result<Entered> {
        let cuda = cuda()?;
        match self.is_current() {
            Ok(true) => Ok(Entered::Current(ContextGuard { cuda, pushed: false })),
            Ok(false) => self.enter_unless_destroyed(cuda),
            Err(error) => Entered::failed(error, &[]),
        }
    }

    fn enter_unless_destroyed(self, cuda: &'static Cuda) -> Result<Entered> {
        match self.liveness(cuda) {
            // SAFETY: the context is alive, as far as can be known.
            Ok(Liveness::Alive | Liveness::Unknown) => unsafe { self.push(cuda) },
            Ok(Liveness::Destroyed) => Ok(Entered::Destroyed(cuda.destroyed_context())),
            Err(error) => Entered::failed(error, &[]),
        }
    }

    /// Whether this context, which is not current as far as ids tell, still exists.
    fn liveness(self, cuda: &Cuda) -> Result<Liveness> {
        let ask = || liveness::ask(self.key(), cuda, |device| self.is_primary(cuda, device));
        if cuda.context_current()? != self.raw() {
            return ask();
        }
        // A context with another id has the address, or the one that was current here was destroyed: this one, unless it is
        // proven alive, or an earlier one at its address. Before CUDA 12, whether the current context exists is all that can
        // be known.
        let exists = if self.has_unique_id() { ask()? == Liveness::Alive } else { cuda.context_device().is_ok() };
        if exists {
            return Ok(Liveness::Alive);
        }
        liveness::remove(self.key());
        Ok(Liveness::Destroyed)
    }

    /// Makes the context current until the guard is dropped.
    ///
    /// # Safety
    ///
    /// The context must be alive.
    unsafe fn push(self, cuda: &'static Cuda) -> Result<Entered> {
        // SAFETY: by this method's contract.
        if let Err(error) = unsafe { cuda.context_push(self.raw()) } {
            return self.failed(error, &CudaCode::GONE);
        }
        let guard = ContextGuard { cuda, pushed: true };
        let Some(id) = self.id else { return Ok(Entered::Current(guard)) };
        // SAFETY: null asks for the current context, which the push has just set.
        match unsafe { cuda.context_id(ptr::null_mut()) } {
            Ok(current) if current == Some(id) => Ok(Entered::Current(guard)),
            Ok(_) => self.failed(cuda.destroyed_context(), &CudaCode::GONE),
            Err(error) => self.failed(error, &[CudaCode::CONTEXT_IS_DESTROYED]),
        }
    }

    /// [`Entered::failed`], and remembers if the context is gone.
    fn failed(self, error: Error, gone: &[i32]) -> Result<Entered> {
        let entered = Entered::failed(error, gone);
        if matches!(entered, Ok(Entered::Destroyed(_))) {
            liveness::remove(self.key());
        }
        entered
    }

    /// Whether this context is current on this thread, and alive. False before CUDA 12, where contexts have no ids.
    #[inline]
    pub(crate) fn is_current(self) -> Result<bool> {
        let cuda = cuda()?;
        if self.id.is_none() {
            return Ok(false);
        }
        // SAFETY: null asks for the current context.
        match unsafe { cuda.context_id(ptr::null_mut()) } {
            Ok(current) => Ok(current == self.id),
            // No context is current, or a destroyed one.
            Err(error) if error.cuda_code().is_some_and(|code| CudaCode::GONE.contains(&code)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether there is evidence that the context was destroyed.
    pub(crate) fn is_destroyed(self) -> bool {
        let asked = cuda().and_then(|cuda| Ok(!self.is_current()? && self.liveness(cuda)? == Liveness::Destroyed));
        asked.unwrap_or(false)
    }

    /// Whether the context can be entered.
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

/// Runs `work` and restores the current context, unless that was destroyed. For calls that change it, such as cudarc's.
pub(crate) fn keeping_current<T>(work: impl FnOnce() -> T) -> T {
    let current = || cuda().and_then(Cuda::context_current);
    let before = retry_once(current).ok().filter(|before| before.is_null() || !current_is_destroyed());
    let value = work();
    if let Some(before) = before
        && !current().is_ok_and(|after| after == before)
    {
        // SAFETY: `before` is null, or was current on this thread, and alive.
        let restored = retry_once(|| cuda().and_then(|cuda| unsafe { cuda.context_set_current(before) }));
        if let Err(error) = restored {
            report!(Warn, "making a CUDA context current again: {error}");
        }
    }
    value
}

fn current_is_destroyed() -> bool {
    let device = retry_once(|| cuda().and_then(Cuda::context_device));
    device.is_err_and(|error| error.cuda_code().is_some_and(|code| CudaCode::GONE.contains(&code)))
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
            && !fork::is_forked()
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
        let mut retained = Self::reference(cuda, device)?;
        // SAFETY: the context was just retained.
        retained.context.id = unsafe { cuda.context_id(retained.context.raw()) }?;
        liveness::add(retained.context.key(), || Some(device));
        Ok(retained)
    }

    /// Retains the context. Its id is not known yet.
    fn reference(cuda: &Cuda, device: CUdevice) -> Result<Self> {
        let raw = cuda.primary_context_retain(device)?;
        Ok(Self { context: Context { raw: Handle(raw), id: None }, device })
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        if let Err(error) = cuda().and_then(|cuda| cuda.primary_context_release(self.device)) {
            report!(Warn, "releasing the primary context of CUDA device {}: {error}", self.device);
        }
    }
}
