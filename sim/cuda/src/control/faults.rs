//! Injected failures: each waits for the Nth call of one function, or of any, and fires once.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};

use super::site::{Site, base_name, is_function};
use crate::code::{Code, SUCCESS};
use crate::sync::lock;

struct Fault {
    // `None` stands for any function.
    function: Option<String>,
    calls_left: u64,
    code: Code,
}

struct Faults {
    pending: Vec<Fault>,
    last: Option<&'static str>,
}

static FAULTS: LazyLock<Mutex<Faults>> =
    LazyLock::new(|| Mutex::new(Faults { pending: from_environment(), last: None }));

// Lets a call skip the lock while no fault is pending. Initially true, so that the first call reads the environment.
static ANY_PENDING: AtomicBool = AtomicBool::new(true);

/// Counts the call against the pending faults; the code of one that is due.
pub(super) fn fires(site: &Site, silent: bool) -> Option<Code> {
    if !ANY_PENDING.load(Ordering::Acquire) {
        return None;
    }
    let function = site.base();
    let mut faults = lock(&FAULTS);
    let mut code = None;
    faults.pending.retain_mut(|fault| {
        let meant = fault.function.as_ref().map_or(!silent, |name| name == function);
        if meant {
            fault.calls_left -= 1;
        }
        let due = fault.calls_left == 0;
        if due {
            code = code.or(Some(fault.code));
        }
        !due
    });
    if code.is_some() {
        faults.last = Some(function);
    }
    ANY_PENDING.store(!faults.pending.is_empty(), Ordering::Release);
    code
}

/// Adds a fault. `None` for invalid arguments: an unknown function, call 0, code 0.
pub(crate) fn add(function: &str, nth: u64, code: Code) -> Option<()> {
    let fault = parse(function, nth, code)?;
    let mut faults = lock(&FAULTS);
    faults.pending.push(fault);
    ANY_PENDING.store(true, Ordering::Release);
    Some(())
}

/// Clears the pending faults and the name of the last failed function.
pub(crate) fn clear() {
    let mut faults = lock(&FAULTS);
    faults.pending.clear();
    faults.last = None;
    ANY_PENDING.store(false, Ordering::Release);
}

/// The function that last failed by injection.
pub(crate) fn last() -> Option<&'static str> {
    lock(&FAULTS).last
}

fn parse(function: &str, nth: u64, code: Code) -> Option<Fault> {
    if nth == 0 || code == SUCCESS {
        return None;
    }
    let function = match function {
        "*" => None,
        name if is_function(base_name(name)) => Some(base_name(name).to_owned()),
        _ => return None,
    };
    Some(Fault { function, calls_left: nth, code })
}

// SIMCUDA_FAIL="cuImportExternalMemory:2:999,cuInit:1:100". A mistake ends the process, since a test
// that injects nothing would pass without testing anything.
fn from_environment() -> Vec<Fault> {
    let text = std::env::var("SIMCUDA_FAIL").unwrap_or_default();
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let refuse = |entry| {
        let _ = writeln!(
            io::stderr(),
            "simcuda: SIMCUDA_FAIL has {entry:?}, which is not function:nth:code of a function of this driver"
        );
        std::process::abort()
    };
    entries.map(|entry| parse_entry(entry).unwrap_or_else(|| refuse(entry))).collect()
}

fn parse_entry(entry: &str) -> Option<Fault> {
    let mut parts = entry.split(':');
    let function = parts.next()?;
    let nth = parts.next()?.parse().ok()?;
    let code = parts.next()?.parse().ok()?;
    if parts.next().is_some() { None } else { parse(function, nth, code) }
}
