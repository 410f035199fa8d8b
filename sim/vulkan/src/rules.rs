//! Violations of Vulkan's rules, which end the process.
#![forbid(unsafe_code)]

use std::io::{self, Write};

/// Ends the process with the rule that a call violates.
pub(crate) fn broken(function: &str, rule: &str) -> ! {
    let _ = writeln!(io::stderr(), "vklayer: {function}: {rule}");
    std::process::abort();
}
