//! What runs attached to the interpreter and what detached, the log lines that it gets, and waits that its signals interrupt.
#![expect(unsafe_code, reason = "queries the interpreter's state of this thread")]

use std::cell::Cell;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, Log, Metadata, Record};
use pyo3::exceptions::{PyImportError, PyValueError};
use pyo3::ffi::{PyGILState_Ensure, PyGILState_Release, PyInterpreterState_Get, PyInterpreterState_GetID};
use pyo3::prelude::*;

/// Locks a mutex whose holders leave it whole when they panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails in a subinterpreter, which PyO3 refuses from Python 3.12 on only.
pub(crate) fn check_main() -> PyResult<()> {
    // SAFETY: the thread that imports the module is attached.
    let current = unsafe { PyInterpreterState_Get() };
    // SAFETY: an interpreter of an attached thread lives.
    let is_main = unsafe { PyInterpreterState_GetID(current) } == 0;
    if is_main { Ok(()) } else { Err(PyImportError::new_err("vkgdr does not support subinterpreters")) }
}

/// Whether the interpreter ends.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Called at the interpreter's end, when others, such as `pycuda.autoinit`, destroy their contexts.
#[pyfunction]
pub(crate) fn interpreter_ends() {
    ENDING.store(true, Ordering::Relaxed);
    ENDS_HERE.set(true);
}

/// Whether what is in contexts of others is left to the end of the process.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

thread_local! {
    /// Whether this thread ends the interpreter.
    static ENDS_HERE: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread must not wait for the interpreter's lock: [`attached`] does nothing, log lines go to the error output.
    pub(crate) static WITHOUT_PYTHON: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is known to Python, and not [`WITHOUT_PYTHON`].
fn may_attach() -> bool {
    // SAFETY: may be called on any thread at any time; reads thread-local state only.
    !unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null() && !WITHOUT_PYTHON.get()
}

/// Runs `work` attached to the interpreter; `None` on a thread unknown to Python or [`WITHOUT_PYTHON`], and at its end.
pub(crate) fn attached<T>(work: impl for<'py> FnOnce(Python<'py>) -> T) -> Option<T> {
    if may_attach() { Python::try_attach(work) } else { None }
}

/// [`attached`], for calls of other libraries. These may let go of the interpreter within a call of ours, as PyTorch does when we
/// drop a tensor. PyO3 takes the thread for attached all the same.
pub(crate) fn attached_anew<T>(work: impl for<'py> FnOnce(Python<'py>) -> T) -> Option<T> {
    // SAFETY: a thread of Python; not while another one ends the interpreter, for which this would wait without end.
    let before = (may_attach() && (!is_ending() || ENDS_HERE.get())).then(|| unsafe { PyGILState_Ensure() });
    let done = attached(work);
    // SAFETY: ends what began above.
    before.into_iter().for_each(|before| unsafe { PyGILState_Release(before) });
    done
}

/// Runs `work`, detached from the interpreter where this thread is attached.
pub(crate) fn detached<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let done = attached(|py| work.take().map(|work| py.detach(work)));
    done.flatten().unwrap_or_else(|| work.take().expect("not run attached")())
}

/// A value whose drop may wait: it is dropped detached from the interpreter, since another thread may be what it waits for.
/// Not to be dropped under a lock that attached threads take.
pub(crate) struct Detached<T: Send> {
    /// `None` during the drop only.
    value: Option<T>,
    /// Whether it is in a context that nothing of this package keeps alive.
    in_others_context: bool,
}

impl<T: Send> Detached<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: Some(value), in_others_context: false }
    }

    /// A value in a context, which this package retains, or which others may destroy at the interpreter's end.
    pub(crate) const fn in_context(value: T, is_retained: bool) -> Self {
        Self { value: Some(value), in_others_context: !is_retained }
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("only the drop takes the value")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if self.in_others_context && is_ending() {
            let _left = ManuallyDrop::new(value);
        } else {
            detached(|| drop(value));
        }
    }
}

/// Repeats a wait of the crate in slices, detached from the interpreter, while `timed_out` says so of its result and the seconds
/// are not over. Returns the last result. Python's signal handlers run in between.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    seconds: Option<f64>,
    work: impl Fn(Duration) -> T + Sync,
    timed_out: impl Fn(&T) -> bool,
) -> PyResult<T> {
    const SLICE: Duration = Duration::from_millis(50);
    if seconds.is_some_and(f64::is_nan) {
        return Err(PyValueError::new_err("timeout is not a number"));
    }
    // What no `Duration` can hold is no limit, and a negative timeout is 0.
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let result = py.detach(|| work(left.min(SLICE)));
        if left <= SLICE || !timed_out(&result) {
            return Ok(result);
        }
        py.check_signals()?;
    }
}

/// Forwards the crate's log lines to Python's `logging`, to the logger "vkgdr".
pub(crate) struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let text = record.args().to_string();
        let logged = attached(|py| {
            // A release may run while an exception is set; logging must neither see nor clear it.
            let pending = PyErr::take(py);
            // The numeric levels of `logging`, from 40 for an error down to 10.
            let level = 50 - 10 * record.level().min(Level::Debug) as usize;
            let logger = py.import("logging").and_then(|logging| logging.call_method1("getLogger", ("vkgdr",)));
            let result = logger.and_then(|logger| logger.call_method1("log", (level, "%s", &text)).map(drop));
            pending.into_iter().for_each(|pending| pending.restore(py));
            result
        });
        if !matches!(logged, Some(Ok(()))) && record.level() <= Level::Warn {
            // Not `eprintln`, which panics when stderr is closed.
            let _ = writeln!(std::io::stderr(), "vkgdr: {text}");
        }
    }

    fn flush(&self) {}
}
