//! Breaks flush in copies of the sources, as the patches of `tests/mutations` do: tests must detect it.

use std::collections::BTreeSet;
use std::fs;

use crate::Result;
use crate::context::{Context, Driver, say};

/// Tests that must detect each patch, at least.
const ENOUGH: usize = 3;
/// Modules of `tests/memory`.
const TESTS: [&str; 4] = ["access::", "map::", "memory::", "sharing::"];

/// Applies each patch to a copy, and fails unless enough tests detect it on memory that is not coherent.
pub(crate) fn run(context: &Context) -> Result {
    if context.choose_driver()? != Driver::Simulated {
        return Err("only the simulated driver has non-coherent memory".into());
    }
    let work = context.target.join("mutations");
    let copy = work.join("source");
    let mut patches: Vec<_> =
        fs::read_dir(context.root.join("tests/mutations"))?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    patches.sort();
    for patch in patches {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        context.fresh(&copy)?;
        let sources = ".cargo Cargo.toml Cargo.lock README.md src cli tests examples benches ffi xtask";
        context.command("cp -a").args(sources.split(' ')).arg(&copy).run()?;
        context.command("cp -a --parents sim/run sim/test-layers.sh").arg(&copy).run()?;
        context
            .command("patch --quiet --strip 1 --directory")
            .arg(&copy)
            .stdin(fs::read(&patch)?)
            .run()
            .map_err(|_| format!("{} no longer fits the source: bring it up to date", patch.display()))?;

        let _folder = context.sh.push_dir(&copy);
        let tests = || {
            let command = context.cargo("test --package vkgdr --test memory");
            command
                .env("CARGO_TARGET_DIR", &context.target)
                .env("VKGDR_TEST_PROFILE", "non-coherent")
                .env("VKGDR_TEST_LAYERS", "none")
        };
        tests().arg("--no-run").run().map_err(|_| format!("{name} does not build"))?;
        // Test failures are the expected result.
        let log = tests().args(["--no-fail-fast", "--"]).args(TESTS).ignore_status().ignore_stderr().read()?;
        fs::write(work.join(&name).with_extension("log"), &log)?;
        let found: BTreeSet<&str> = log.lines().filter_map(failure).collect();
        let names = found.iter().copied().collect::<Vec<_>>();
        say(format!("{name}: detected by {} tests", names.len()));
        names.iter().for_each(|test| println!("    {test}"));
        if names.len() < ENOUGH {
            return Err(format!("too few tests detect {name}: see {}", work.display()).into());
        }
    }
    Ok(fs::remove_dir_all(copy)?)
}

/// The test that a line of `cargo test` reports as failed.
fn failure(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}
