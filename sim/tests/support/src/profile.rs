//! Children that run under a device profile of the simulated GPU (`vulkan/src/profile.rs`).

use std::path::PathBuf;
use std::process::Command;

use crate::{Result, child, simcuda, skip};

/// The message of a child that succeeded.
const DONE: &str = "done";

/// Runs a check under a profile: in a child that runs this test, or here if this is the child.
///
/// # Errors
/// Those of `check`, and of starting the child.
///
/// # Panics
/// When the child failed.
#[track_caller]
pub fn under(profile: &str, check: impl FnOnce() -> Result) -> Result {
    match child::role() {
        Some(role) if role == profile => {
            check()?;
            child::say(DONE);
            return Ok(());
        }
        // A child of the same test under another profile.
        Some(_) => return Ok(()),
        None => {}
    }
    let Some(command) = command(profile, profile)? else { return Ok(()) };
    assert_eq!(child::run(command)?, [DONE]);
    Ok(())
}

/// The command that runs this test in `role` under a profile; none, with a message, without the simulated driver.
///
/// # Errors
/// When the path of this binary is not known.
pub fn command(profile: &str, role: &str) -> Result<Option<Command>> {
    let Some(run) = run() else { return Ok(None) };
    let child = child::command(role)?;
    let mut command = Command::new(run);
    command.arg(child.get_program()).args(child.get_args());
    command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("VKGDR_TEST_PROFILE", profile);
    Ok(Some(command))
}

/// The path of the simulator's `run`, which starts programs under profiles. It lies above the folders of its packages, and beside
/// those of others, in `sim`.
fn run() -> Option<PathBuf> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let mut paths = package.ancestors().flat_map(|folder| [folder.join("run"), folder.join("sim/run")]);
    let usable = paths.find(|run| run.is_file()).filter(|_| simcuda().is_some());
    if usable.is_none() {
        eprintln!("skipped: device profiles need the simulated driver and its script `run`");
    }
    usable
}

/// The path of `vkgdr-sim`, which starts any program under a profile. `None`, with a message, if the driver is not the
/// simulated one.
///
/// # Errors
/// When `VKGDR_SIM_DIR` is not set.
pub fn simulator() -> Result<Option<PathBuf>> {
    if simcuda().is_none() {
        return skip("profiles are of the simulated driver");
    }
    let folder = std::env::var_os("VKGDR_SIM_DIR").ok_or("VKGDR_SIM_DIR is not set")?;
    Ok(Some(PathBuf::from(folder).join("vkgdr-sim")))
}
