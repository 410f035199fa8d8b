//! Assertions on results and errors.

use std::fmt::Debug;

/// Returns the error of a call that must fail.
///
/// # Panics
/// When the call succeeded.
#[track_caller]
pub fn refused<T: Debug>(result: vkgdr::Result<T>) -> vkgdr::Error {
    match result {
        Ok(value) => panic!("expected an error, got {value:?}"),
        Err(error) => error,
    }
}

/// Checks that the error's text is one line without a full stop and contains all of `parts`.
///
/// # Panics
/// When the check fails.
#[track_caller]
pub fn assert_says(error: &vkgdr::Error, parts: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "more than one line: {text:?}");
    assert!(!text.ends_with('.'), "ends with a full stop: {text:?}");
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}
