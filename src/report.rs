//! The macro `report!`: logs a line, and catches a panic of the logger. And [`log_failure`], for releases that return no error.
#![forbid(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Error, Result};

/// Logs a line, see [`report!`].
pub(crate) fn line(level: log::Level, target: &str, text: fmt::Arguments<'_>) {
    let logged = catch_unwind(AssertUnwindSafe(|| log::log!(target: target, level, "{text}")));
    // The drop of a panic's payload may panic, too. What that panic carries is never dropped.
    let _ = ManuallyDrop::new(catch_unwind(AssertUnwindSafe(|| drop(logged))));
}

/// Logs a line at a [`log::Level`] with the module as its target. To be called last, when the state is already right, and
/// with no lock held: a logger may call this library, or wait for a thread that does.
macro_rules! report {
    ($level:ident, $($text:tt)+) => {
        $crate::report::line(::log::Level::$level, ::std::module_path!(), ::std::format_args!($($text)+))
    };
}

pub(crate) use report;

/// Logs why something could not be released, where no caller gets the error.
#[inline]
pub(crate) fn log_failure(what: &str, released: Result<()>) {
    match released {
        // A forked child leaves what it inherited to its parent.
        Ok(()) | Err(Error::Forked) => {}
        Err(error) if !error.is_news() => {}
        Err(error) => report!(Warn, "releasing {what}: {error}"),
    }
}
