//! Forked children, in which the crate refuses to work.

pub use simsupport::fork::{End, end_of, in_child};
use vkgdr::Error;

use crate::ledger::all_calls;
use crate::{Result, logs};

/// Runs a check in a child, which must neither call a driver nor log.
///
/// # Errors
/// When the system cannot fork.
///
/// # Panics
/// When `check` failed or panicked, called a driver or logged.
#[track_caller]
pub fn in_quiet_child(check: impl FnOnce() -> Result) -> Result {
    // Loads the controls in the parent.
    all_calls();
    logs::capture();
    in_child(|| {
        let before = all_calls();
        check()?;
        assert_eq!(all_calls(), before, "calls of CUDA and Vulkan");
        assert_eq!(logs::captured(), [""; 0]);
        Ok(())
    })
}

/// Checks that an operation was refused in a forked child.
///
/// # Panics
/// When `result` is anything but [`Error::Forked`].
#[track_caller]
pub fn assert_forked<T>(result: vkgdr::Result<T>, what: &str) {
    match result {
        Ok(_) => panic!("{what} succeeded in a forked child"),
        Err(Error::Forked) => {}
        Err(error) => panic!("{what}: {error}"),
    }
}
