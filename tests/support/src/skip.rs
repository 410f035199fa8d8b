//! Skips with a printed reason. On a machine that should have a GPU, its absence is a failure.

/// Whether `VKGDR_TEST_ALL=1` is set: then tests also run their slow repetitions, such as with every compiler, or for longer.
#[must_use]
pub fn test_all() -> bool {
    std::env::var_os("VKGDR_TEST_ALL").is_some_and(|value| value == "1")
}

/// An amount of work: that of every run, and the larger one of [`test_all`].
pub fn amount<T>(quick: T, all: T) -> T {
    if test_all() { all } else { quick }
}

/// Whether `VKGDR_REQUIRE_GPU=1` is set, which turns skips for want of a GPU into failures.
#[must_use]
pub fn require_gpu() -> bool {
    std::env::var_os("VKGDR_REQUIRE_GPU").is_some_and(|value| value == "1")
}

/// Reports a skip for want of a GPU. Used by [`skip_without_gpu!`](crate::skip_without_gpu).
///
/// # Panics
/// When [`require_gpu`] holds.
#[track_caller]
pub fn skip_reason_is_no_gpu(reason: &str) {
    assert!(!require_gpu(), "VKGDR_REQUIRE_GPU=1, but there is no GPU: {reason}");
    eprintln!("skipped: {reason}");
}

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

/// Returns from the test when there is no real GPU; with `VKGDR_REQUIRE_GPU=1` it panics instead.
///
/// On a machine with a GPU (see [`driver::has_gpu`](crate::driver::has_gpu)) it does nothing. Takes the arguments
/// of `format!`.
#[macro_export]
macro_rules! skip_without_gpu {
    ($($reason:tt)+) => {
        if !$crate::driver::has_gpu() {
            $crate::skip_reason_is_no_gpu(&format!($($reason)+));
            return;
        }
    };
}
