//! Forked children that run a check and report its result by their exit code.
#![expect(unsafe_code, reason = "forks")]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vkgdr::Error;

use crate::ledger::all_calls;
use crate::{Result, logs};

/// Seconds after which a hanging child is killed.
const TIMEOUT: u32 = 60;

/// The end of a child as seen by the parent.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It exited, with this status.
    Exit(i32),
    /// This signal ended it.
    Signal(i32),
}

/// Forks a child that runs `child` and exits with the returned code, without running destructors. The parent's values
/// are unchanged.
///
/// # Errors
/// When the system cannot fork.
///
/// # Panics
/// When the child cannot be waited for.
pub fn end_of(child: impl FnOnce() -> i32) -> Result<End> {
    // SAFETY: the other threads of a test process wait for this one and hold no lock needed by the child.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error().into()),
        0 => {
            // SAFETY: async-signal-safe; kills a hanging child.
            unsafe { libc::alarm(TIMEOUT) };
            let code = child();
            // SAFETY: runs none of the parent's handlers.
            unsafe { libc::_exit(code) }
        }
        pid => pid,
    };
    let mut status = 0;
    // SAFETY: `status` is a valid output.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid, "{}", std::io::Error::last_os_error());
    Ok(if libc::WIFEXITED(status) { End::Exit(libc::WEXITSTATUS(status)) } else { End::Signal(libc::WTERMSIG(status)) })
}

/// Runs `check` in a forked child.
///
/// # Errors
/// When the system cannot fork.
///
/// # Panics
/// When `check` failed or panicked.
#[track_caller]
pub fn in_child(check: impl FnOnce() -> Result) -> Result {
    assert_eq!(end_of(|| i32::from(!succeeds(check)))?, End::Exit(0), "the child failed, see above");
    Ok(())
}

/// Runs a check in a child, which must neither call a driver nor log.
///
/// # Errors
/// When the system cannot fork.
///
/// # Panics
/// When `check` failed or panicked, called a driver or logged.
#[track_caller]
pub fn in_quiet_child(check: impl FnOnce() -> Result) -> Result {
    // Loads the controls in the parent.
    all_calls();
    logs::capture();
    in_child(|| {
        let before = all_calls();
        check()?;
        assert_eq!(all_calls(), before, "calls of CUDA and Vulkan");
        assert_eq!(logs::captured(), [""; 0]);
        Ok(())
    })
}

/// Checks that an operation was refused in a forked child.
///
/// # Panics
/// When `result` is anything but [`Error::Forked`].
#[track_caller]
pub fn assert_forked<T>(result: vkgdr::Result<T>, what: &str) {
    match result {
        Ok(_) => panic!("{what} succeeded in a forked child"),
        Err(Error::Forked) => {}
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Runs a check and writes its failure to stderr directly: the test harness would capture it in the child's memory.
fn succeeds(check: impl FnOnce() -> Result) -> bool {
    std::panic::set_hook(Box::new(|panic| tell(&panic.to_string())));
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tell(&error.to_string());
            false
        }
        Err(_) => false,
    }
}

fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "forked child: {text}");
}
