//! A gate that a stream waits at.
#![expect(unsafe_code, reason = "hands a reference through the CUDA driver to a host function")]

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// After this long the stream is let go, so that a test that waits for what it holds itself fails and does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Holds a stream until it is opened; see [`Stream::hold`](super::Stream::hold). Opens on drop.
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

    /// Waits until the stream stands at the gate: all that was enqueued before is done.
    ///
    /// # Panics
    /// When it does not get there within a minute.
    #[track_caller]
    pub fn wait_until_reached(&self) {
        assert!(self.0.wait(|state| state.reached), "the stream did not reach the gate");
    }

    /// Lets the stream run on.
    ///
    /// # Panics
    /// When the stream was let go before, because it stood at the gate for a minute.
    #[track_caller]
    pub fn open(self) {
        assert!(
            !self.0.change(|state| state.open = true).gave_up,
            "the stream stood at the gate for {PATIENCE:?} and was let go: something waits for what it holds"
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

    /// Waits for a condition; false when it took too long.
    fn wait(&self, reached: impl Fn(&State) -> bool) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| !reached(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        reached(&state)
    }
}

/// The host function: waits until the gate is open.
///
/// # Safety
/// `data` is a reference made by `Arc::into_raw` of a [`Gate::shared`], and is taken over.
pub(super) unsafe extern "C" fn wait(data: *mut c_void) {
    // SAFETY: the caller's promise; the driver calls the function once.
    let shared = unsafe { Arc::from_raw(data.cast_const().cast::<Shared>()) };
    shared.change(|state| state.reached = true);
    if !shared.wait(|state| state.open) {
        eprintln!("support: a stream stood at its gate for {PATIENCE:?} and is let go");
        shared.change(|state| state.gave_up = true);
    }
}

/// Gives up the reference of a host function that was never enqueued.
///
/// # Safety
/// As for [`wait`].
pub(super) unsafe fn release(data: *mut c_void) {
    // SAFETY: the caller's promise.
    drop(unsafe { Arc::from_raw(data.cast_const().cast::<Shared>()) });
}
