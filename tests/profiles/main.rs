//! The library on other GPUs: each test runs under a device profile of the Vulkan layer `VK_LAYER_VKGDR_profile`
//! (`sim/vulkan/src/profile.rs`).
//!
//! Each test starts itself again through `sim/run` with `VKGDR_TEST_PROFILE`, and the child runs the check. The tests
//! are skipped on a real driver.
#![expect(unsafe_code, reason = "calls Vulkan, and writes through host pointers")]

mod devices;
mod imports;
mod kinds;
mod non_coherent;
mod raw;
mod rules;
mod second_ways;
mod sharing;

use support::{Result, child, profile};

/// The message of a child that succeeded.
const DONE: &str = "done";

/// Whether the tests run under Vulkan's validation layer.
fn validated() -> bool {
    std::env::var_os("VKGDR_TEST_LAYERS").is_some_and(|layers| layers == "validation")
}

/// Runs a check under a profile: in a child that runs `test` of this binary, or here if this is the child.
fn under(name: &str, test: &str, check: impl FnOnce() -> Result) -> Result {
    match child::role() {
        Some(role) if role == name => {
            check()?;
            child::say(DONE);
            return Ok(());
        }
        // A child of the same test under another profile.
        Some(_) => return Ok(()),
        None => {}
    }
    let Some(command) = profile::command(name, test, name)? else { return Ok(()) };
    assert_eq!(child::run(command)?, [DONE]);
    Ok(())
}
