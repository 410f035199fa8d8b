//! Skips with a printed reason.

/// Reports a skip, as the last call of a test that returns a [`Result`](crate::Result).
///
/// # Errors
/// None.
pub fn skip(reason: &str) -> crate::Result {
    eprintln!("skipped: {reason}");
    Ok(())
}

/// Prints `skipped: reason` and returns from the test.
///
/// Takes the arguments of `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        eprintln!("skipped: {}", format_args!($($reason)+));
        return;
    }};
}
