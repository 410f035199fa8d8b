//! The library on other GPUs: each test runs under a device profile of the Vulkan layer `VK_LAYER_VKGDR_profile`
//! (`sim/vulkan/src/profile.rs`).
//!
//! Each test starts itself again through `sim/run` with `VKGDR_TEST_PROFILE`, and the child runs the check. The tests
//! are skipped on a real driver.
#![expect(unsafe_code, reason = "calls Vulkan, and writes through host pointers")]

mod devices;
mod dma_buf;
mod existing;
mod imports;
mod kinds;
mod non_coherent;
mod raw;
mod rules;
mod second_ways;
mod sharing;

use std::os::unix::process::ExitStatusExt;

use support::Result;
use support::profile::{command, under};

/// Whether the tests run under Vulkan's validation layer.
fn validated() -> bool {
    std::env::var_os("VKGDR_TEST_LAYERS").is_some_and(|layers| layers == "validation")
}

/// The errors that this test prints after `now`, in `role` under a profile, where it must abort; none, with a message, without the
/// simulated driver.
#[track_caller]
fn aborted(profile: &str, role: &str) -> Result<Option<String>> {
    let Some(mut command) = command(profile, role)? else { return Ok(None) };
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
    Ok(errors.rsplit("now\n").next().map(str::to_owned))
}
