//! `vkgdr sim`: leaves everything to vkgdr-sim.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{Failure, Result};

const PROGRAM: &str = "vkgdr-sim";

/// Replaces this process by vkgdr-sim; returns only on failure.
pub(crate) fn run(arguments: &[OsString]) -> Result<u8> {
    let error = Command::new(PROGRAM).args(arguments).exec();
    if error.kind() != io::ErrorKind::NotFound {
        return Err(format!("{PROGRAM}: {error}").into());
    }
    Err(Failure::boxed(
        format!("{PROGRAM} is not installed, or not in a folder of PATH"),
        "in vkgdr's source tree, `make install-sim PREFIX=$HOME/.local` installs it",
    ))
}
