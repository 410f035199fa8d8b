//! Whether a call waits, determined by the order of events, not by time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::cuda::Gate;
use crate::ledger::Calls;

/// The number of turns after which a thread gives up waiting for another.
const TURNS: usize = 10_000;
/// The time for a call to return that should not wait, where a driver reports no calls. Less than a gate's.
const TIME_TO_RETURN: Duration = Duration::from_secs(4);

/// Waits until no other test has its turn, and keeps it until this thread ends. For tests with kernels that wait for the CPU:
/// a driver waits for the kernels of all to free memory and to load modules.
pub fn take_turn() {
    static ONE: Mutex<()> = Mutex::new(());
    thread_local! {
        static TURN: MutexGuard<'static, ()> = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    }
    TURN.with(|_| ());
}

/// Runs `call` while a gate is shut. Another thread opens the gate after `call` has entered `function` of the CUDA
/// driver, in which it should wait. Returns whether the gate was open when `call` returned.
///
/// A real driver does not report its calls; with it, the other thread yields for a while before it opens the gate. For
/// calls that should not wait, [`waits`] is right there too.
///
/// # Errors
/// Those of `call`.
pub fn was_open_on_return<T>(
    gate: Gate,
    function: &'static str,
    call: impl FnOnce() -> Result<T>,
) -> Result<(bool, T)> {
    opened_before_return(gate, function, |turn, _| turn > TURNS, call)
}

/// As [`was_open_on_return`], for a call that should not wait: on a real driver, the gate opens only once the call has returned,
/// or seconds later.
///
/// # Errors
/// Those of `call`.
pub fn waits<T>(gate: Gate, function: &'static str, call: impl FnOnce() -> Result<T>) -> Result<(bool, T)> {
    opened_before_return(gate, function, |_, since| since.elapsed() > TIME_TO_RETURN, call)
}

/// `gives_up` says, of the number of turns and their begin, when to open the gate where the calls are not known.
fn opened_before_return<T>(
    gate: Gate,
    function: &'static str,
    gives_up: fn(usize, Instant) -> bool,
    call: impl FnOnce() -> Result<T>,
) -> Result<(bool, T)> {
    let (opened, returned) = (AtomicBool::new(false), AtomicBool::new(false));
    let calls = Calls::of(function);
    thread::scope(|scope| {
        let set_at_the_end = SetOnDrop(&returned);
        scope.spawn(|| {
            until_waiting(&calls, &returned, gives_up);
            opened.store(true, Ordering::SeqCst);
            gate.open();
        });
        let value = call()?;
        let was_open = opened.load(Ordering::SeqCst);
        drop(set_at_the_end);
        Ok((was_open, value))
    })
}

/// Runs `call` while a gate is shut, whether it waits or not. The gate opens after `call` has returned, or, if it waits,
/// after another thread has yielded for a while.
///
/// # Errors
/// Those of `call`.
pub fn while_shut<T>(gate: Gate, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let returned = AtomicBool::new(false);
    thread::scope(|scope| {
        let _set_at_the_end = SetOnDrop(&returned);
        scope.spawn(|| {
            let_run(|| returned.load(Ordering::SeqCst));
            gate.open();
        });
        call()
    })
}

/// Yields until a condition holds, but not for ever, such as until a stream is idle that may wait for a gate.
pub fn let_run(condition: impl Fn() -> bool) {
    (0..TURNS).take_while(|_| !condition()).for_each(|_| thread::yield_now());
}

fn until_waiting(calls: &Calls, returned: &AtomicBool, gives_up: fn(usize, Instant) -> bool) {
    let begin = Instant::now();
    for turn in 0.. {
        let waiting = calls.count().map_or_else(|| gives_up(turn, begin), |count| count > 0);
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
