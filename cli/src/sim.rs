//! `vkgdr sim`: leaves everything to vkgdr-sim.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{Failure, Result};

const PROGRAM: &str = "vkgdr-sim";

/// Replaces this process by the vkgdr-sim of PATH, or else by the one beside it; returns only on failure.
pub(crate) fn run(arguments: &[OsString]) -> Result<u8> {
    // Beside this program lies that of the same installation, of which PATH may not know.
    let beside = std::env::current_exe().ok().map(|this| this.with_file_name(PROGRAM));
    for program in [Some(PROGRAM.into()), beside].into_iter().flatten() {
        let error = Command::new(&program).args(arguments).exec();
        if error.kind() != io::ErrorKind::NotFound {
            return Err(format!("{}: {error}", program.display()).into());
        }
    }
    Err(Failure::boxed(
        format!("{PROGRAM} is not installed, or neither in a folder of PATH nor beside vkgdr"),
        "in vkgdr's source tree, `make install-sim PREFIX=$HOME/.local` installs it",
    ))
}
