//! Forked children that check something and tell how it went by their exit code.
#![expect(unsafe_code, reason = "forks")]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vkgdr::Error;

use crate::ledger::all_calls;
use crate::{Result, logs};

/// Seconds after which a child that waits in vain is ended.
const PATIENCE: u32 = 60;

/// How a child's end looked from outside.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It exited, with this status.
    Exit(i32),
    /// This signal ended it.
    Signal(i32),
}

/// Forks a child that does something and then ends, without any destructor, with the code that this returns. The parent's
/// values are as they were.
///
/// # Errors
/// When the system cannot fork.
///
/// # Panics
/// When the child cannot be waited for.
pub fn end_of(child: impl FnOnce() -> i32) -> Result<End> {
    // SAFETY: the other threads of a test process wait for this one, and hold no lock that the child needs.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error().into()),
        0 => {
            // SAFETY: ends a child that waits in vain.
            unsafe { libc::alarm(PATIENCE) };
            let code = child();
            // SAFETY: runs nothing of the parent's.
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

/// Checks that a forked child was refused.
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

/// Runs a check and tells what goes wrong past the test harness, which would keep it in the child's memory.
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
