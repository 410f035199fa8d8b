//! Whether a call waits, determined by the order of events, not by time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::Result;
use crate::cuda::Gate;
use crate::ledger::Calls;

/// Runs `call` while a gate is shut. Another thread opens the gate after `call` has entered `function` of the CUDA
/// driver, in which it should wait. Returns whether the gate was open when `call` returned.
///
/// A real driver does not report its calls; with it, the other thread yields for a while before it opens the gate.
///
/// # Errors
/// Those of `call`.
pub fn was_open_on_return<T>(
    gate: Gate,
    function: &'static str,
    call: impl FnOnce() -> Result<T>,
) -> Result<(bool, T)> {
    let (opened, returned) = (AtomicBool::new(false), AtomicBool::new(false));
    let calls = Calls::of(function);
    thread::scope(|scope| {
        let set_at_the_end = SetOnDrop(&returned);
        scope.spawn(|| {
            until_waiting(&calls, &returned);
            opened.store(true, Ordering::SeqCst);
            gate.open();
        });
        let value = call()?;
        let was_open = opened.load(Ordering::SeqCst);
        drop(set_at_the_end);
        Ok((was_open, value))
    })
}

fn until_waiting(calls: &Calls, returned: &AtomicBool) {
    const PATIENCE: usize = 10_000;
    for turn in 0.. {
        let waiting = calls.count().map_or(turn > PATIENCE, |count| count > 0);
        if waiting || returned.load(Ordering::SeqCst) {
            return;
        }
        thread::yield_now();
    }
}

/// Set also when the call fails or panics, so that the other thread ends.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
