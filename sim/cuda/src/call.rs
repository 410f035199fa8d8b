//! What is known of the driver call that a thread makes: its name, and whether it may be made.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::code::{NOT_INITIALIZED, NOT_PERMITTED, Outcome};

thread_local! {
    static NAME: Cell<&'static str> = const { Cell::new("a call") };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// The function that this thread called last.
pub(crate) fn name() -> &'static str {
    NAME.get()
}

/// Notes the function that this thread calls.
pub(crate) fn set_name(name: &'static str) {
    NAME.set(name);
}

/// Lets the functions through that are refused before `cuInit`.
pub(crate) fn initialize() {
    INITIALIZED.store(true, Ordering::Release);
}

/// Refuses calls before `cuInit`, and inside a host function.
pub(crate) fn check() -> Outcome {
    if !INITIALIZED.load(Ordering::Acquire) {
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
