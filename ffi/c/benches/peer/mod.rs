//! The peer: the C functions of vkgdr 0.1, which the extension module in its wheel on PyPI exports beside those for
//! Python.
//!
//! The module needs an interpreter only when Python calls it, so that it is loaded without one: the functions of Python
//! that it names are looked up when they are called, which nothing here does.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

/// Names the module; otherwise it is searched where `cargo xtask bench` installs it.
const VARIABLE: &str = "VKGDR_PEER_LIBRARY";

/// Python's `None`. The dynamic loader looks up data when it loads a module, other than functions, and this is all that
/// the module refers to: nothing reads it. `build.rs` has the linker export it.
#[unsafe(no_mangle)]
#[used]
static _Py_NoneStruct: [usize; 4] = [0; 4];

/// Loads the module. Its functions have the names of ours: they are found by this handle only, and the module itself
/// calls none of them.
pub(crate) fn load() -> Result<Library, Box<dyn Error>> {
    let path = find().ok_or("vkgdr 0.1 is not installed: make bench installs it")?;
    std::hint::black_box(&raw const _Py_NoneStruct);
    // SAFETY: loading the module runs no code of its own.
    let loaded = unsafe { Library::open(Some(&path), RTLD_LAZY | RTLD_LOCAL) };
    Ok(loaded.map_err(|error| format!("{}: {}", path.display(), source(&error)))?)
}

/// The dynamic loader's message.
fn source(error: &libloading::Error) -> String {
    error.source().unwrap_or(error).to_string()
}

fn find() -> Option<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE) {
        return Some(path.into());
    }
    // This program is `target/PROFILE/deps/…`.
    let program = env::current_exe().ok()?;
    let interpreters = fs::read_dir(program.ancestors().nth(3)?.join("python/peer/lib")).ok()?;
    let packages = interpreters.flatten().map(|folder| folder.path().join("site-packages/vkgdr"));
    let files = packages.filter_map(|package| fs::read_dir(package).ok()).flatten().flatten();
    files.map(|file| file.path()).find(|path| path.extension().is_some_and(|extension| extension == "so"))
}
