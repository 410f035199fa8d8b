//! Injected failures of driver functions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};

use simcommon::faults::{ANY, Faults, base_name};

use super::site::{Site, is_function};
use crate::code::{Code, SUCCESS};
use crate::sync::lock;

/// `SIMCUDA_FAIL="cuImportExternalMemory:2:999,cuInit:1:100"` has the first ones.
const VARIABLE: &str = "SIMCUDA_FAIL";

static FAULTS: LazyLock<Mutex<Faults>> = LazyLock::new(|| {
    let what = "function:nth:code of a function of this driver";
    Mutex::new(Faults::from_environment("simcuda", VARIABLE, check, what))
});

// Lets a call skip the lock while no fault is pending. Initially true, so that the first call reads the environment.
static ANY_PENDING: AtomicBool = AtomicBool::new(true);

/// The name of a function without its suffixes.
fn check(function: &str, code: Code) -> Option<&str> {
    let base = base_name(function);
    (code != SUCCESS && (base == ANY || is_function(base))).then_some(base)
}

/// Counts the call against the pending faults; the code of one that is due.
pub(super) fn fires(site: &Site, silent: bool) -> Option<Code> {
    if !ANY_PENDING.load(Ordering::Acquire) {
        return None;
    }
    let mut faults = lock(&FAULTS);
    let code = faults.count(site.base(), !silent);
    ANY_PENDING.store(!faults.is_empty(), Ordering::Release);
    code
}

/// Adds a fault. `None` for invalid arguments: an unknown function, call 0, code 0.
pub(crate) fn add(function: &str, nth: u64, code: Code) -> Option<()> {
    let mut faults = lock(&FAULTS);
    faults.add(function, nth, code, check)?;
    ANY_PENDING.store(true, Ordering::Release);
    Some(())
}

/// Clears the pending faults and the name of the last failed function.
pub(crate) fn clear() {
    let mut faults = lock(&FAULTS);
    *faults = Faults::default();
    ANY_PENDING.store(false, Ordering::Release);
}

/// The function that last failed by injection.
pub(crate) fn last() -> Option<&'static str> {
    lock(&FAULTS).last()
}
