//! The targets of `fuzz/`, with AddressSanitizer, on the simulated driver.
//!
//! The corpus is in cargo's target folder, and later runs extend it; `fuzz/seeds` has the first inputs. A failing input is
//! written to `fuzz/artifacts`, and its path is printed.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::context::{Context, has, none_failed, parts, say, variable};

const CARGO_FUZZ: &str = "cargo-fuzz@0.13.1";
const TARGETS: [&str; 4] = ["c_abi", "driver", "ipc", "ptx"];

/// Fuzzes the targets for `SECONDS_EACH` seconds each.
pub(crate) fn run(context: &Context, asked: &[String]) -> Result {
    let targets = parts(asked, &TARGETS)?;
    let seconds = variable("SECONDS_EACH").unwrap_or_else(|| "60".into());
    if !has("cargo-fuzz") {
        say(format!("building {CARGO_FUZZ} (takes minutes, once)"));
        context.command("cargo install --quiet --locked").arg(CARGO_FUZZ).run()?;
    }
    context.command("scripts/sim.sh").run()?;
    let mut failed = Vec::new();
    for target in targets {
        if let Err(error) = fuzz(context, target, &seconds) {
            eprintln!("{target}: {error}");
            failed.push(target.to_owned());
        }
    }
    none_failed(&failed)
}

fn fuzz(context: &Context, target: &str, seconds: &str) -> Result {
    let (work, corpus) = (context.target.join("fuzz"), context.target.join("fuzz-corpus").join(target));
    let artifacts = Path::new("fuzz/artifacts").join(target);
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(context.root.join(&artifacts))?;
    seeds(context, target, &corpus)?;
    say(format!("fuzzing {target}: building"));
    let folder = context.sh.push_dir("fuzz");
    context.command("cargo +nightly fuzz build --fuzz-dir .").arg(target).env("CARGO_TARGET_DIR", &work).run()?;
    drop(folder);

    say(format!("fuzzing {target} for {seconds} s"));
    let log = context.target.join(format!("fuzz-{target}.log"));
    let output = File::create(&log)?;
    let mut child = Command::new(context.root.join("sim/run"))
        .current_dir(&context.root)
        .arg(work.join(context.host()?).join("release").join(target))
        .args([&format!("-max_total_time={seconds}"), "-rss_limit_mb=4096"])
        // Else libFuzzer would look for leaks after each input, since the driver keeps tables from one to the next. The target
        // counts objects itself.
        .args((target == "driver").then_some("-detect_leaks=0"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus)
        .env("VKGDR_CUDA_DRIVER", "sim")
        .env("CARGO_TARGET_DIR", &context.target)
        .env("VKGDR_SIM_DIR", &context.sim)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let status = loop {
        thread::sleep(Duration::from_secs(10));
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let progress = text.lines().rev().find(|line| line.starts_with('#')).unwrap_or("starting");
        println!("  {}", progress.split(" lim:").next().unwrap_or(progress).replace('\t', " "));
        if let Some(status) = child.try_wait()? {
            break status;
        }
    };
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if !status.success() {
        let lines: Vec<&str> = text.lines().collect();
        eprintln!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        return Err(format!("{status}; see {}", log.display()).into());
    }
    let last = text.lines().rev().find(|line| line.starts_with('#') && line.contains("cov:")).unwrap_or_default();
    let after = |line: &str, word: &str| -> String {
        line.split(word).nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().to_owned()
    };
    let done = text.lines().find(|line| line.starts_with("Done ")).unwrap_or_default();
    let (runs, coverage, features) = (after(done, "Done "), after(last, "cov:"), after(last, "ft:"));
    println!(
        "reliability: fuzz target={target} seconds={seconds} executions={runs} coverage={coverage} features={features}"
    );
    Ok(())
}

/// Copies the seeds of a target; those of `ptx` are the repository's kernels.
fn seeds(context: &Context, target: &str, corpus: &Path) -> Result {
    let find = match target {
        "ptx" => context.command("find examples benches sim tests -name *.ptx -size -64k"),
        _ => context.command("find").arg(Path::new("fuzz/seeds").join(target)).args(["-type", "f"]),
    };
    Ok(find.args(["-exec", "cp", "{}"]).arg(corpus).arg(";").run()?)
}
