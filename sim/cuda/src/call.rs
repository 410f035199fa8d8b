#![expect(unsafe_code, reason = "registers a handler of forks")]
//! What is known of the driver call that a thread makes: its name, and whether it may be made.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::code::{NOT_INITIALIZED, NOT_PERMITTED, Outcome};

thread_local! {
    static NAME: Cell<&'static str> = const { Cell::new("a call") };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// The process: before `cuInit`, after it, or forked after it.
static STATE: AtomicU8 = AtomicU8::new(FRESH);
const FRESH: u8 = 0;
const INITIALIZED: u8 = 1;
const FORKED: u8 = 2;

/// The function that this thread called last.
pub(crate) fn name() -> &'static str {
    NAME.get()
}

/// Notes the function that this thread calls.
pub(crate) fn set_name(name: &'static str) {
    NAME.set(name);
}

/// Lets the functions through that are refused before `cuInit`. A child that was forked after that has no driver, as on a
/// GPU, and cannot initialise one.
pub(crate) fn initialize() -> Outcome {
    static HANDLER: Once = Once::new();
    if STATE.load(Ordering::Acquire) == FORKED {
        return Err(NOT_INITIALIZED);
    }
    HANDLER.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which a forked child may do.
        unsafe { libc::pthread_atfork(None, None, Some(mark_the_child)) };
    });
    STATE.store(INITIALIZED, Ordering::Release);
    Ok(())
}

extern "C" fn mark_the_child() {
    STATE.store(FORKED, Ordering::Release);
}

/// Refuses calls before `cuInit`, in forked children, and inside a host function.
pub(crate) fn check() -> Outcome {
    if STATE.load(Ordering::Acquire) != INITIALIZED {
        return Err(NOT_INITIALIZED);
    }
    if IN_HOST_FUNCTION.get() { Err(NOT_PERMITTED) } else { Ok(()) }
}

/// Runs a host function of the caller: driver calls from inside it are `CUDA_ERROR_NOT_PERMITTED`.
pub(crate) fn host_function(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}
