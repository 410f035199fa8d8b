//! `vkgdr sim`: leaves everything to vkgdr-sim.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, Result};

const PROGRAM: &str = "vkgdr-sim";

/// Replaces this process by the vkgdr-sim of PATH, or else by one beside it; returns only on failure.
pub(crate) fn run(arguments: &[OsString]) -> Result<u8> {
    let places = beside(std::env::args_os().next(), std::env::current_exe().ok());
    for program in [PROGRAM.into()].into_iter().chain(places) {
        let error = Command::new(&program).args(arguments).exec();
        if error.kind() != io::ErrorKind::NotFound {
            return Err(format!("{}: {error}", program.display()).into());
        }
    }
    Err(Failure::boxed(
        format!("{PROGRAM} is neither in a folder of PATH nor beside vkgdr"),
        "`make install-sim PREFIX=$HOME/.local` in vkgdr's source tree installs it, or `pip install` the wheel of `make wheel`",
    ))
}

/// The vkgdr-sim of the same installation, of which PATH may not know: beside the name by which this process was started, then
/// beside its file. The process of the Python command is an interpreter: its name is in the virtual environment, where
/// vkgdr-sim is, too, and its file, to which that is a link, is elsewhere.
fn beside(name: Option<OsString>, file: Option<PathBuf>) -> Vec<PathBuf> {
    // A name without a folder is one of PATH.
    let name = name.map(PathBuf::from).filter(|name| name.parent().is_some_and(|folder| folder != Path::new("")));
    name.into_iter().chain(file).map(|program| program.with_file_name(PROGRAM)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_environment_is_searched_before_the_interpreters_own_folder() {
        let places = |name: &str| beside(Some(name.into()), Some("/usr/bin/python3.13".into()));
        let system = PathBuf::from("/usr/bin/vkgdr-sim");
        assert_eq!(places("/venv/bin/python"), [PathBuf::from("/venv/bin/vkgdr-sim"), system.clone()]);
        assert_eq!(places("venv/bin/python"), [PathBuf::from("venv/bin/vkgdr-sim"), system.clone()]);
        assert_eq!(places("python"), [system]);
        assert_eq!(beside(None, None), [] as [PathBuf; 0]);
    }
}
