//! The functions by which tests control the faults layer and read its ledger.
//!
//! The simulated CUDA driver exports the same six functions with the prefix `simcuda_`.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_char;

use crate::faults::injection;
use crate::faults::ledger::{Noun, count};
use crate::interface::{text, write_text};

/// A name passed by a test; `None` for null and for text that is not UTF-8.
///
/// # Safety
/// `pointer` is null or a terminated string that lives as long as the result.
unsafe fn name<'a>(pointer: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { text(pointer) }.and_then(|text| text.to_str().ok())
}

/// Makes the `nth` call of a function from now (1 is the next) return `vk_result`, once; `*` is any of the
/// intercepted functions that can fail. Several may be pending.
///
/// Returns 0, or −1 for an unknown function, a 0th call or a code that is not negative.
///
/// # Safety
/// `function` is null or a terminated string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vklayer_fail(function: *const c_char, nth: u64, vk_result: i32) -> i32 {
    // SAFETY: the caller's promise.
    let function = unsafe { name(function) }.unwrap_or_default();
    injection::fail(function, nth, vk_result).map_or(-1, |()| 0)
}

/// Clears the pending faults and the last one that fired.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn vklayer_clear_faults() {
    injection::clear();
}

/// Writes the name of the function that last failed by injection, terminated and cut to `capacity`; returns its whole
/// length, 0 when none has failed since the faults were cleared.
///
/// # Safety
/// `buffer` is null or writable for `capacity` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vklayer_last_fault(buffer: *mut c_char, capacity: usize) -> usize {
    let last = injection::last().unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe { write_text(last, buffer, capacity) }
}

/// The number of calls of an intercepted function since the library was loaded, including those that were made to
/// fail; null counts all functions that can fail.
///
/// # Safety
/// `function` is null or a terminated string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vklayer_calls(function: *const c_char) -> u64 {
    if function.is_null() {
        return injection::calls(None);
    }
    // SAFETY: the caller's promise.
    let function = unsafe { name(function) }.unwrap_or_default();
    injection::calls(Some(function))
}

/// Live instances, devices, buffers, images, memories, mappings and semaphores.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn vklayer_live_objects() -> usize {
    count(None)
}

/// Live objects of one noun: `instance`, `device`, `buffer`, `image`, `memory`, `mapping` or `semaphore`; `SIZE_MAX` for an unknown noun.
///
/// # Safety
/// `noun` is null or a terminated string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vklayer_live_objects_of(noun: *const c_char) -> usize {
    // SAFETY: the caller's promise.
    let noun = unsafe { name(noun) }.and_then(Noun::named);
    noun.map_or(usize::MAX, |noun| count(Some(noun)))
}
