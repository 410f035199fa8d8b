#![expect(unsafe_code, reason = "sets the signal mask of a thread")]
//! Threads of the driver's own.

use std::mem::MaybeUninit;
use std::ptr;
use std::thread::Builder;

use crate::code::{Code, OPERATING_SYSTEM};

/// Signals that the kernel sends to the thread that caused them, and that must not be blocked there.
const SYNCHRONOUS: [libc::c_int; 5] = [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGTRAP];

/// Runs `work` on a new thread that takes no signals sent to the process: they belong to the program's threads, which a signal
/// that is handled here would not wake. Threads that `work` starts inherit this.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Code> {
    let previous = set_mask(&asynchronous());
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    set_mask(&previous);
    thread.map(drop).map_err(|_| OPERATING_SYSTEM)
}

/// All signals but the synchronous ones.
fn asynchronous() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call writes a whole set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: the set was written.
    let mut set = unsafe { set.assume_init() };
    for signal in SYNCHRONOUS {
        // SAFETY: the set is initialized.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    set
}

/// Sets the signals that the calling thread blocks, and returns those that it blocked before.
fn set_mask(set: &libc::sigset_t) -> libc::sigset_t {
    let mut previous = *set;
    // SAFETY: both sets are initialized and live through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::from_ref(set), &raw mut previous) };
    previous
}
