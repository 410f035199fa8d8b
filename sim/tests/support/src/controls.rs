//! The ledger and the fault injection exported by both the simulated driver and the Vulkan layer.
#![expect(unsafe_code, reason = "calls C functions found in a loaded library")]

use std::ffi::{CStr, CString, c_char};

use libloading::Library;

type LiveObjects = unsafe extern "C" fn() -> usize;
type LiveObjectsOf = unsafe extern "C" fn(*const c_char) -> usize;
type Calls = unsafe extern "C" fn(*const c_char) -> u64;
type Fail = unsafe extern "C" fn(*const c_char, u64, i32) -> i32;
type ClearFaults = unsafe extern "C" fn();
pub(crate) type Text = unsafe extern "C" fn(*mut c_char, usize) -> usize;

/// Counts a driver's live objects and calls, and makes chosen calls fail.
///
/// [`SimCuda`](crate::SimCuda) and [`VkLayer`](crate::VkLayer) both dereference to it, so that one sweep serves both.
/// The state is per process: tests that use it run one at a time, or in processes of their own.
#[derive(Debug)]
pub struct Controls {
    live_objects: LiveObjects,
    live_objects_of: LiveObjectsOf,
    calls: Calls,
    fail: Fail,
    clear_faults: ClearFaults,
    last_fault: Text,
}

impl Controls {
    /// Looks up the six functions `<prefix>_live_objects`, … in a library.
    ///
    /// `Err` is the name of the first missing function.
    pub(crate) fn load(library: &Library, prefix: &str) -> Result<Self, String> {
        Ok(Self {
            // SAFETY: both libraries document this name with this signature.
            live_objects: unsafe { find(library, prefix, "live_objects") }?,
            // SAFETY: as above.
            live_objects_of: unsafe { find(library, prefix, "live_objects_of") }?,
            // SAFETY: as above.
            calls: unsafe { find(library, prefix, "calls") }?,
            // SAFETY: as above.
            fail: unsafe { find(library, prefix, "fail") }?,
            // SAFETY: as above.
            clear_faults: unsafe { find(library, prefix, "clear_faults") }?,
            // SAFETY: as above.
            last_fault: unsafe { find(library, prefix, "last_fault") }?,
        })
    }

    /// The number of live objects of all kinds.
    #[must_use]
    pub fn live_objects(&self) -> usize {
        // SAFETY: takes nothing, and the library is never unloaded.
        unsafe { (self.live_objects)() }
    }

    /// The number of live objects of one kind, such as `"memory"` or `"context"`.
    ///
    /// # Panics
    /// When the library has no such kind.
    #[must_use]
    #[track_caller]
    pub fn live_objects_of(&self, noun: &str) -> usize {
        let word = c_string(noun);
        // SAFETY: `word` is a terminated string that outlives the call.
        let count = unsafe { (self.live_objects_of)(word.as_ptr()) };
        assert_ne!(count, usize::MAX, "the library does not count {noun:?}");
        count
    }

    /// The number of calls of `function` since the library was loaded; with `None`, of all functions that can fail.
    #[must_use]
    pub fn calls(&self, function: Option<&str>) -> u64 {
        let name = function.map(c_string);
        let pointer = name.as_deref().map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: `pointer` is null or a terminated string that outlives the call.
        unsafe { (self.calls)(pointer) }
    }

    /// Makes the `nth` call of `function` from now (1 is the next) fail with `code`, once.
    ///
    /// `"*"` stands for any function that can fail. Several faults may be pending.
    ///
    /// # Panics
    /// When the library refuses the fault, for instance because the function does not exist.
    #[track_caller]
    pub fn fail(&self, function: &str, nth: u64, code: i32) {
        let name = c_string(function);
        // SAFETY: `name` is a terminated string that outlives the call.
        let refused = unsafe { (self.fail)(name.as_ptr(), nth, code) };
        assert_eq!(refused, 0, "the fault {function}:{nth}:{code} was refused with {refused}");
    }

    /// Clears the pending faults and the last fired one.
    pub fn clear_faults(&self) {
        // SAFETY: takes nothing, and the library is never unloaded.
        unsafe { (self.clear_faults)() }
    }

    /// The function that failed last by injection, since the faults were cleared.
    #[must_use]
    pub fn last_fault(&self) -> Option<String> {
        text(self.last_fault)
    }
}

/// Reads a string from a function that writes up to `capacity` bytes and returns the whole length, 0 for none.
pub(crate) fn text(function: Text) -> Option<String> {
    let mut buffer = [0_u8; 4096];
    // SAFETY: the buffer is writable for the capacity that is passed.
    let length = unsafe { function(buffer.as_mut_ptr().cast(), buffer.len()) };
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    (length > 0).then(|| String::from_utf8_lossy(&buffer[..end]).into_owned())
}

/// The function `<prefix>_<name>`, or its name as the error if it is missing.
///
/// # Safety
/// `F` must be the function pointer type of this export.
pub(crate) unsafe fn find<F: Copy>(library: &Library, prefix: &str, name: &str) -> Result<F, String> {
    let whole = format!("{prefix}_{name}");
    // SAFETY: the type is right by this function's contract.
    let found = unsafe { library.get::<F>(&whole) };
    found.map(|function| *function).map_err(|_| whole)
}

fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_else(|error| panic!("{text:?} is not a C string: {error}"))
}
