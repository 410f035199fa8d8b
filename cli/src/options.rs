//! The command line.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

const AFTER: &str = "\
Without a command, vkgdr does what `vkgdr info` does. A failure exits with 1, a wrong command line with 2; `doctor` has \
codes of its own.

NO_COLOR turns colours off. https://no-color.org";

const DOCTOR: &str = "\
Looks at everything that may stand between a program and GPU memory that the CPU maps: the drivers' libraries and their \
versions, manifests, device nodes, containers, the BAR, limits of the process. Each problem comes with its remedy.

Exit codes: 0 if all is well, 1 if the GPU can be used with limits, 2 if it cannot be used.";

const SIM: &str = "\
Runs a program on a simulated GPU, on a machine that has none: `vkgdr sim -- python -m pytest`. All arguments go to \
vkgdr-sim, which must be installed; `vkgdr sim --help` is its help.";

/// GPU memory that the CPU reads and writes through a plain pointer: what there is, what keeps it from working, how fast
/// it is
#[derive(Debug, Parser)]
#[command(name = "vkgdr", bin_name = "vkgdr", version, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Options {
    /// Print JSON, with sizes in bytes and times in nanoseconds
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the GPUs, their kinds of memory, and how much of it can be mapped
    ///
    /// Exits with 1 if a driver or a GPU cannot be used.
    Info,
    /// Find out what keeps GPU memory from being mapped, and what to do
    #[command(long_about = DOCTOR)]
    Doctor,
    /// Run a program on a simulated GPU (needs vkgdr-sim)
    #[command(long_about = SIM, disable_help_flag = true)]
    Sim {
        /// Arguments of vkgdr-sim: options, then -- and the program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Print the completions of a shell
    ///
    /// For bash: vkgdr completions bash >~/.local/share/bash-completion/completions/vkgdr
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }
}
