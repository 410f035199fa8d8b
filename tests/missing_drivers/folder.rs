//! A folder of libraries with one defect each, searched before the system's.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{TempDir, tempdir};

use crate::Result;

/// A test's temporary folder, removed on drop.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(tempdir()?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file that the dynamic loader finds and rejects.
    pub(crate) fn broken(&self, name: &str) -> Result {
        Ok(fs::write(self.path().join(name), "not a library\n")?)
    }

    /// A copy of a file in which each of `changes` replaces bytes by others of the same length, at least once.
    pub(crate) fn patched(&self, original: &Path, name: &str, changes: &[(&[u8], &[u8])]) -> Result {
        let mut bytes = fs::read(original)?;
        for (old, new) in changes {
            assert_eq!(old.len(), new.len());
            let places: Vec<_> =
                bytes.windows(old.len()).enumerate().filter(|(_, w)| w == old).map(|(i, _)| i).collect();
            let text = String::from_utf8_lossy(old);
            assert!(!places.is_empty(), "{} does not contain {text:?}", original.display());
            for place in places {
                bytes[place..place + new.len()].copy_from_slice(new);
            }
        }
        let path = self.path().join(name);
        // A new inode: a running process may have the old file mapped.
        let _ = fs::remove_file(&path);
        Ok(fs::write(path, bytes)?)
    }

    /// A second name of a file in the folder.
    pub(crate) fn alias(&self, existing: &str, name: &str) -> Result {
        let path = self.path().join(name);
        if !path.exists() {
            symlink(existing, path)?;
        }
        Ok(())
    }

    /// Makes a program search this folder first.
    pub(crate) fn first_for(&self, command: &mut Command) {
        let mut path = OsString::from(self.path());
        if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH") {
            path.push(":");
            path.push(rest);
        }
        command.env("LD_LIBRARY_PATH", path);
    }
}

/// The simulated CUDA driver's file, whichever driver the tests run on; none, with a message, if it is not built.
pub(crate) fn simulator() -> Option<PathBuf> {
    let named = std::env::var_os("VKGDR_SIM_DIR").map(PathBuf::from);
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let candidates = named.into_iter().chain(std::env::split_paths(&listed)).map(|folder| folder.join("libcuda.so.1"));
    let found = candidates.into_iter().find(|file| fs::read(file).is_ok_and(|bytes| is_simulator(&bytes)));
    if found.is_none() {
        eprintln!("skipped: the simulated CUDA driver is not built (make sim)");
    }
    found
}

fn is_simulator(bytes: &[u8]) -> bool {
    let symbol = b"\0simcuda_live_objects\0";
    bytes.windows(symbol.len()).any(|window| window == symbol)
}
