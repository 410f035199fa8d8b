//! A trace of driver calls: a line each, appended to the file that `SIMCUDA_TRACE` names, so that the simulated driver and
//! the Vulkan layers can write to one file.
#![forbid(unsafe_code)]

use std::fmt::{Arguments, Display};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::LazyLock;

/// The variable that names the file.
pub const VARIABLE: &str = "SIMCUDA_TRACE";

static FILE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os(VARIABLE)?;
    match OpenOptions::new().append(true).create(true).open(&path) {
        Ok(file) => Some(file),
        Err(error) => {
            crate::say!("simcuda: {VARIABLE} is {path:?}, which cannot be opened: {error}");
            None
        }
    }
});

/// Appends the name of a function that was called.
pub fn call(name: impl Display) {
    line(format_args!("{name}"));
}

/// Appends arguments of the call that this thread named last. Lines of other threads may come between the two.
pub fn arguments(text: Arguments<'_>) {
    line(format_args!("  {text}"));
}

fn line(text: Arguments<'_>) {
    if let Some(mut file) = FILE.as_ref() {
        // One write for the whole line, so that lines of several threads and libraries do not mix. A trace that cannot be
        // written must not stop the program.
        let _ = file.write_all(format!("{text}\n").as_bytes());
    }
}
