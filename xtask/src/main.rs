//! The project's benchmarks: `cargo xtask bench`, which `make bench` calls. What else is tested here are scripts.
#![forbid(unsafe_code)]

mod bench;
mod context;
#[cfg(test)]
mod gpu_scripts;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use context::Context;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "\
usage: cargo xtask CHORE [ARGUMENT...]

  bench [OPTION...]    --quick --strict --all --only NAMES --from FILE --to FOLDER";

/// A wrong command line, for which the exit code is 2.
#[derive(Debug)]
struct Misuse(String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Misuse {}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((chore, rest)) = arguments.split_first().filter(|_| !asks_for_help(&arguments)) else {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    };
    match Context::new().and_then(|context| run(&context, chore, rest)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            if error.is::<Misuse>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn asks_for_help(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| ["--help", "-h"].contains(&argument.as_str()))
}

fn run(context: &Context, chore: &str, arguments: &[String]) -> Result<ExitCode> {
    match chore {
        "bench" => bench::run(context, arguments),
        _ => Err(Misuse(format!("there is no chore '{chore}': `cargo xtask --help` lists them")).into()),
    }
}

#[test]
fn a_wrong_command_line_is_refused_by_name() -> Result {
    let context = Context::new()?;
    for (line, name) in [("bnech", "'bnech'"), ("bench --typo", "'--typo'"), ("bench --only", "--only")] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let result = words.split_first().map(|(chore, rest)| run(&context, chore, rest));
        let Some(Err(error)) = result else { return Err(format!("{line}: {result:?}").into()) };
        assert!(error.is::<Misuse>() && error.to_string().contains(name), "{line}: {error}");
    }
    Ok(())
}
