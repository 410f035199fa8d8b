//! The macro `report!`: logs a line, and catches a panic of the logger.
#![forbid(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
