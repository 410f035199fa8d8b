#![expect(unsafe_code, reason = "calls Python's C functions, in programs that have them")]
//! Python's signal handlers during a wait for the device: Ctrl-C, and test runners' time-outs.
//!
//! Python only notes a signal; its handler runs when the main thread is back in the interpreter, which is never while that
//! thread waits for a kernel that never ends. So the wait runs the handlers. One that returns changes nothing: the wait goes
//! on, as it does in programs in C, whose handlers run at once. One that raises ends the work that is waited for, and its
//! exception is raised when the driver has returned to the interpreter.
//!
//! Python's lock is taken only after a signal: other threads may hold it while they wait for locks of this thread.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use libloading::os::unix::Library;

use crate::sync::lock;

/// Objects of Python's: the type, the value and the traceback of an exception, owned.
type Exception = [usize; 3];

/// Exceptions that wait for the interpreter.
static RAISED: Mutex<VecDeque<Exception>> = Mutex::new(VecDeque::new());

/// Functions of Python's stable C interface. `usize` stands for `PyObject *`, `c_int` for `PyGILState_STATE`.
struct Python {
    is_initialized: unsafe extern "C" fn() -> c_int,
    this_thread: unsafe extern "C" fn() -> *const c_void,
    ensure: unsafe extern "C" fn() -> c_int,
    release: unsafe extern "C" fn(c_int),
    occurred: unsafe extern "C" fn() -> usize,
    check_signals: unsafe extern "C" fn() -> c_int,
    fetch: unsafe extern "C" fn(*mut usize, *mut usize, *mut usize),
    restore: unsafe extern "C" fn(usize, usize, usize),
    add_pending_call: unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int,
}

/// A function of the program; its type is that of the field that it is for.
macro_rules! function {
    ($program:ident, $name:literal) => {
        // SAFETY: Python documents this prototype, and has kept it since 3.2.
        *unsafe { $program.get($name) }.ok()?
    };
}

impl Python {
    /// None if the program has no Python, or a private one.
    fn find() -> Option<Python> {
        let program = Library::this();
        Some(Python {
            is_initialized: function!(program, b"Py_IsInitialized"),
            this_thread: function!(program, b"PyGILState_GetThisThreadState"),
            ensure: function!(program, b"PyGILState_Ensure"),
            release: function!(program, b"PyGILState_Release"),
            occurred: function!(program, b"PyErr_Occurred"),
            check_signals: function!(program, b"PyErr_CheckSignals"),
            fetch: function!(program, b"PyErr_Fetch"),
            restore: function!(program, b"PyErr_Restore"),
            add_pending_call: function!(program, b"Py_AddPendingCall"),
        })
    }

    /// Whether the calling thread is one of a running interpreter's.
    fn knows_this_thread(&self) -> bool {
        // SAFETY: may be called at any time.
        let running = unsafe { (self.is_initialized)() } != 0;
        // SAFETY: as above.
        running && !unsafe { (self.this_thread)() }.is_null()
    }

    /// Runs the handlers of the signals that came. Python's lock is held. Returns whether one raised.
    fn run_handlers(&self) -> bool {
        // SAFETY: Python's lock is held.
        let busy = unsafe { (self.occurred)() } != 0;
        // An exception of the calling code must not be lost.
        // SAFETY: Python's lock is held, and no exception is set.
        if busy || unsafe { (self.check_signals)() } == 0 {
            return false;
        }
        let mut exception = Exception::default();
        let [kind, value, traceback] = &mut exception;
        // SAFETY: Python's lock is held; the pointers are valid for the call.
        unsafe { (self.fetch)(kind, value, traceback) };
        lock(&RAISED).push_back(exception);
        // SAFETY: `raise` has the type that is asked for.
        let added = unsafe { (self.add_pending_call)(raise, std::ptr::null_mut()) } == 0;
        if !added {
            // The interpreter finds the exception set when the driver's function has returned.
            self.restore();
        }
        true
    }

    /// Sets the first exception that waits. Python's lock is held. Returns whether there was one.
    fn restore(&self) -> bool {
        let Some([kind, value, traceback]) = lock(&RAISED).pop_front() else { return false };
        // SAFETY: Python's lock is held; the objects are owned, and given away.
        unsafe { (self.restore)(kind, value, traceback) };
        true
    }
}

/// What the interpreter calls in its main thread.
unsafe extern "C" fn raise(_: *mut c_void) -> c_int {
    if Python::find().is_some_and(|python| python.restore()) { -1 } else { 0 }
}

/// After a signal in the calling thread, which holds no lock of the driver: runs Python's handlers, if it is the main thread of
/// a Python program. Returns whether one raised an exception, so that the wait is to end.
pub(crate) fn handler_raised() -> bool {
    // SAFETY: the call has no arguments.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    if thread != i64::from(std::process::id()) {
        return false;
    }
    let Some(python) = Python::find().filter(Python::knows_this_thread) else { return false };
    // SAFETY: the interpreter runs, and knows the thread.
    let state = unsafe { (python.ensure)() };
    let raised = python.run_handlers();
    // SAFETY: undoes the call above, on the same thread.
    unsafe { (python.release)(state) };
    raised
}
