//! `vkgdr-sim -- PROGRAM`: runs a program on a simulated GPU.
//!
//! The simulated CUDA driver (`sim/cuda`) and the Vulkan layers (`sim/vulkan`) do the work. This program sets the
//! environment variables by which programs find them, then replaces itself by the program. [`options`] parses the
//! command line, [`installation`] locates the files, [`environment`] and [`layer`] compute the variables.
#![forbid(unsafe_code)]

mod driver;
mod environment;
mod fault;
mod installation;
mod layer;
mod options;
mod profile;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use environment::Environment;
use installation::Installation;
use options::{Options, Request};

/// Exit codes as those of `env(1)`: failure of the launcher itself, program not executable, program not found.
const FAILED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match options::parse(arguments) {
        Ok(Request::Help) => print(options::HELP),
        Ok(Request::Version) => print(concat!("vkgdr-sim ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Request::Profiles) => print(&profile::list()),
        Ok(Request::Run(options)) => run(&options),
        Err(complaint) => fail(FAILED, &format!("{complaint}\nTry 'vkgdr-sim --help'.")),
    }
}

/// Prints to stdout. A closed pipe is not a failure.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(FAILED, &error.to_string()),
        _ => ExitCode::SUCCESS,
    }
}

fn fail(code: u8, complaint: &str) -> ExitCode {
    // Not eprintln, which panics where stderr is full or closed: the code tells of the failure.
    let _ = writeln!(io::stderr(), "vkgdr-sim: {complaint}");
    ExitCode::from(code)
}

/// A variable that is set.
fn set(name: &'static str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Replaces this process by the program; returns only on failure.
fn run(options: &Options) -> ExitCode {
    let vulkan = environment::profile(options, &set).is_none_or(|profile| profile.vulkan);
    let installation = match Installation::find(vulkan, &set) {
        Ok(installation) => installation,
        Err(complaint) => return fail(FAILED, &complaint),
    };
    if !options.faults.is_empty() {
        let functions = fault::functions(&installation.folder.join("libcuda.so.1"));
        let checked = functions.and_then(|cuda| options.faults.iter().try_for_each(|fault| fault.check(&cuda)));
        if let Err(complaint) = checked {
            return fail(FAILED, &complaint);
        }
    }
    let environment = match Environment::new(options, &installation, &set) {
        Ok(environment) => environment,
        Err(complaint) => return fail(FAILED, &complaint),
    };
    let mut command = Command::new(&options.program);
    command.args(&options.arguments);
    for (name, value) in environment.variables() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let error = command.exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    fail(code, &format!("{}: {error}", options.program.display()))
}
