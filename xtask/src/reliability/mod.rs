//! The long runs, and the page with their results, `docs/reliability.md`.
//!
//! | part | runs |
//! |---|---|
//! | sweep | every driver call of every public operation made to fail |
//! | sequences | random sequences against the model: `STEPS` (100,000) on one thread, with uncached copies, and on 16 threads, and on 1 and 16 threads for each device profile (a fifth of them on one thread on streams); 10,000 under the validation layer |
//! | processes | forks, kills, limits, signals, and gdrcopy's sanity suite |
//! | sanitizers, fuzz, flush | the chores `sanitize`, `fuzz` and `mutations` |
//! | soak | `make soak` |
//! | page | only rewrites the page from the last results |
//!
//! Each part's log is kept in cargo's target folder, so that the page includes the last results of parts that did not run. A
//! section without a log, as in a fresh clone, stays as it is. The page is about the simulated driver, which all parts use.

mod log;
mod page;

use std::env;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use xshell::Cmd;

use crate::Result;
use crate::context::{Context, none_failed, parts, say, variable};

const PARTS: [&str; 7] = ["sweep", "sequences", "processes", "sanitizers", "fuzz", "flush", "soak"];

/// Runs the parts, and writes the page. A part runs in a process of its own, whose output is its log.
pub(crate) fn run(context: &Context, asked: &[String]) -> Result {
    if let [part, flag] = asked
        && flag == "--here"
    {
        parts(std::slice::from_ref(part), &PARTS)?;
        return run_here(context, part);
    }
    let with_page = [&PARTS[..], &["page"]].concat();
    let asked = parts(asked, &with_page)?;
    let logs = context.target.join("reliability");
    fs::create_dir_all(&logs)?;
    context.need_nextest()?;
    context.command("scripts/sim.sh").run()?;
    let mut failed = Vec::new();
    for part in asked.into_iter().filter(|part| *part != "page") {
        say(format!("reliability: {part}"));
        let path = logs.join(part).with_extension("log");
        let file = File::create(&path)?;
        let began = Instant::now();
        let status = Command::new(env::current_exe()?)
            .args(["reliability", part, "--here"])
            .env("VKGDR_CUDA_DRIVER", "sim")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file.try_clone()?)
            .status()?;
        let ended = if status.success() { "passed" } else { "failed" };
        let line = format!("reliability: ended status={ended} seconds={}\n", began.elapsed().as_secs());
        std::io::Write::write_all(&mut &file, line.as_bytes())?;
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let facts: Vec<&str> = text.lines().filter(|line| line.starts_with("reliability: ")).collect();
        println!("{}", facts[facts.len().saturating_sub(3)..].join("\n"));
        if !status.success() {
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
            failed.push(part.to_owned());
        }
    }
    page::write(&logs, &context.root.join("docs/reliability.md"))?;
    none_failed(&failed)
}

fn run_here(context: &Context, part: &str) -> Result {
    let now = context.command("date -u +date=%F\\stime=%H:%M").read()?.replace("\\s", " ");
    let cores = thread::available_parallelism()?;
    println!("reliability: ran {now} version={} cores={cores}", env!("CARGO_PKG_VERSION"));
    let layers = variable("VKGDR_TEST_LAYERS").unwrap_or_else(|| "faults".into());
    let tests = |name: &str| {
        let command = context.cargo("nextest run --package vkgdr --no-fail-fast --success-output immediate --test");
        command.arg(name).env("VKGDR_TEST_LAYERS", &layers).run()
    };
    match part {
        "sweep" => tests("failures")?,
        "sequences" => sequences(context)?,
        "processes" => tests("process")?,
        "sanitizers" => crate::sanitize::run(context, &[])?,
        "fuzz" => crate::fuzz::run(context, &[])?,
        "flush" => crate::mutations::run(context)?,
        _ => context.command("make soak").env("VKGDR_TEST_LAYERS", layers).run()?,
    }
    Ok(())
}

/// Every kind of sequence, on one thread and on sixteen, on each profile: those of one thread on streams with a fifth of the
/// steps, since they wait most of the time, for delayed streams.
fn sequences(context: &Context) -> Result {
    let steps = variable("STEPS").unwrap_or_else(|| "100000".into());
    let fifth = (steps.parse::<u64>()? / 5).to_string();
    let of = |steps: &str| -> Cmd<'_> {
        let command = context.cargo("nextest run --profile long --cargo-profile long --package vkgdr --no-fail-fast");
        let command = command.args(["--success-output", "immediate", "--test", "sequences"]);
        command.env("VKGDR_STEPS", steps).env("VKGDR_TEST_LAYERS", "faults")
    };
    of(&steps).run()?;
    of(&steps).env("VKGDR_COPY", "portable").run()?;
    of("10000").env("VKGDR_TEST_LAYERS", "validation").run()?;
    // A profile's line begins with its name and two spaces.
    let profiles = context.sh.cmd(context.sim.join("vkgdr-sim")).arg("--profiles").quiet().read()?;
    let names = profiles.lines().filter_map(|line| line.split_once("  ")).map(|(name, _)| name);
    let is_name = |name: &&str| name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.contains(' ');
    for profile in names.filter(is_name) {
        for (filter, steps) in [("not test(streams::random)", &steps), ("test(streams::random)", &fifth)] {
            of(steps).args(["-E", filter]).env("VKGDR_TEST_PROFILE", profile).run()?;
        }
    }
    Ok(())
}
