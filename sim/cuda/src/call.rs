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

/// The process: before `cuInit`, during the first one, after it, or forked since that began.
static STATE: AtomicU8 = AtomicU8::new(FRESH);
const FRESH: u8 = 0;
const STARTING: u8 = 1;
const INITIALIZED: u8 = 2;
const FORKED: u8 = 3;

/// The function that this thread called last.
pub(crate) fn name() -> &'static str {
    NAME.get()
}

/// Notes the function that this thread calls.
pub(crate) fn set_name(name: &'static str) {
    NAME.set(name);
}

/// Initialises the driver by `start`, and lets the functions through that are refused before `cuInit`. A child that was
/// forked since has no driver, as on a GPU, and cannot initialise one: it may find `start` begun by a thread that it does not
/// have.
pub(crate) fn initialize(start: impl FnOnce() -> Outcome) -> Outcome {
    static HANDLER: Once = Once::new();
    if is_forked() {
        return Err(NOT_INITIALIZED);
    }
    HANDLER.call_once(|| {
        // SAFETY: the handler only uses an atomic, which a forked child may do.
        unsafe { libc::pthread_atfork(None, None, Some(mark_the_child)) };
    });
    let change = |from, to| STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
    change(FRESH, STARTING);
    let outcome = start();
    change(STARTING, if outcome.is_ok() { INITIALIZED } else { FRESH });
    outcome
}

extern "C" fn mark_the_child() {
    if STATE.load(Ordering::Acquire) != FRESH {
        STATE.store(FORKED, Ordering::Release);
    }
}

/// Whether this is a child of a process that had begun to initialise the driver.
pub(crate) fn is_forked() -> bool {
    STATE.load(Ordering::Acquire) == FORKED
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
