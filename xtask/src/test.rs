//! Every test, once.

use std::fs;

use crate::context::{Context, Driver, none_failed, say};
use crate::stages::{Stages, rust};
use crate::{Result, c_examples, code, guide};

/// Runs everything.
pub(crate) fn run(context: &Context) -> Result {
    let driver = context.choose_driver()?;
    context.need_nextest()?;
    let mut stages = Stages::default();
    // sim/run is explicit because cargo before 1.89 does not use its runner for doctests.
    stages.run("doctests", || Ok(context.command("sim/run cargo test --locked --workspace --doc").run()?));
    stages.run("examples", || examples(context));
    stages.run("C and C++ examples", || c_examples::run(context));
    stages.layered("tests", "faults", rust(context));
    stages.run("code of the guide's pages", || code::run(context));
    stages.run("guide", || guide::build(context));
    stages.run("Python: pip install", || Ok(context.nox("install").run()?));
    stages.layered("Python: tests", "faults", context.nox("tests"));
    if driver == Driver::Simulated {
        stages.run("Python: vkgdr-sim's package", || Ok(context.nox("sim_package").run()?));
    }
    stages.end()?;
    say("all passed, in Rust, C, C++ and Python: doctests, examples, tests");
    Ok(())
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
