//! Forwards the crate's log lines to Python's `logging`, to the logger "vkgdr".
#![expect(unsafe_code, reason = "queries the interpreter's state of this thread")]

use std::cell::Cell;
use std::io::Write;

use log::{Level, Log, Metadata, Record};
use pyo3::prelude::*;

struct Logger;

/// The numeric level of Python's `logging`.
const fn python_level(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    }
}

/// Whether this thread has a Python thread state: attaching then creates none.
pub(crate) fn is_python_thread() -> bool {
    // SAFETY: may be called on any thread at any time; reads thread-local state only.
    !unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null()
}

thread_local! {
    /// Whether this thread must not wait for the interpreter's lock now.
    static DETACHED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, in which [`attached`] does nothing: log lines are written to the error output.
pub(crate) fn without_python<T>(work: impl FnOnce() -> T) -> T {
    let before = DETACHED.replace(true);
    let result = work();
    DETACHED.set(before);
    result
}

/// Runs `work` attached to the interpreter; None on a thread unknown to Python, in [`without_python`], and while the
/// interpreter ends.
pub(crate) fn attached<T>(work: impl for<'py> FnOnce(Python<'py>) -> T) -> Option<T> {
    if is_python_thread() && !DETACHED.get() { Python::try_attach(work) } else { None }
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
            // A release may run while an exception is set; logging must neither see nor clear it.
            let pending = PyErr::take(py);
            let result = tell(py, record.level(), &text);
            if let Some(pending) = pending {
                pending.restore(py);
            }
            result
        });
        if !matches!(logged, Some(Ok(()))) && record.level() <= Level::Warn {
            // Not `eprintln`, which panics when stderr is closed.
            let _ = writeln!(std::io::stderr(), "vkgdr: {text}");
        }
    }

    fn flush(&self) {}
}

/// Installs the logger.
pub(crate) fn install() {
    // An application that embeds Python may have installed its own logger, which then stays.
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}
