//! Contexts and the calling thread's stack of them.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use std::marker::PhantomData;
use std::ptr::null_mut;

use cudarc::driver::sys::{CUcontext, CUctx_st, CUdevice};

use crate::driver::{call, check, exports, initialise, report};

/// A handle of a context or of a stream, movable between threads.
#[derive(Debug)]
pub(super) struct Raw<T>(pub(super) *mut T);

// SAFETY: the driver lets any thread use its handles; nothing is read through them here.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

/// A plain context, destroyed on drop.
///
/// It is current on the thread that created it. Dropping it there pops it, since the driver does.
#[derive(Debug)]
pub struct Context(Raw<CUctx_st>);

impl Context {
    /// Creates a context on the device with this number and leaves it current.
    ///
    /// # Panics
    /// When the driver refuses.
    #[must_use]
    #[track_caller]
    pub fn create(device: i32) -> Self {
        let device = handle(device);
        let mut raw: CUcontext = null_mut();
        // CUDA 13's headers lack cuCtxCreate_v2; its library still exports it, but a later one may not.
        if exports(c"cuCtxCreate_v2") {
            // SAFETY: `raw` is a valid output.
            check("cuCtxCreate_v2", unsafe { call::cuCtxCreate_v2(&raw mut raw, 0, device) });
        } else {
            // SAFETY: `raw` is a valid output; null parameters ask for an ordinary context.
            check("cuCtxCreate_v4", unsafe { call::cuCtxCreate_v4(&raw mut raw, null_mut(), 0, device) });
        }
        Self(Raw(raw))
    }

    /// The driver's handle.
    #[must_use]
    pub fn raw(&self) -> CUcontext {
        self.0.0
    }

    /// Runs `body` with this context current on the calling thread, then restores the previous one.
    ///
    /// # Panics
    /// When the context cannot be made current.
    #[track_caller]
    pub fn with_current<R>(&self, body: impl FnOnce() -> R) -> R {
        let _pushed = Pushed::push(self.raw());
        body()
    }

    /// Destroys the context now.
    ///
    /// # Panics
    /// When the driver refuses.
    #[track_caller]
    pub fn destroy(self) {
        let raw = self.raw();
        // The handle is used up even if the call fails; `self` has no other field.
        let _ = std::mem::ManuallyDrop::new(self);
        check("cuCtxDestroy_v2", destroy(raw));
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        report("cuCtxDestroy_v2", destroy(self.raw()));
    }
}

fn destroy(context: CUcontext) -> i32 {
    // SAFETY: the context was created by `Context::create` and has one owner.
    unsafe { call::cuCtxDestroy_v2(context) }
}

/// The device's primary context, retained and current until dropped.
///
/// It stays on the thread that pushed it.
#[derive(Debug)]
pub struct PrimaryContext {
    // Drop order: popped, then released.
    pushed: Pushed,
    _retained: Retained,
}

impl PrimaryContext {
    /// Retains the primary context of the device with this number and pushes it.
    ///
    /// # Panics
    /// When the driver refuses.
    #[must_use]
    #[track_caller]
    pub fn retain_and_push(device: i32) -> Self {
        let device = handle(device);
        let mut raw: CUcontext = null_mut();
        // SAFETY: `raw` is a valid output.
        check("cuDevicePrimaryCtxRetain", unsafe { call::cuDevicePrimaryCtxRetain(&raw mut raw, device) });
        let retained = Retained(device);
        Self { pushed: Pushed::push(raw), _retained: retained }
    }

    /// The driver's handle.
    #[must_use]
    pub fn raw(&self) -> CUcontext {
        self.pushed.context
    }
}

/// One retained use of a device's primary context.
#[derive(Debug)]
struct Retained(CUdevice);

impl Drop for Retained {
    fn drop(&mut self) {
        // SAFETY: balances this value's one retain.
        report("cuDevicePrimaryCtxRelease_v2", unsafe { call::cuDevicePrimaryCtxRelease_v2(self.0) });
    }
}

/// A context pushed on this thread, popped on drop.
#[derive(Debug)]
struct Pushed {
    context: CUcontext,
    /// The stack is per thread, so that the value must not be sent to another.
    _thread: PhantomData<*const ()>,
}

impl Pushed {
    #[track_caller]
    fn push(context: CUcontext) -> Self {
        check("cuCtxPushCurrent_v2", push(context));
        Self { context, _thread: PhantomData }
    }
}

impl Drop for Pushed {
    fn drop(&mut self) {
        // A test may have destroyed or popped it already.
        if current() == self.context {
            pop();
        }
    }
}

/// The current context of the calling thread; null for none.
#[must_use]
pub fn current() -> CUcontext {
    let mut context: CUcontext = null_mut();
    // SAFETY: `context` is a valid output.
    let code = unsafe { call::cuCtxGetCurrent(&raw mut context) };
    if code == 0 { context } else { null_mut() }
}

/// Waits for all work of the current context.
///
/// # Panics
/// When the driver reports an error.
#[track_caller]
pub fn synchronize() {
    // SAFETY: takes nothing.
    check("cuCtxSynchronize", unsafe { call::cuCtxSynchronize() });
}

/// Runs `body` with no context current on the calling thread, then restores the thread's stack.
pub fn no_context<R>(body: impl FnOnce() -> R) -> R {
    let mut removed = Removed { contexts: Vec::new(), _thread: PhantomData };
    let mut top = current();
    while !top.is_null() && pop() {
        removed.contexts.push(top);
        top = current();
    }
    let result = body();
    drop(removed);
    result
}

/// Contexts popped from this thread's stack, the top first; pushed again on drop.
struct Removed {
    contexts: Vec<CUcontext>,
    _thread: PhantomData<*const ()>,
}

impl Drop for Removed {
    fn drop(&mut self) {
        for context in self.contexts.iter().rev() {
            report("cuCtxPushCurrent_v2", push(*context));
        }
    }
}

fn push(context: CUcontext) -> i32 {
    // SAFETY: the driver checks the handle.
    unsafe { call::cuCtxPushCurrent_v2(context) }
}

/// Pops the current context, and returns whether there was one.
fn pop() -> bool {
    let mut context: CUcontext = null_mut();
    // SAFETY: `context` is a valid output.
    let code = unsafe { call::cuCtxPopCurrent_v2(&raw mut context) };
    report("cuCtxPopCurrent_v2", code);
    code == 0
}

/// Initialises the driver and turns a device's number into its handle.
#[track_caller]
fn handle(ordinal: i32) -> CUdevice {
    initialise();
    let mut device: CUdevice = 0;
    // SAFETY: `device` is a valid output.
    check("cuDeviceGet", unsafe { call::cuDeviceGet(&raw mut device, ordinal) });
    device
}

/// Ends the primary context of device 0, as `cudaDeviceReset` does.
pub fn reset_primary() {
    // SAFETY: the tests say what becomes of what is in it.
    check("cuDevicePrimaryCtxReset_v2", unsafe { call::cuDevicePrimaryCtxReset_v2(0) });
}
