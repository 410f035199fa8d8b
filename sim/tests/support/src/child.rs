//! Tests that need a fresh process: they start their own binary again, in a role.
//!
//! A child sends messages to the parent by [`say`]; its failures are panics, as in any test.
#![expect(unsafe_code, reason = "sets the action of a signal")]

use std::fmt::Display;
use std::process::Command;

use crate::Result;

const ROLE: &str = "VKGDR_TEST_ROLE";
/// The prefix of lines for the parent; libtest, Vulkan's loader and the drivers write other lines.
const MARK: &str = "child: ";

/// The role that this process was started in; `None` in the test itself. A child can be interrupted, also where its parent is a
/// job in the background of a shell, which ignores that.
#[must_use]
pub fn role() -> Option<String> {
    let role = std::env::var(ROLE).ok()?;
    // SAFETY: the default action has no handler.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    Some(role)
}

/// The command that runs this test, whose thread this is, in a new process and in `role`.
///
/// # Errors
/// When the path of this binary is not known.
pub fn command(role: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let thread = std::thread::current();
    // libtest names the thread of a test after it.
    let test = thread.name().filter(|name| *name != "main").ok_or("this is not the thread of a test")?;
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    Ok(command)
}

/// Sends a line to the parent.
pub fn say(text: impl Display) {
    eprintln!("{MARK}{text}");
}

/// The message for the parent in a line of a child's standard error, if any.
#[must_use]
pub fn said(line: &str) -> Option<&str> {
    line.strip_prefix(MARK)
}

/// Runs a child to its end and returns its messages.
///
/// # Errors
/// When the child cannot be started.
///
/// # Panics
/// When the child failed, panicked or sent no message.
#[track_caller]
pub fn run(mut command: Command) -> Result<Vec<String>> {
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = errors.lines().filter_map(said).map(str::to_owned).collect();
    assert!(output.status.success(), "{command:?} ended with {}:\n{errors}", output.status);
    assert!(!errors.contains("panicked"), "{command:?} panicked:\n{errors}");
    assert!(!said.is_empty(), "{command:?} said nothing; is that the test's name?\n{errors}");
    Ok(said)
}

/// Runs `check` in a new process, in which no other test has opened the GPU or called a driver: in a child that runs this test, or
/// here if this is the child.
///
/// # Errors
/// Those of `check`, and of starting the child.
///
/// # Panics
/// When the child failed.
#[track_caller]
pub fn afresh(check: impl FnOnce() -> Result) -> Result {
    const DONE: &str = "done";
    if role().is_some() {
        check()?;
        say(DONE);
        return Ok(());
    }
    assert_eq!(run(command("afresh")?)?, [DONE]);
    Ok(())
}

/// Runs this test in `role` with `SIMCUDA_QUIET` set to `quiet`, and returns the simulated driver's lines on standard error.
///
/// # Errors
/// When the child cannot be started.
///
/// # Panics
/// When the child failed.
#[track_caller]
pub fn simulator_lines(role: &str, quiet: &str) -> Result<Vec<String>> {
    let output = command(role)?.env("SIMCUDA_QUIET", quiet).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Ok(errors.lines().filter(|line| line.starts_with("simcuda:")).map(str::to_owned).collect())
}
