//! The project's chores: `cargo xtask` lists them, and `make` calls them.
#![forbid(unsafe_code)]

mod bench;
mod blocks;
mod bundle;
mod c_examples;
mod c_reference;
mod code;
mod container;
mod context;
mod fuzz;
mod guide;
mod install;
mod links;
mod mutations;
mod profiles;
mod reliability;
mod sanitize;
mod stages;
mod test;
mod validation;
mod wheel;

use std::error::Error;
use std::process::ExitCode;

use context::Context;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "\
usage: cargo xtask CHORE [ARGUMENT...]

  test                 all tests, in Rust, C, C++ and Python
  validation           the tests again under Vulkan's validation layer
  profiles             the tests again on other simulated GPUs
  c-examples           installs the C library, builds the C and C++ examples against it, and runs them
  code                 runs the C, C++, CMake and shell code of the guide's pages
  container            builds the guide's container image with buildah and runs it on the simulated GPU, as root
  mutations            breaks flush in copies of the sources: tests must detect it
  sanitize [PART...]   loom miri address thread c python; all by default
  fuzz [TARGET...]     the targets of fuzz/, SECONDS_EACH (60) seconds each
  reliability [PART...] sweep sequences processes sanitizers fuzz flush soak, all by default; page: only the page
  bench [OPTION...]    --quick --strict --all --only NAMES --from FILE --to FOLDER
  wheel, sim-wheel     the manylinux wheels of the package and of vkgdr-sim, untested
  guide                the guide, with rustdoc's pages
  bundle               the tests and benches for a machine with a GPU and without Rust
  install [--uninstall], install-sim [--uninstall]";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let chore = if arguments.is_empty() { String::new() } else { arguments.remove(0) };
    match Context::new().and_then(|context| run(&context, &chore, &arguments)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(context: &Context, chore: &str, arguments: &[String]) -> Result<ExitCode> {
    match chore {
        "test" => test::run(context),
        "validation" => validation::run(context),
        "profiles" => profiles::run(context),
        "c-examples" => c_examples::run(context),
        "code" => code::run(context),
        "container" => container::run(context),
        "mutations" => mutations::run(context),
        "sanitize" => sanitize::run(context, arguments),
        "fuzz" => fuzz::run(context, arguments),
        "reliability" => reliability::run(context, arguments),
        "bench" => return bench::run(context, arguments),
        "wheel" => wheel::build(context).map(|_| ()),
        "sim-wheel" => wheel::build_simulator(context).map(|_| ()),
        "guide" => guide::build(context),
        "bundle" => bundle::run(context),
        "install" => install::library(context, uninstall(arguments)?),
        "install-sim" => install::simulator(context, uninstall(arguments)?),
        _ => {
            println!("{USAGE}");
            return Ok(if chore.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) });
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

fn uninstall(arguments: &[String]) -> Result<bool> {
    match arguments {
        [] => Ok(false),
        [only] if only == "--uninstall" => Ok(true),
        _ => Err(format!("unknown arguments: {}", arguments.join(" ")).into()),
    }
}
