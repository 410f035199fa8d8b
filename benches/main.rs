//! Compares this library with its alternatives: `make bench`.
//!
//! ```text
//! bench NAME            runs one bench, prints its table, and writes NAME.json in $VKGDR_BENCH_DIR
//! bench table [OPTION]  the table of all results there
//!     --strict          exit code 1 if a goal is missed
//!     --from FILE       reads a GPU machine's bench.json, or an earlier results.json
//!     --to FOLDER       also writes results.json and table.txt
//! ```
//!
//! All sides of a row take turns in one run, so that changes of the machine's speed cancel. `VKGDR_BENCH_QUICK=1` takes a tenth
//! of the time, to check that everything runs.

mod bare;
mod c;
mod contest;
mod copies;
mod gpu;
mod memory;
mod plain_loop;
mod pool;
mod report;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (name, bench): (_, fn() -> Result) = match arguments[..] {
        ["table", ref options @ ..] => return table(options),
        ["allocation"] => ("allocation", memory::run),
        ["pool"] => ("pool", pool::run),
        ["copies"] => ("copies", copies::run),
        ["c_calls"] => ("c_calls", c::calls),
        ["gdr_copies"] => ("gdr_copies", c::gdr_copies),
        ["gpu"] => ("gpu", gpu::run),
        _ => {
            eprintln!("usage: bench allocation|pool|copies|c_calls|gdr_copies|gpu|table [OPTION...]");
            return Ok(ExitCode::from(2));
        }
    };
    let outcome = bench();
    let rows = report::read(&report::folder()?).unwrap_or_default()[name].take();
    println!("{}", report::table(&json!({ name: rows })).0);
    outcome.map(|()| ExitCode::SUCCESS)
}

fn table(options: &[&str]) -> Result<ExitCode> {
    let has = |name| options.contains(&name);
    let value = |name| options.iter().position(|option| *option == name).and_then(|at| options.get(at + 1));
    let benches = report::read(&value("--from").map_or_else(report::folder, |file| Ok(PathBuf::from(file)))?)?;
    let (text, missed) = report::table(&benches);
    if let Some(folder) = value("--to").map(PathBuf::from) {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("results.json"), format!("{benches:#}\n"))?;
        fs::write(folder.join("table.txt"), &text)?;
    }
    println!("{text}");
    Ok(if has("--strict") && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Stops at the first error: a measurement of failures means nothing.
fn must<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// Formats a number of bytes in a suitable unit.
fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
