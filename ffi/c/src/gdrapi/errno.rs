//! Error numbers for failures, and the log lines that explain them.
//!
//! gdrcopy's interface returns nothing but these numbers.
#![forbid(unsafe_code)]

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use vkgdr_rs::{Error, NoMapping};

/// Values of `CUresult`.
const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NO_DEVICE: i32 = 100;

/// The error number of a failure, which is also printed on standard error if `GDRCOPY_ENABLE_LOGGING` is set.
#[cold]
pub(crate) fn of(error: &Error) -> i32 {
    explained(number(error), error)
}

/// A failure that is found under a lock, which no line may be printed under: standard error may be a pipe that is full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    number: i32,
    reason: &'static str,
}

impl Refusal {
    #[cold]
    pub(crate) const fn new(number: i32, reason: &'static str) -> Self {
        Self { number, reason }
    }

    /// The error number, explained as [`of`] explains failures.
    #[cold]
    pub(crate) fn explained(self) -> i32 {
        explained(self.number, self.reason)
    }
}

/// `EINVAL`, explained as [`of`] explains failures.
#[cold]
pub(crate) fn invalid(reason: &str) -> i32 {
    explained(libc::EINVAL, reason)
}

/// An error number, explained as [`of`] explains failures.
#[cold]
pub(crate) fn explained(number: i32, reason: impl Display) -> i32 {
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
