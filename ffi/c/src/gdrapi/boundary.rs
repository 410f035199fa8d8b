//! The boundary around gdrcopy's functions: failures become error numbers, which are all that its interface returns, and the log
//! lines that explain them; a panic does, too. Pointers of the caller's are read and written.
#![expect(unsafe_code, reason = "turns C pointers into references")]

use std::env;
use std::ffi::{c_int, c_void};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use vkgdr_rs::{Error, NoMapping};

use crate::{access, boundary};

/// Values of `CUresult`.
const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NO_DEVICE: i32 = 100;

/// Why a function fails. It is explained where it leaves the library, where no lock is held: standard error may be a pipe that is
/// full.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// An error number, and the reason.
    Told(i32, &'static str),
    /// An error of the crate.
    Library(Error),
}

pub(crate) type Outcome<T = ()> = Result<T, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

/// `EINVAL`.
#[cold]
pub(crate) const fn invalid(reason: &'static str) -> Refusal {
    Refusal::Told(libc::EINVAL, reason)
}

/// Runs the body of an export: 0, or an error number, which is also explained on standard error if `GDRCOPY_ENABLE_LOGGING` is set.
/// A panic is `EIO`.
#[inline]
pub(crate) fn status(body: impl FnOnce() -> Outcome) -> c_int {
    boundary::catch(
        || body().err().map_or(0, explained),
        || explained(Refusal::Told(libc::EIO, "the library panicked")),
    )
}

#[cold]
fn explained(refusal: Refusal) -> c_int {
    let (number, reason) = match refusal {
        Refusal::Told(number, reason) => (number, reason.to_owned()),
        Refusal::Library(error) => (number(&error), error.to_string()),
    };
    if is_logging() {
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

fn number(error: &Error) -> i32 {
    match error {
        Error::System { code, .. } => *code,
        Error::Library { .. } | Error::Symbol { .. } | Error::Forked => libc::ENODEV,
        Error::NoMapping {
            reason: NoMapping::Unknown | NoMapping::Host | NoMapping::Managed | NoMapping::Freed | NoMapping::Empty,
            ..
        } => libc::EINVAL,
        Error::NoMapping { .. } | Error::NoHostView { .. } => libc::EOPNOTSUPP,
        Error::Allocation { .. } => libc::ENOMEM,
        Error::Cuda { code, .. } if code.value() == INVALID_VALUE => libc::EINVAL,
        Error::Cuda { code, .. } if code.value() == NO_DEVICE => libc::ENODEV,
        Error::Cuda { code, .. } if code.value() == OUT_OF_MEMORY => libc::ENOMEM,
        Error::Cuda { .. } | Error::Vulkan { .. } => libc::EIO,
        _ => libc::EINVAL,
    }
}

/// Writes a result.
///
/// # Safety
///
/// `pointer` must be null or good for writing.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) -> Outcome {
    // SAFETY: by this function's contract.
    unsafe { boundary::put(pointer, value) }.map_err(|_| invalid("the pointer to a result is null"))
}

/// The caller's bytes, to read. `EINVAL` if there are none, or more than an object can have.
///
/// # Safety
///
/// `pointer` must be null or good for reading `len` bytes.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    // SAFETY: by this function's contract.
    unsafe { access::bytes(pointer, len) }.map_err(|_| NO_BYTES)
}

/// The caller's bytes, to write. The errors of [`bytes`].
///
/// # Safety
///
/// `pointer` must be null or good for writing `len` bytes.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut c_void, len: usize) -> Outcome<&'a mut [u8]> {
    // SAFETY: by this function's contract.
    unsafe { access::bytes_mut(pointer, len) }.map_err(|_| NO_BYTES)
}

const NO_BYTES: Refusal = invalid("the pointer to the bytes is null, or they are more than an object can have");
