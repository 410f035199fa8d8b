//! Forked children that check something and tell how it went by their exit code.
#![expect(unsafe_code, reason = "forks")]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Result;

/// Seconds after which a child that waits in vain is ended.
const PATIENCE: u32 = 60;

/// Runs `check` in a forked child, which then ends without any destructor, and fails when it did not end well. The
/// parent's values are as they were.
#[track_caller]
pub(crate) fn in_child(check: impl FnOnce() -> Result) -> Result {
    // SAFETY: the other threads of a test process wait for this one, and hold no lock that the child needs.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error().into()),
        0 => {
            // SAFETY: ends a child that waits in vain.
            unsafe { libc::alarm(PATIENCE) };
            let code = i32::from(!succeeds(check));
            // SAFETY: runs nothing of the parent's.
            unsafe { libc::_exit(code) }
        }
        pid => pid,
    };
    let mut status = 0;
    // SAFETY: `status` is a valid output.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid, "{}", std::io::Error::last_os_error());
    assert!(libc::WIFEXITED(status), "the child was ended by signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed, see above");
    Ok(())
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
