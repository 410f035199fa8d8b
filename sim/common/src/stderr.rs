//! Lines on stderr. One that cannot be written, to a full disk or a closed pipe, is no reason to panic in the
//! program's thread.

use std::fmt::Arguments;
use std::io::{Write as _, stderr};

/// Writes a line to stderr: `say!("simcuda: {what}")`.
#[macro_export]
macro_rules! say {
    ($($line:tt)+) => { $crate::stderr::line(format_args!($($line)+)) };
}

/// Writes a line to stderr, and ends the process.
#[macro_export]
macro_rules! stop {
    ($($line:tt)+) => {{
        $crate::say!($($line)+);
        std::process::abort()
    }};
}

#[doc(hidden)]
pub fn line(line: Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}
