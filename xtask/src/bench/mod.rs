//! Runs the benchmarks and combines their results: a table on the terminal, and in the folder `bench` of cargo's target
//! folder the full table, `results.json` and plots.
//!
//! | option | meaning |
//! |---|---|
//! | `--quick` | a tenth of the measurements, under two minutes: checks that everything runs |
//! | `--strict` | exit code 1 if a goal is missed; otherwise it is 0 |
//! | `--all` | every row in the table on the terminal, not only the worst of each group |
//! | `--only NAMES` | one bench, or several separated by commas |
//! | `--from FILE` | run nothing; read FILE, the bench.json of a GPU machine's run.sh or an earlier results.json |
//! | `--to FOLDER` | the folder for the results |

mod summary;
mod table;

use std::fs;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;

use xshell::Cmd;

use crate::context::{Context, none_failed, parts, say};
use crate::{Misuse, Result};

use summary::Summary;

const BENCHES: [&str; 7] = ["allocation", "pool", "copies", "gpu", "c_calls", "gdr_copies", "python"];

#[derive(Default)]
struct Options {
    quick: bool,
    strict: bool,
    all: bool,
    only: Vec<String>,
    from: Option<PathBuf>,
    to: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().cloned().ok_or_else(|| Misuse(format!("{argument} needs a value")));
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--strict" => options.strict = true,
                "--all" => options.all = true,
                "--only" => {
                    let names = value()?;
                    let names = names.split([',', ' ']).filter(|name| !name.is_empty());
                    options.only = names.map(str::to_owned).collect();
                    if options.only.is_empty() {
                        return Err(Misuse("--only names no bench".to_owned()).into());
                    }
                }
                "--from" => options.from = Some(value()?.into()),
                // The programs that draw run in the folder of the sources, whichever is this one's.
                "--to" => options.to = Some(path::absolute(value()?)?),
                _ => return Err(Misuse(format!("unknown option '{argument}'")).into()),
            }
        }
        if let Some(missing) = options.from.as_ref().filter(|from| !from.exists()) {
            return Err(format!("there is no {}", missing.display()).into());
        }
        Ok(options)
    }
}

/// Runs the benches, and shows the results.
pub(crate) fn run(context: &Context, arguments: &[String]) -> Result<ExitCode> {
    let options = Options::parse(arguments)?;
    let benches = parts(&options.only, &BENCHES)?;
    let (mut failed, from) = (Vec::new(), options.from.clone());
    let from = match from {
        Some(file) => file,
        None => {
            // Emptied first, so that no result of an earlier run is mixed in.
            let reports = context.target.join("bench/reports");
            context.fresh(&reports)?;
            measure(context, &benches, &options, &reports, &mut failed)?;
            reports
        }
    };
    let to = options.to.unwrap_or_else(|| context.target.join("bench"));
    fs::create_dir_all(&to)?;
    let summary = Summary::read(&from)?;
    let lines = table::lines(&summary);
    let results = to.join("results.json");
    fs::write(&results, summary.to_json()?)?;
    fs::write(to.join("table.txt"), table::text(&summary, &lines, &lines))?;
    say("plots");
    // It names its own requirements, of which uv makes an environment.
    let plots = context.tool("uv").args(["run", "--quiet", "benches/plots/__main__.py"]).arg(&results).arg(&to);
    if plots.env("MPLCONFIGDIR", context.target.join("python/matplotlib")).run().is_err() {
        say("no plots: matplotlib could not be installed or failed");
    }
    let shown = if options.all { lines.clone() } else { table::shortened(&lines) };
    println!("\n{}", table::text(&summary, &lines, &shown));
    println!("full table, samples and plots: {}", to.display());
    none_failed(&failed)?;
    let missed = lines.iter().any(|line| line.met == Some(false));
    Ok(if options.strict && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn measure(context: &Context, benches: &[&str], options: &Options, reports: &Path, failed: &mut Vec<String>) -> Result {
    context.choose_driver()?;
    say("building the benches (a minute or two the first time)");
    context.cargo("bench --quiet --workspace --no-run --bench").arg("*").run()?;
    let environment = |command: Cmd<'_>| -> std::result::Result<(), xshell::Error> {
        let command = command.env("VKGDR_BENCH_DIR", reports);
        if options.quick { command.env("VKGDR_BENCH_QUICK", "1").run() } else { command.run() }
    };
    for (index, name) in benches.iter().enumerate() {
        say(format!("bench {} of {}: {name}", index + 1, benches.len()));
        if *name == "c_calls" && peer(context).is_err() {
            // The bench says so in its rows, too.
            say("without vkgdr 0.1: the C functions are not compared with it");
        }
        let result = if *name == "python" {
            python(context, options.quick, reports)
        } else {
            // --quick is criterion's own option, which the bench `allocation` uses.
            let command = context.cargo("bench --quiet --workspace --bench").arg(name).arg("--");
            environment(if options.quick { command.arg("--quick") } else { command }).map_err(Into::into)
        };
        if let Err(error) = result {
            eprintln!("{name}: {error}");
            failed.push((*name).to_owned());
        }
    }
    Ok(())
}

/// Makes an environment with vkgdr 0.1, the peer, whose extension module the C bench loads (`ffi/c/benches/peer`).
fn peer(context: &Context) -> Result<PathBuf> {
    let folder = context.target.join("python/peer");
    context.tool("uv").args(["venv", "--quiet", "--allow-existing"]).arg(&folder).run()?;
    let program = folder.join("bin/python");
    let install = context.tool("uv").args(["pip", "install", "--quiet", "vkgdr==0.1", "--python"]).arg(&program);
    // The time of an import is that of compiled modules.
    install.env("UV_COMPILE_BYTECODE", "1").run()?;
    Ok(program)
}

/// Measures the Python package against vkgdr 0.1, in environments of the same interpreter.
fn python(context: &Context, quick: bool, reports: &Path) -> Result {
    // The session of the type checks has the package, and nothing that is not needed here.
    context.nox("types --install-only").run()?;
    let ours = context.target.join("python/nox/types/bin/python");
    // Compiled, as pip leaves it.
    context.command("sim/run").arg(&ours).args(["-c", "import vkgdr"]).env_remove("PYTHONDONTWRITEBYTECODE").run()?;
    let report = reports.join("python_peer.json");
    let command = context.command("sim/run").arg(&ours).arg("benches/python_peer").arg("--ours").arg(&ours);
    let command = command.arg("--peer").arg(peer(context)?).arg("--json").arg(&report);
    let command = if quick { command.args(["--rounds", "3"]) } else { command };
    // Its exit code reports missed goals, as the summary does: only a missing report is a failure.
    command.env("PYTHONDONTWRITEBYTECODE", "1").ignore_status().run()?;
    if report.exists() { Ok(()) } else { Err("benches/python_peer wrote no report".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options> {
        Options::parse(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_separated_by_commas_and_spaces() -> Result {
        assert_eq!(parse(&["--only", " pool, gpu,"])?.only, ["pool", "gpu"]);
        assert!(parse(&["--only", ", "]).is_err());
        Ok(())
    }

    #[test]
    fn the_folder_of_the_results_is_relative_to_the_folder_of_the_caller() -> Result {
        assert_eq!(parse(&["--to", "results"])?.to, Some(std::env::current_dir()?.join("results")));
        Ok(())
    }
}
