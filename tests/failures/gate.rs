//! Gates that must open while a call waits for the work behind them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use support::Controls;
use support::cuda::Gate;

/// Runs `call` while the gate is shut, and opens it once `function` has been called, at the latest when `call` returns.
pub(crate) fn open_during<T>(gate: Gate, controls: Option<&Controls>, function: &str, call: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let count = || controls.map(|controls| controls.calls(Some(function)));
    let before = count();
    thread::scope(|scope| {
        scope.spawn(|| {
            while count() == before && !done.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            gate.open();
        });
        let result = call();
        done.store(true, Ordering::SeqCst);
        result
    })
}
