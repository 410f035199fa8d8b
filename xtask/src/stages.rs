//! The stages of a run of many tests.

use std::time::Instant;

use xshell::Cmd;

use crate::Result;
use crate::context::{Context, none_failed, say};

/// The stages that were run. A failing stage does not stop the next, so that one run reports all failures.
#[derive(Default)]
pub(crate) struct Stages {
    failed: Vec<String>,
    seconds: Vec<(u64, String)>,
}

impl Stages {
    pub(crate) fn run(&mut self, name: &str, stage: impl FnOnce() -> Result) {
        say(name);
        let start = Instant::now();
        if let Err(error) = stage() {
            eprintln!("{name}: {error}");
            self.failed.push(name.to_owned());
        }
        self.seconds.push((start.elapsed().as_secs(), name.to_owned()));
    }

    /// Prints how many seconds each stage took, and fails if one has failed.
    pub(crate) fn end(self) -> Result {
        say("seconds of each stage");
        for (seconds, name) in &self.seconds {
            println!("{seconds:>5}  {name}");
        }
        none_failed(&self.failed)
    }

    /// Runs a command with the Vulkan layers of `sim/run`.
    pub(crate) fn layered(&mut self, name: &str, layers: &str, command: Cmd<'_>) {
        self.run(name, || Ok(command.env("VKGDR_TEST_LAYERS", layers).run()?));
    }
}

/// All Rust tests, by cargo-nextest.
pub(crate) fn rust(context: &Context) -> Cmd<'_> {
    context.cargo("nextest run --workspace --no-fail-fast")
}

/// Python's tests, for a further run of them: without those of forks and of the interpreter's end, which take more than half of
/// the time, mostly to start interpreters, and whose copies are covered by other tests.
pub(crate) fn python_again(context: &Context) -> Cmd<'_> {
    context.nox("tests -- --ignore-glob=*/test_fork.py --ignore-glob=*/test_interpreter_end.py")
}
