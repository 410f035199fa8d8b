//! The command `vkgdr`, as the package's console script starts it.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Carries out a command line, whose first word is the program's name, on the process's own stdout and stderr. Returns the
/// exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| vkgdr_cli::run(arguments))
}
