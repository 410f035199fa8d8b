//! What the library makes of GPUs that the simulated one is not: each test runs under a profile of the Vulkan layer
//! `VK_LAYER_VKGDR_profile` (`sim/vulkan/src/profile.rs`).
//!
//! A test is a process of its own, which `sim/run` starts with `VKGDR_TEST_PROFILE`; under that profile it is the
//! check itself. They are skipped on a real driver.
#![expect(unsafe_code, reason = "calls Vulkan, and writes through host pointers")]

mod devices;
mod kinds;
mod non_coherent;
mod raw;
mod rules;

use support::{Result, child, profile};

/// What the child of a test says at its end.
const DONE: &str = "done";

/// Runs a check under a profile: in a child that runs `test` of this binary again, or here if this is the child.
fn under(name: &str, test: &str, check: impl FnOnce() -> Result) -> Result {
    if child::role().as_deref() == Some(name) {
        check()?;
        child::say(DONE);
        return Ok(());
    }
    let Some(command) = profile::command(name, test, name)? else { return Ok(()) };
    assert_eq!(child::run(command)?, [DONE]);
    Ok(())
}
