//! Counts calls and decides which of them must fail. Of Vulkan, it only knows the functions' names.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use simcommon::FALLIBLE;
use simcommon::faults::{ANY, Faults};

/// `VKLAYER_FAIL=function:nth:code,…`: faults that are pending from the start.
const VARIABLE: &str = "VKLAYER_FAIL";

struct State {
    calls: BTreeMap<&'static str, u64>,
    faults: Faults,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let what = format!("function:nth:negative code of one of {}", FALLIBLE.join(", "));
    let faults = Faults::from_environment("vklayer", VARIABLE, check, &what);
    Mutex::new(State { calls: BTreeMap::new(), faults })
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(function: &str, code: i32) -> Option<&str> {
    (code < 0 && (function == ANY || FALLIBLE.contains(&function))).then_some(function)
}

/// Counts a call; returns the code that it must fail with, if a fault is due.
pub(crate) fn enter(function: &'static str) -> Option<i32> {
    let mut state = state();
    *state.calls.entry(function).or_default() += 1;
    state.faults.count(function, FALLIBLE.contains(&function))
}

/// Makes the `nth` call of a function from now fail, once. `None` when the function is not among those that
/// can fail, the call is the 0th, or the code is no failure.
pub(crate) fn fail(function: &str, nth: u64, code: i32) -> Option<()> {
    state().faults.add(function, nth, code, check)
}

/// Clears the pending faults and the last one.
pub(crate) fn clear() {
    state().faults = Faults::default();
}

/// The function that last failed by injection.
pub(crate) fn last() -> Option<&'static str> {
    state().faults.last()
}

/// Calls of a function, or of all that can fail.
pub(crate) fn calls(function: Option<&str>) -> u64 {
    let state = state();
    match function {
        Some(name) => state.calls.get(name).copied().unwrap_or(0),
        None => FALLIBLE.iter().filter_map(|name| state.calls.get(name)).sum(),
    }
}
