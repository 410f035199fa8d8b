//! The project's chores: `cargo xtask` lists them, and `make` calls them.
#![forbid(unsafe_code)]

mod bench;
mod blocks;
mod c_reference;
mod code;
mod context;
#[cfg(test)]
mod gpu_scripts;
mod guide;
mod links;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use context::Context;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "\
usage: cargo xtask CHORE [ARGUMENT...]

  code                 runs the C, C++, CMake and shell code of the guide's pages
  bench [OPTION...]    --quick --strict --all --only NAMES --from FILE --to FOLDER
  guide                the guide, with rustdoc's pages";

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
    let alone = || if arguments.is_empty() { Ok(context) } else { Err(unknown(arguments)) };
    match chore {
        "code" => code::run(alone()?),
        "bench" => return bench::run(context, arguments),
        "guide" => guide::build(alone()?),
        _ => Err(Misuse(format!("there is no chore '{chore}': `cargo xtask --help` lists them")).into()),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(arguments: &[String]) -> Misuse {
    Misuse(format!("unknown arguments: {}", arguments.join(" ")))
}

#[test]
fn a_wrong_command_line_is_refused_by_name() -> Result {
    let context = Context::new()?;
    for (line, name) in
        [("gudie", "'gudie'"), ("guide two-gpus", "two-gpus"), ("bench --typo", "'--typo'"), ("bench --only", "--only")]
    {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let result = words.split_first().map(|(chore, rest)| run(&context, chore, rest));
        let Some(Err(error)) = result else { return Err(format!("{line}: {result:?}").into()) };
        assert!(error.is::<Misuse>() && error.to_string().contains(name), "{line}: {error}");
    }
    Ok(())
}
