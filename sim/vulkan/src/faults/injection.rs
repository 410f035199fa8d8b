//! Counts calls and decides which of them must fail. Of Vulkan, it only knows the functions' names.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use simcommon::FALLIBLE;

/// Any of [`FALLIBLE`].
const ANY: &str = "*";
/// `VKLAYER_FAIL=function:nth:code,…`: faults that are pending from the start.
const VARIABLE: &str = "VKLAYER_FAIL";

/// A call that must fail.
struct Pending {
    function: String,
    /// The number of calls until then; 1 is the next.
    remaining: u64,
    code: i32,
}

#[derive(Default)]
struct State {
    calls: BTreeMap<&'static str, u64>,
    pending: Vec<Pending>,
    last: Option<&'static str>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::from_environment()));

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a call; returns the code that it must fail with, if a fault is due.
pub(crate) fn enter(function: &'static str) -> Option<i32> {
    state().enter(function)
}

/// Makes the `nth` call of a function from now fail, once.
///
/// # Errors
/// When the function is not among those that can fail, the call is the 0th, or the code is no failure.
pub(crate) fn fail(function: &str, nth: u64, code: i32) -> Result<(), ()> {
    state().fail(function, nth, code)
}

/// Clears the pending faults and the last one.
pub(crate) fn clear() {
    let mut state = state();
    state.pending.clear();
    state.last = None;
}

/// The function that last failed by injection.
pub(crate) fn last() -> Option<&'static str> {
    state().last
}

/// Calls of a function, or of all that can fail.
pub(crate) fn calls(function: Option<&str>) -> u64 {
    let state = state();
    match function {
        Some(name) => state.calls.get(name).copied().unwrap_or(0),
        None => FALLIBLE.iter().filter_map(|name| state.calls.get(name)).sum(),
    }
}

impl State {
    /// A mistake in the variable ends the process: a test that injects nothing would pass without testing anything.
    fn from_environment() -> Self {
        let mut state = Self::default();
        let faults = std::env::var(VARIABLE).unwrap_or_default();
        for fault in faults.split(',').filter(|fault| !fault.is_empty()) {
            let parsed = parse(fault).ok_or(());
            if parsed.and_then(|(function, nth, code)| state.fail(function, nth, code)).is_err() {
                let functions = FALLIBLE.join(", ");
                let _ = writeln!(
                    io::stderr(),
                    "vklayer: {VARIABLE} has {fault:?}, which is not function:nth:negative code of one of {functions}"
                );
                std::process::abort();
            }
        }
        state
    }

    fn fail(&mut self, function: &str, nth: u64, code: i32) -> Result<(), ()> {
        let known = function == ANY || FALLIBLE.contains(&function);
        if !known || nth == 0 || code >= 0 {
            return Err(());
        }
        self.pending.push(Pending { function: function.to_owned(), remaining: nth, code });
        Ok(())
    }

    fn enter(&mut self, function: &'static str) -> Option<i32> {
        *self.calls.entry(function).or_default() += 1;
        let fallible = FALLIBLE.contains(&function);
        let mut due = None;
        self.pending.retain_mut(|fault| {
            if fault.function == function || (fallible && fault.function == ANY) {
                fault.remaining -= 1;
            }
            // Of two faults due at the same call, the one requested first takes effect; both are consumed.
            let spent = fault.remaining == 0;
            if spent {
                due = due.or(Some(fault.code));
            }
            !spent
        });
        if due.is_some() {
            self.last = Some(function);
        }
        due
    }
}

/// `function:nth:code`
fn parse(fault: &str) -> Option<(&str, u64, i32)> {
    let mut parts = fault.trim().split(':');
    let function = parts.next()?;
    let nth = parts.next()?.parse().ok()?;
    let code = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((function, nth, code))
}
