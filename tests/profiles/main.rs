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

use std::path::PathBuf;
use std::process::Command;
use support::driver::{self, DriverKind};
use support::{Result, child};

/// What the child of a test says at its end.
const DONE: &str = "done";

/// Runs a check under a profile: in a child that runs `test` of this binary again, or here if this is the child.
fn under(profile: &str, test: &str, check: impl FnOnce() -> Result) -> Result {
    if child::role().as_deref() == Some(profile) {
        check()?;
        child::say(DONE);
        return Ok(());
    }
    let Some(command) = command(profile, test, profile)? else { return Ok(()) };
    assert_eq!(child::run(command)?, [DONE]);
    Ok(())
}

/// The command that runs `test` in `role` under a profile; none, which it says, where there are no profiles.
fn command(profile: &str, test: &str, role: &str) -> Result<Option<Command>> {
    let Some(run) = run() else { return Ok(None) };
    let child = child::command(test, role)?;
    let mut command = Command::new(run);
    command.arg(child.get_program()).args(child.get_args());
    command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("VKGDR_TEST_PROFILE", profile);
    Ok(Some(command))
}

/// `sim/run`, which starts programs under profiles.
fn run() -> Option<PathBuf> {
    let run = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).join("sim/run");
    let usable = driver::kind() == Some(DriverKind::Sim) && run.is_file();
    if !usable {
        eprintln!("skipped: profiles are of the simulated driver, and sim/run starts them");
    }
    usable.then_some(run)
}
