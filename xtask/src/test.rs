//! Every test: plain, under the Khronos validation layer, and some of them under device profiles.

use std::fs;
use std::time::Instant;

use xshell::Cmd;

use crate::context::{Context, Driver, none_failed, say};
use crate::{Result, c_examples, code, guide, mutations};

/// The stages that were run. A failing stage does not stop the next, so that one run reports all failures.
#[derive(Default)]
struct Stages {
    failed: Vec<String>,
    seconds: Vec<(u64, String)>,
}

impl Stages {
    fn run(&mut self, name: &str, stage: impl FnOnce() -> Result) {
        say(name);
        let start = Instant::now();
        if let Err(error) = stage() {
            eprintln!("{name}: {error}");
            self.failed.push(name.to_owned());
        }
        self.seconds.push((start.elapsed().as_secs(), name.to_owned()));
    }

    /// Prints how long each stage took, in seconds.
    fn tell_times(&self) {
        say("seconds of each stage");
        for (seconds, name) in &self.seconds {
            println!("{seconds:>5}  {name}");
        }
    }

    /// Runs a command with the Vulkan layers of `sim/run`.
    fn layered(&mut self, name: &str, layers: &str, command: Cmd<'_>) {
        self.run(name, || Ok(command.env("VKGDR_TEST_LAYERS", layers).run()?));
    }
}

/// All Rust tests, by cargo-nextest.
fn all(context: &Context) -> Cmd<'_> {
    context.cargo("nextest run --workspace --no-fail-fast")
}

/// The tests that depend on whether memory is coherent: those of the crate and of gdrcopy's functions.
fn of_crate(context: &Context) -> Cmd<'_> {
    all(context).args(["-E", "package(vkgdr) + package(vkgdr-gdrapi) & binary(=functions)"])
}

/// Test binaries of the crate, or modules of them: `BINARY` or `BINARY::MODULE`, separated by spaces.
fn selected<'a>(context: &'a Context, names: &str) -> Cmd<'a> {
    let filters = names.split(' ').map(|name| match name.split_once("::") {
        None => format!("(package(vkgdr) & binary(={name}))"),
        Some((binary, module)) => format!("(package(vkgdr) & binary(={binary}) & test(/^{module}::/))"),
    });
    all(context).arg("-E").arg(filters.collect::<Vec<_>>().join(" + "))
}

/// Runs everything.
pub(crate) fn run(context: &Context) -> Result {
    let driver = context.choose_driver()?;
    context.need_nextest()?;
    let mut stages = Stages::default();
    // sim/run is explicit because cargo before 1.89 does not use its runner for doctests.
    stages.run("doctests", || Ok(context.command("sim/run cargo test --locked --workspace --doc").run()?));
    stages.run("examples", || examples(context));
    stages.run("C and C++ examples", || c_examples::run(context));
    stages.layered("tests", "faults", all(context));
    stages.layered("tests under the validation layer", "validation", all(context).args(["--profile", "validation"]));
    if driver == Driver::Simulated {
        profiles(context, &mut stages);
    }
    stages.run("code of the guide's pages", || code::run(context));
    stages.run("guide", || guide::build(context));
    stages.run("Python: pip install", || Ok(context.nox("install").run()?));
    stages.layered("Python: tests", "faults", context.nox("tests"));
    // Without the tests of forks and of the interpreter's end: they take more than half of the time, mostly to start
    // interpreters, and their copies are covered by other tests.
    let again = || context.nox("tests -- --ignore-glob=*/test_fork.py --ignore-glob=*/test_interpreter_end.py");
    stages.layered("Python: tests under the validation layer", "validation", again());
    if driver == Driver::Simulated {
        let tests = again().env("VKGDR_TEST_PROFILE", "non-coherent");
        stages.layered("Python: tests under the profile non-coherent", "faults", tests);
        stages.run("Python: vkgdr-sim's package", || Ok(context.nox("sim_package").run()?));
    }
    stages.tell_times();
    none_failed(&stages.failed)?;
    say("all passed, in Rust, C, C++ and Python: doctests, examples, tests, tests under validation");
    Ok(())
}

/// Runs the tests that depend on the GPU under device profiles (`sim/vulkan/src/profile.rs`).
fn profiles(context: &Context, stages: &mut Stages) {
    let others = [
        ("rebar", "memory::access memory::map memory::memory copy::routines copy::engine copy::policy"),
        ("bar256", "memory::cycles failures pool"),
        (
            "host-import-refused",
            "memory device failures pool stream copy::engine copy::policy interop vulkan sequences",
        ),
        ("needs-dedicated", "failures::allocate failures::release memory::export memory::memory vulkan sequences"),
        ("two-gpus-swapped", "device stream interop memory::contexts copy::engine pool::pool"),
        ("types-11", "sequences"),
        ("gb10", "copy memory::access memory::map sequences ring"),
        ("no-bar", "failures"),
        ("no-vulkan", "sequences failures ring"),
        ("dma-buf-no-vulkan", "sequences"),
        ("no-export-of-imports", "memory::export memory::sharing sequences"),
        ("pointer-type-host", "interop copy::pinned"),
        ("late", "failures memory pool stream copy ring sequences"),
    ];
    let mut profiled = |profile: &str, tests: Cmd<'_>| {
        let tests = tests.env("VKGDR_TEST_PROFILE", profile);
        stages.layered(&format!("tests under the profile {profile}"), "faults", tests);
    };
    profiled("non-coherent", of_crate(context));
    for (profile, names) in others {
        profiled(profile, selected(context, names));
    }
    stages.run("tests detect a broken flush", || mutations::run(context));
}

/// Runs the Rust examples, and the GPU's probe, whose answers mean something on a GPU only.
fn examples(context: &Context) -> Result {
    let mut failed = Vec::new();
    let mut names = Vec::new();
    for file in fs::read_dir(context.root.join("examples"))? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    // These wait for others; tests/examples runs them.
    names.retain(|name| !name.starts_with("receive_"));
    names.sort();
    for name in &names {
        let run = context.cargo("run --quiet --package examples --example").arg(name).stdin("").run();
        failed.extend(run.is_err().then(|| name.clone()));
    }
    let probe = context.cargo("run --quiet --package examples --example gpu_probe").stdin("").ignore_stdout().run();
    failed.extend(probe.is_err().then(|| "gpu_probe".to_owned()));
    none_failed(&failed)
}
