//! The command `vkgdr`, also for the Python package, whose console script calls [`run`].
//!
//! | module | does |
//! |---|---|
//! | `options` | the command line |
//! | `screen` | output: width, colour, wrapped text, closed pipes |
//! | `text` | sizes, times and rates as people read them |
//! | `info` | `vkgdr info`: the facts of each GPU |
//! | `doctor` | `vkgdr doctor`: what stands between a program and mapped memory |
//! | `bench` | `vkgdr bench`: copies, round trips with a kernel, allocation |
//! | `sim` | `vkgdr sim`: leaves everything to vkgdr-sim |

mod bench;
mod doctor;
mod info;
mod linux;
mod options;
mod screen;
mod sim;
mod text;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};

use clap::{CommandFactory, Parser};
use vkgdr::diagnosis::System;

use options::{Command, Json, Options};
use screen::Screen;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A folder below which the files of the system are read instead, for tests.
const ROOT: &str = "VKGDR_SYSTEM_ROOT";

/// Exit codes. `doctor` has 1 and 2 with meanings of its own.
const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;
const USAGE: u8 = 2;

/// A failure with its remedy, which is printed on a line of its own.
#[derive(Debug)]
struct Failure {
    problem: String,
    remedy: String,
    code: u8,
}

impl Failure {
    fn boxed(problem: impl Into<String>, remedy: impl Into<String>) -> Box<dyn Error> {
        Box::new(Self { problem: problem.into(), remedy: remedy.into(), code: FAILURE })
    }

    /// Of options that contradict each other, which the parser does not know.
    fn usage(problem: impl Into<String>, remedy: impl Into<String>) -> Box<dyn Error> {
        Box::new(Self { problem: problem.into(), remedy: remedy.into(), code: USAGE })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.problem, self.remedy)
    }
}

impl Error for Failure {}

/// The command line, for the manual.
pub fn command() -> clap::Command {
    Options::command()
}

/// Carries out a command line, whose first word is the program's name. Returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            // To stdout for --help and --version, otherwise to stderr.
            let printed = error.print().and_then(|()| io::stdout().flush());
            return if error.use_stderr() { USAGE } else { code(printed.map(|()| SUCCESS).map_err(Into::into)) };
        }
    };
    code(carry_out(options, &mut Screen::new()))
}

/// The exit code, with a failure said on stderr.
fn code(result: Result<u8>) -> u8 {
    match result {
        Ok(code) => code,
        // The reader closed the pipe: a normal end.
        Err(error) if screen::is_broken_pipe(&*error) => SUCCESS,
        Err(error) => {
            // Not eprintln, which panics where stderr is full or closed: the code tells of the failure.
            let _ = writeln!(io::stderr(), "vkgdr: {error}");
            error.downcast_ref::<Failure>().map_or(FAILURE, |failure| failure.code)
        }
    }
}

fn carry_out(options: Options, screen: &mut Screen) -> Result<u8> {
    // Before or after the command, if that has the option.
    let json = |after: bool| after || options.output.json;
    let system = env::var_os(ROOT).map_or_else(System::here, System::below);
    match options.command.unwrap_or(Command::Info(Json::default())) {
        Command::Sim { .. } | Command::Completions { .. } if options.output.json => {
            Err(Failure::usage("--json is an option of info, doctor and bench", "leave it out"))
        }
        Command::Info(output) => info::run(screen, &system, json(output.json)),
        Command::Doctor(output) => doctor::run(screen, &system, json(output.json)),
        Command::Bench { bench, json: after } => bench::run(screen, &bench, json(after)),
        Command::Sim { arguments } => sim::run(&arguments),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command(), "vkgdr", &mut text);
            screen.print(&String::from_utf8(text)?)?;
            Ok(SUCCESS)
        }
    }
}
