//! Amounts of work.

/// Whether `VKGDR_TEST_ALL=1` is set: then tests also run their slow repetitions, such as with every compiler, or for longer.
#[must_use]
pub fn test_all() -> bool {
    std::env::var_os("VKGDR_TEST_ALL").is_some_and(|value| value == "1")
}

/// An amount of work: that of every run, and the larger one of [`test_all`].
pub fn amount<T>(quick: T, all: T) -> T {
    if test_all() { all } else { quick }
}

/// The number in an environment variable, such as `VKGDR_STEPS`; none if it is not set.
///
/// # Panics
/// When it is not a number.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is '{text}'; it must be a number")))
}
