//! Skips with a printed reason.

use std::fmt::Display;

/// What a test, or a helper that may skip it, returns.
pub trait Passed {
    /// The value of a test that passed, and of a helper that has nothing to give.
    fn passed() -> Self;
}

impl Passed for () {
    fn passed() {}
}

impl<T: Default> Passed for crate::Result<T> {
    fn passed() -> Self {
        Ok(T::default())
    }
}

/// Reports a skip, as the last call of a test.
pub fn skip<T: Passed>(reason: impl Display) -> T {
    eprintln!("skipped: {reason}");
    T::passed()
}

/// Prints `skipped: reason` and returns from the test.
///
/// Takes the arguments of `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {
        return $crate::skip(format_args!($($reason)+))
    };
}

/// The simulated driver. On another one, prints `skipped: reason` and returns from the test.
#[macro_export]
macro_rules! simulated {
    ($reason:literal) => {
        match $crate::simcuda() {
            Some(driver) => driver,
            None => $crate::skip!($reason),
        }
    };
}
