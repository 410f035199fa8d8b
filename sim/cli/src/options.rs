//! The command line.

use std::ffi::OsString;

use lexopt::Arg::{Long, Short, Value};

use crate::fault::Fault;
use crate::profile::Profile;

/// At most 78 columns wide.
pub(crate) const HELP: &str = "\
Runs a program on a simulated GPU, on a machine that has none.

Usage: vkgdr-sim [OPTION...] [--] PROGRAM [ARGUMENT...]

The program loads a CUDA driver in host memory, which runs kernels in PTX, and
below it lavapipe, Mesa's Vulkan driver for the CPU. So do the programs that
it starts. Speed here says nothing about speed on a GPU.

Options:
  -p, --profile NAME   the GPU to simulate; --profiles lists them
  -f, --fail FUNCTION[:NTH]:CODE
                       make a driver call fail, in each process: the NTH
                       (default 1) call of a function of CUDA (cu...) or
                       Vulkan (vk...), with a code by number or by name; may
                       be repeated
      --profiles       list the profiles and exit
  -h, --help           print this help and exit
  -V, --version        print the version and exit

Under another vkgdr-sim, a profile replaces the outer one, which stays without
-p; failures replace those of the same driver.

Environment:
  VK_DRIVER_FILES=FILE         lavapipe's manifest, where it is another Mesa's
  SIMCUDA_HEAP_MIB=N           memory of all GPUs together, in MiB
  SIMCUDA_ASYNC=1              run all work on the streams' threads
  SIMCUDA_DRIVER_VERSION=N     CUDA version to report, such as 12040 for 12.4

Examples:
  vkgdr-sim -- python -m pytest
  vkgdr-sim --profile non-coherent ./receiver --port 7148
  vkgdr-sim --fail cuMemAlloc:3:CUDA_ERROR_OUT_OF_MEMORY ./receiver

The exit code is the program's; 125 if vkgdr-sim itself failed, 126 or 127 if
the program could not be run or was not found.
";

/// The action that the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    Help,
    Version,
    Profiles,
    Run(Options),
}

/// A program to run, and the GPU to run it on.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) profile: Option<&'static Profile>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Request, String> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut profile = None;
    let mut faults = Vec::new();
    while let Some(argument) = parser.next().map_err(text)? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help),
            Short('V') | Long("version") => return Ok(Request::Version),
            Long("profiles") => return Ok(Request::Profiles),
            Short('p') | Long("profile") => profile = Some(Profile::find(&string(&mut parser)?)?),
            Short('f') | Long("fail") => faults.push(Fault::parse(&string(&mut parser)?)?),
            Value(program) => {
                let arguments = parser.raw_args().map_err(text)?.collect();
                return Ok(Request::Run(Options { profile, faults, program, arguments }));
            }
            _ => return Err(argument.unexpected().to_string()),
        }
    }
    Err("no program given".to_owned())
}

fn string(parser: &mut lexopt::Parser) -> Result<String, String> {
    let value = parser.value().map_err(text)?;
    value.into_string().map_err(|value| format!("'{}' is not UTF-8", value.display()))
}

fn text(error: lexopt::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    fn run(line: &str) -> Options {
        match parsed(line) {
            Ok(Request::Run(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn everything_after_the_program_is_the_programs() {
        for line in ["-p rebar -- prog --help -p x -- y", "--profile=rebar prog --help -p x -- y"] {
            let options = run(line);
            assert_eq!(options.profile.map(|profile| profile.name), Some("rebar"));
            assert_eq!(options.program, "prog");
            assert_eq!(options.arguments, ["--help", "-p", "x", "--", "y"]);
        }
        assert_eq!(run("-- --odd --name").program, "--odd");
    }

    #[test]
    fn faults_add_up() {
        let faults = run("-f cuInit:100 --fail vkMapMemory:2:-5 prog").faults;
        let entries: Vec<_> = faults.iter().map(Fault::entry).collect();
        assert_eq!(entries, ["cuInit:1:100", "vkMapMemory:2:-5"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("", "no program"),
            ("--profile rebar", "no program"),
            ("--profile", "--profile"),
            ("--profil rebar prog", "--profil"),
            ("--profile gtx prog", "non-coherent"),
            ("--profile noncoherent prog", "did you mean non-coherent?"),
            ("--fail cuInit prog", "FUNCTION"),
            ("-x prog", "-x"),
        ] {
            match parsed(line) {
                Err(complaint) => assert!(complaint.contains(word), "{line}: {complaint}"),
                Ok(request) => panic!("{line}: {request:?}"),
            }
        }
    }

    #[test]
    fn the_help_fits_a_narrow_terminal() {
        for line in HELP.lines() {
            assert!(line.chars().count() <= 78, "{line}");
        }
    }
}
