//! A folder of libraries that are broken in one place, to be found before the system's.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// A folder of its own for a test, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("vkgdr-missing-{}-{name}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A file that the dynamic loader finds, and refuses.
    pub(crate) fn broken(&self, name: &str) -> Result {
        Ok(fs::write(self.0.join(name), "not a library\n")?)
    }

    /// A copy of a file in which each of `changes` replaces bytes by as many others, at least once.
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
        let path = self.0.join(name);
        // A new file each time: a running process may have the old one mapped.
        let _ = fs::remove_file(&path);
        Ok(fs::write(path, bytes)?)
    }

    /// A second name for a file of the folder.
    pub(crate) fn alias(&self, existing: &str, name: &str) -> Result {
        let path = self.0.join(name);
        if !path.exists() {
            symlink(existing, path)?;
        }
        Ok(())
    }

    /// Makes a program look for libraries here first.
    pub(crate) fn first_for(&self, command: &mut Command) {
        let mut path = OsString::from(&self.0);
        if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH") {
            path.push(":");
            path.push(rest);
        }
        command.env("LD_LIBRARY_PATH", path);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind lies in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The simulated CUDA driver's file, whichever driver the tests run on; prints why there is none.
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
