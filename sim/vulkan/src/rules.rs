//! Violations of Vulkan's rules, which end the process.
#![forbid(unsafe_code)]

/// Ends the process with the rule that a call violates.
pub(crate) fn broken(function: &str, rule: &str) -> ! {
    simcommon::stop!("vklayer: {function}: {rule}")
}
