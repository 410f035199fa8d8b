//! A gate that blocks a stream.
#![expect(unsafe_code, reason = "hands a reference through the CUDA driver to a host function")]

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::driver::rounds;

/// The timeout of a gate, so that a test that waits for its own blocked stream fails instead of hanging. A simulated stream may be
/// late by seconds on a busy machine; on a real driver, test runners end a test after a minute or so.
fn timeout() -> Duration {
    Duration::from_secs(rounds(60, 8))
}

/// Blocks a stream until it is opened; see [`Stream::hold`](super::Stream::hold). Opens on drop.
#[derive(Debug)]
pub struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reached: bool,
    open: bool,
    gave_up: bool,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// Waits until the stream has reached the gate: all earlier work is done.
    ///
    /// # Panics
    /// When it does not reach the gate in time.
    #[track_caller]
    pub fn wait_until_reached(&self) {
        assert!(self.0.wait(|state| state.reached), "the stream did not reach the gate");
    }

    /// Opens the gate.
    ///
    /// # Panics
    /// When it opened by itself before, because the stream waited for too long.
    #[track_caller]
    pub fn open(self) {
        assert!(
            !self.0.change(|state| state.open = true).gave_up,
            "the gate opened by itself after {:?}: something waits for the blocked stream",
            timeout()
        );
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.change(|state| state.open = true);
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) -> State {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        self.changed.notify_all();
        State { ..*state }
    }

    /// Waits for a condition; false after the timeout.
    fn wait(&self, reached: impl Fn(&State) -> bool) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, timeout(), |state| !reached(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        reached(&state)
    }
}

/// The host function: waits until the gate is open.
///
/// # Safety
/// `data` must be a reference made by `Arc::into_raw` of a [`Gate::shared`]; the function takes ownership of it.
pub(super) unsafe extern "C" fn wait(data: *mut c_void) {
    // SAFETY: by this function's contract; the driver calls it once.
    let shared = unsafe { Arc::from_raw(data.cast_const().cast::<Shared>()) };
    shared.change(|state| state.reached = true);
    if !shared.wait(|state| state.open) {
        eprintln!("support: a gate opened by itself after {:?}", timeout());
        shared.change(|state| state.gave_up = true);
    }
}

/// Drops the reference of a host function that was never enqueued.
///
/// # Safety
/// As for [`wait`].
pub(super) unsafe fn release(data: *mut c_void) {
    // SAFETY: by this function's contract.
    drop(unsafe { Arc::from_raw(data.cast_const().cast::<Shared>()) });
}
