#![expect(unsafe_code, reason = "exports the test controls as C symbols")]
//! The test controls, as C functions. They are no part of the CUDA driver API, are never counted or failed, and
//! may be called from any thread at any time. The crate's own page describes them.

use simcommon::faults::base_name;

use crate::code::{INVALID_VALUE, SUCCESS};
use crate::control;
use crate::control::faults;
use crate::control::site::calls_of;
use crate::ffi::{Out, Text, write_text};
use crate::kernel::fault;
use crate::ledger;

/// The number of live objects of all nouns.
#[unsafe(no_mangle)]
extern "C" fn simcuda_live_objects() -> usize {
    ledger::total()
}

/// The number of live objects of one noun; `usize::MAX` for an unknown noun.
#[unsafe(no_mangle)]
extern "C" fn simcuda_live_objects_of(noun: Text<'_>) -> usize {
    noun.read().and_then(ledger::of).unwrap_or(usize::MAX)
}

/// The number of calls of a driver function since the library was loaded; null means all functions.
#[unsafe(no_mangle)]
extern "C" fn simcuda_calls(function: Text<'_>) -> u64 {
    match function.read() {
        Some(name) => calls_of(base_name(name)),
        None => control::all_calls(),
    }
}

/// Makes the `nth` call from now of `function` (`*`: of any) return `code`. Returns 0, or 1 for invalid arguments.
#[unsafe(no_mangle)]
extern "C" fn simcuda_fail(function: Text<'_>, nth: u64, code: i32) -> i32 {
    let added = function.read().and_then(|name| faults::add(name, nth, code));
    if added.is_some() { SUCCESS } else { INVALID_VALUE }
}

/// Clears the pending faults, the name of the last failed function and the last kernel fault.
#[unsafe(no_mangle)]
extern "C" fn simcuda_clear_faults() {
    faults::clear();
    fault::forget();
}

/// Writes the name of the function that last failed by injection. Returns its length, 0 if none has failed so.
#[unsafe(no_mangle)]
extern "C" fn simcuda_last_fault(buffer: Out<u8>, capacity: usize) -> usize {
    let name = faults::last().unwrap_or_default();
    // A buffer that is null or too small still gets the length.
    let _ = write_text(buffer, capacity, name);
    name.len()
}

/// Writes the text of the last kernel fault. Returns its length, 0 without a fault.
#[unsafe(no_mangle)]
extern "C" fn simcuda_last_kernel_fault(buffer: Out<u8>, capacity: usize) -> usize {
    let text = fault::last().unwrap_or_default();
    let _ = write_text(buffer, capacity, &text);
    text.len()
}
