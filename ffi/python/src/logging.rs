//! The crate's log lines, for Python's `logging`: the logger is called "vkgdr".
#![expect(unsafe_code, reason = "asks the interpreter about this thread")]

use std::io::Write;

use log::{Level, Log, Metadata, Record};
use pyo3::prelude::*;

struct Logger;

/// The level as Python's `logging` counts.
const fn python_level(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    }
}

/// Whether Python has run on this thread, so that running it again neither makes a thread state nor surprises anybody.
pub(crate) fn is_python_thread() -> bool {
    // SAFETY: may be called on any thread at any time, and only looks.
    !unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null()
}

/// Runs `work` attached to the interpreter; none on a thread that Python does not know, and when Python is ending.
pub(crate) fn attached<T>(work: impl for<'py> FnOnce(Python<'py>) -> T) -> Option<T> {
    if is_python_thread() { Python::try_attach(work) } else { None }
}

fn tell(py: Python<'_>, level: Level, text: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("vkgdr",))?;
    logger.call_method1("log", (python_level(level), "%s", text)).map(drop)
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let text = record.args().to_string();
        let logged = attached(|py| -> PyResult<()> {
            // A release may run while an exception is on its way.
            let pending = PyErr::take(py);
            let result = tell(py, record.level(), &text);
            if let Some(pending) = pending {
                pending.restore(py);
            }
            result
        });
        if !matches!(logged, Some(Ok(()))) && record.level() <= Level::Warn {
            // Not `eprintln`, which panics where nobody can be told.
            let _ = writeln!(std::io::stderr(), "vkgdr: {text}");
        }
    }

    fn flush(&self) {}
}

/// Sends the crate's log lines to Python.
pub(crate) fn install() {
    // Whoever was first keeps it: an application that embeds Python and logs itself.
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}
