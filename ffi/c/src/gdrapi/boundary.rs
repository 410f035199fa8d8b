//! The boundary around gdrcopy's functions. Failures and panics become error numbers, which are all that its interface returns,
//! and the log lines that explain them.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::c_int;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vkgdr_rs::{Error, NoMapping};

use crate::boundary;
use crate::errors::Failure;

/// Values of `CUresult`.
const INVALID_VALUE: i32 = 1;
const NO_DEVICE: i32 = 100;

/// Why a function fails. It is explained where it leaves the library, where no lock is held: standard error may be a pipe that is
/// full.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// An error number, and the reason.
    Told(i32, &'static str),
    /// An error of the crate, or a wrong pointer or size of the caller.
    Failed(Failure),
}

pub(crate) type Outcome<T = ()> = Result<T, Refusal>;

impl<E: Into<Failure>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// `EINVAL`.
#[cold]
pub(crate) const fn invalid(reason: &'static str) -> Refusal {
    Refusal::Told(libc::EINVAL, reason)
}

/// Runs the body of an export: 0, or an error number, which is also explained on standard error if `GDRCOPY_ENABLE_LOGGING` is
/// set. A panic is `EIO`.
#[inline]
pub(crate) fn status(body: impl FnOnce() -> Outcome) -> c_int {
    boundary::catch(
        || body().err().map_or(0, explained),
        || explained(Refusal::Told(libc::EIO, "the library panicked")),
    )
}

/// Locks a mutex; fails in a forked child where a thread of the parent held it at the fork, which never gives it back.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, Error> {
    if vkgdr_rs::is_forked() {
        mutex.try_lock().map_err(|_| Error::Forked)
    } else {
        Ok(mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cold]
fn explained(refusal: Refusal) -> c_int {
    let (number, reason) = match refusal {
        Refusal::Told(number, reason) => (number, reason.to_owned()),
        Refusal::Failed(failure) => (number(&failure), failure.to_string()),
    };
    // In a forked child, a thread of the parent may hold the lock of standard error for ever.
    if is_logging() && !vkgdr_rs::is_forked() {
        // Not `eprintln`, which panics where standard error is a closed pipe.
        let _ = writeln!(io::stderr(), "ERR:  libgdrapi of vkgdr: {reason}");
    }
    number
}

/// Whether errors are printed. The environment is read once, as by gdrcopy: a program may change it while other threads run. Not
/// by a `OnceLock`, which a thread of the parent may hold at a fork.
fn is_logging() -> bool {
    const UNKNOWN: u8 = 2;
    static LOGGING: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = LOGGING.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    let logging = env::var_os("GDRCOPY_ENABLE_LOGGING").is_some();
    LOGGING.store(logging.into(), Ordering::Relaxed);
    logging
}

fn number(failure: &Failure) -> i32 {
    let Failure::Library(error) = failure else { return libc::EINVAL };
    match error {
        Error::System { code, .. } => *code,
        Error::Library { .. } | Error::Symbol { .. } | Error::Forked => libc::ENODEV,
        Error::NoMapping {
            reason: NoMapping::Unknown | NoMapping::Host | NoMapping::Managed | NoMapping::Freed | NoMapping::Empty,
            ..
        } => libc::EINVAL,
        Error::NoMapping { .. } | Error::NoHostView { .. } => libc::EOPNOTSUPP,
        error if error.is_unexported() => libc::EOPNOTSUPP,
        error if error.is_out_of_memory() => libc::ENOMEM,
        Error::Cuda { code, .. } if code.value() == INVALID_VALUE => libc::EINVAL,
        Error::Cuda { code, .. } if code.value() == NO_DEVICE => libc::ENODEV,
        Error::Cuda { .. } | Error::Vulkan { .. } => libc::EIO,
        _ => libc::EINVAL,
    }
}
