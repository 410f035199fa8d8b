//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use vkgdr::MemoryKind;

use crate::text::parse_size;

const AFTER: &str = "\
Without a command, vkgdr does what `vkgdr info` does. A failure exits with 1, a wrong command line with 2; `doctor` has \
codes of its own.

NO_COLOR turns colours off. https://no-color.org";

const DOCTOR: &str = "\
Looks for all that keeps the CPU from mapping GPU memory: the drivers' libraries and versions, manifests, device nodes, \
containers, the BAR, limits of the process. Each problem comes with its remedy.

Exit codes: 0 if all is well, 1 if the GPU can be used with limits, 2 if it cannot be used.";

const BENCH: &str = "\
Measures one GPU, for about 0.2 seconds a line; `pingpong` makes 2,200 rounds for each kind. P0 is the shortest time, P50 the \
median. One sample of a hundred takes longer than P99. On the simulated driver the numbers say nothing about a GPU.";

const SIM: &str = "\
Runs a program on a simulated GPU, on a machine that has none: `vkgdr sim -- python -m pytest`. All arguments go to \
vkgdr-sim, which must be installed; `vkgdr sim --help` is its help.";

/// Shows the GPU memory that the CPU can read and write through a plain pointer, what keeps it from working, and how fast
/// it is
#[derive(Debug, Parser)]
#[command(name = "vkgdr", bin_name = "vkgdr", version, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) output: Json,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The option of the commands that print JSON; not a global one, since the others have none.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Json {
    /// Print JSON, with sizes in bytes and times in nanoseconds
    #[arg(long, display_order = 100)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the GPUs, their kinds of memory, and how much of each is free
    ///
    /// `mapped` is GPU memory that the CPU reads and writes, `host` system memory that the GPU reaches, `device` GPU memory
    /// for the GPU alone. The BAR is the window through which the CPU reaches GPU memory. Vulkan's memory types are for
    /// reports. Exits with 1 if CUDA or a GPU cannot be used.
    Info(Json),
    /// Find out what keeps the CPU from mapping GPU memory, and what to do
    #[command(long_about = DOCTOR)]
    Doctor(Json),
    /// Measure copies, round trips with a kernel, and allocation
    #[command(long_about = BENCH)]
    Bench {
        #[command(subcommand)]
        bench: Bench,
        /// Print JSON, with sizes in bytes and times in nanoseconds
        #[arg(long, global = true, display_order = 100)]
        json: bool,
    },
    /// Run a program on a simulated GPU (needs vkgdr-sim)
    #[command(long_about = SIM, disable_help_flag = true)]
    Sim {
        /// Arguments of vkgdr-sim: options, then -- and the program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Print the completions of a shell
    ///
    /// For bash:
    ///
    /// mkdir -p ~/.local/share/bash-completion/completions
    ///
    /// vkgdr completions bash >~/.local/share/bash-completion/completions/vkgdr
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Bandwidth of copies by the CPU between private memory and GPU memory
    ///
    /// From 1K to 16M by default. The copy engine copies memory of kind `device`, which the CPU has no view of.
    Bw(CopyBench),
    /// Time of small copies
    ///
    /// From 1 to 4K bytes by default. A write is timed until it has left the CPU; `pingpong` measures the full round trip.
    Latency(CopyBench),
    /// Round trips with a running kernel, which polls memory of each kind and answers in host memory
    Pingpong(Common),
    /// Pairs of an allocation and its free, by itself and from a pool
    ///
    /// From 256 bytes to 4M by default.
    Alloc(AllocationBench),
}

impl Bench {
    pub(crate) fn name(&self) -> &'static str {
        self.parts().0
    }

    pub(crate) fn common(&self) -> &Common {
        self.parts().1
    }

    pub(crate) fn plot(&self) -> Option<&PathBuf> {
        self.parts().2?.plot.as_ref()
    }

    /// Its name, its options, and the smallest and the largest size by default.
    fn parts(&self) -> (&'static str, &Common, Option<&Sizes>, (usize, usize)) {
        match self {
            Self::Bw(CopyBench { common, sizes, .. }) => ("bw", common, Some(sizes), (1 << 10, 16 << 20)),
            Self::Latency(CopyBench { common, sizes, .. }) => ("latency", common, Some(sizes), (1, 4 << 10)),
            Self::Pingpong(common) => ("pingpong", common, None, (4, 4)),
            Self::Alloc(AllocationBench { common, sizes }) => ("alloc", common, Some(sizes), (256, 4 << 20)),
        }
    }

    /// The smallest and the largest size. A given one moves the other's default.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let (_, _, sizes, (from, to)) = self.parts();
        match sizes.map_or((None, None), |sizes| (sizes.from, sizes.to)) {
            (None, None) => (from, to),
            (Some(first), None) => (first, to.max(first)),
            (None, Some(last)) => (from.min(last), last),
            (Some(first), Some(last)) => (first, last),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CopyBench {
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    /// Measure only copies to GPU memory (write) or from it (read); by default both
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// Threads, each of which copies its own bytes, all at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) threads: u16,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl CopyBench {
    pub(crate) fn directions(&self) -> Vec<Direction> {
        self.direction.map_or_else(|| vec![Direction::Write, Direction::Read], |one| vec![one])
    }
}

#[derive(Debug, Args)]
pub(crate) struct AllocationBench {
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Sizes, each four times the one before, and the plot over them.
#[derive(Debug, Args)]
pub(crate) struct Sizes {
    /// The smallest size, in bytes or as 64K, 1M, 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    from: Option<usize>,
    /// The largest size
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    to: Option<usize>,
    /// Draw the results to a file that ends in .svg
    #[arg(long, value_name = "FILE", value_parser = svg_file)]
    plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// CUDA's number of the GPU
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) device: i32,
    /// Kinds of memory, separated by commas
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',', default_value = "mapped,host", value_parser = kind())]
    pub(crate) kinds: Vec<MemoryKind>,
}

fn kind() -> impl TypedValueParser<Value = MemoryKind> {
    PossibleValuesParser::new(["mapped", "host", "device"]).map(|name| match name.as_str() {
        "host" => MemoryKind::Host,
        "device" => MemoryKind::Device,
        _ => MemoryKind::Mapped,
    })
}

fn svg_file(text: &str) -> Result<PathBuf, String> {
    if text.ends_with(".svg") { Ok(text.into()) } else { Err("the file must end in .svg".to_owned()) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    Write,
    Read,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_given_size_moves_the_default_of_the_other() {
        let sizes = |line: &str| match Options::try_parse_from(line.split(' ')).map(|options| options.command) {
            Ok(Some(Command::Bench { bench, .. })) => bench.sizes(),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(sizes("vkgdr bench bw"), (1 << 10, 16 << 20));
        assert_eq!(sizes("vkgdr bench bw --from 1G"), (1 << 30, 1 << 30));
        assert_eq!(sizes("vkgdr bench latency --to 1"), (1, 1));
        assert_eq!(sizes("vkgdr bench alloc --to 16"), (16, 16));
        assert_eq!(sizes("vkgdr bench bw --from 2K --to 1K"), (2 << 10, 1 << 10));
    }
}
