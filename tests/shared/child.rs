//! Tests that need a fresh process: they start their own binary again, in a role.
//!
//! What a child wants to tell goes through [`say`]; what goes wrong there is a panic, as in any test.

use std::error::Error;
use std::fmt::Display;
use std::process::Command;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const ROLE: &str = "VKGDR_TEST_ROLE";
/// Begins the lines that are for the parent; libtest, Vulkan's loader and the drivers write lines of their own.
const MARK: &str = "child: ";

/// What this process was started for; none in the test itself.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// The command that runs `test` of this binary, by its full name, in a new process and in `role`.
pub(crate) fn command(test: &str, role: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    Ok(command)
}

/// Tells the parent a line.
pub(crate) fn say(text: impl Display) {
    eprintln!("{MARK}{text}");
}

/// What a line of a child's standard error says to the parent, if it does.
pub(crate) fn said(line: &str) -> Option<&str> {
    line.strip_prefix(MARK)
}

/// Runs a child to its end, which must be a good one, and returns the lines that it said: at least one.
#[track_caller]
pub(crate) fn run(mut command: Command) -> Result<Vec<String>> {
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = errors.lines().filter_map(said).map(str::to_owned).collect();
    assert!(output.status.success(), "{command:?} ended with {}:\n{errors}", output.status);
    assert!(!errors.contains("panicked"), "{command:?} panicked:\n{errors}");
    assert!(!said.is_empty(), "{command:?} said nothing; is that the test's name?\n{errors}");
    Ok(said)
}
