//! The command `vkgdr`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(vkgdr_cli::run(std::env::args_os()))
}
