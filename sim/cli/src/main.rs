//! `vkgdr-sim -- PROGRAM`: runs a program on a simulated GPU.
//!
//! The simulated CUDA driver (`sim/cuda`) and the Vulkan layers (`sim/vulkan`) do the work; this only sets the
//! variables by which programs find them, and becomes the program. [`options`] says what was asked for, [`installation`]
//! where things are, [`environment`] which variables that makes.
#![forbid(unsafe_code)]

mod code;
mod environment;
mod fault;
mod installation;
mod options;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use environment::Environment;
use installation::Installation;
use options::{Options, Request};

/// As `env(1)` has it: the launcher's own failures, a program that cannot be run, and one that is not there.
const FAILED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match options::parse(arguments) {
        Ok(Request::Help) => print(options::HELP),
        Ok(Request::Version) => print(concat!("vkgdr-sim ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Request::Profiles) => print(&environment::profiles()),
        Ok(Request::Run(options)) => run(&options),
        Err(complaint) => fail(FAILED, &format!("{complaint}\nTry 'vkgdr-sim --help'.")),
    }
}

/// A reader that has gone, such as `head`, is no failure.
fn print(text: &str) -> ExitCode {
    std::io::stdout().write_all(text.as_bytes()).unwrap_or_default();
    ExitCode::SUCCESS
}

fn fail(code: u8, complaint: &str) -> ExitCode {
    eprintln!("vkgdr-sim: {complaint}");
    ExitCode::from(code)
}

/// Becomes the program; returns only if that fails.
fn run(options: &Options) -> ExitCode {
    let installation = match Installation::find() {
        Ok(installation) => installation,
        Err(complaint) => return fail(FAILED, &complaint),
    };
    let environment = Environment::new(options, &installation, &|name| std::env::var_os(name));
    let error = Command::new(&options.program).args(&options.arguments).envs(environment.variables()).exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    fail(code, &format!("{}: {error}", options.program.display()))
}
