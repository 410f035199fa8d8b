//! Runs the C, C++, CMake and shell code of the guide's pages, and compiles their CUDA code, as a reader would: with the
//! library and the simulator installed into a home folder. The doctests run the pages' Rust (`examples/pages/lib.rs`), pytest
//! their Python.

use std::fs;
use std::path::PathBuf;

use xshell::Cmd;

use crate::Result;
use crate::blocks::{self, Block};
use crate::context::{Context, Driver, test_all};

/// Programs that do not belong to this library may warn about other things.
const STRICT: [&str; 4] = ["-O1", "-Wall", "-Wextra", "-Werror"];

struct Reader<'a> {
    context: &'a Context,
    /// The folder in which the reader works.
    work: PathBuf,
    home: PathBuf,
}

/// Runs all of it, and says what was run and what was not.
pub(crate) fn run(context: &Context) -> Result {
    let driver = context.choose_driver()?;
    let folder = context.sh.create_temp_dir()?;
    let (work, home) = (folder.path().join("work"), folder.path().join("home"));
    fs::create_dir(&work)?;
    fs::create_dir(&home)?;
    let reader = Reader { context, work, home };
    reader.shell("make install PREFIX=$HOME/.local\n").run()?;
    if driver == Driver::Simulated {
        reader.shell("make -C sim install PREFIX=$HOME/.local\n").run()?;
    }
    let (mut ran, mut not_run, mut failed) = (Vec::new(), Vec::new(), blocks::faults(&context.root)?);
    for block in blocks::all(&context.root)? {
        let place = block.place(&context.root);
        match &block.not_run {
            Some(reason) => not_run.push(format!("    {place}, {}: {reason}", block.language)),
            None => ran.push(block.language.clone()),
        }
        if let Err(error) = reader.check(&block) {
            failed.push(format!("{place}: {error}"));
        }
    }
    ran.sort();
    let counts: Vec<_> = ran
        .chunk_by(|one, other| one == other)
        .map(|same| format!("{} {}", same.len(), same.first().map_or("", String::as_str)))
        .collect();
    println!(
        "blocks of code in the pages: {}; not run are {}:\n{}",
        counts.join(", "),
        not_run.len(),
        not_run.join("\n")
    );
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

impl Reader<'_> {
    fn check(&self, block: &Block) -> Result {
        let run = block.not_run.is_none();
        match block.language.as_str() {
            "c" => self.program(block, "cc -std=gnu11", "c", run),
            "cpp" => self.program(block, "c++ -std=c++17", "cpp", run),
            "cmake" => self.project(&block.code),
            // With clang, which only all tests need.
            "cuda" if test_all() => self.kernel(&block.code),
            "sh" if run => quietly(self.shell(&block.code)),
            "sh" => self.parses(&block.code),
            _ => Ok(()),
        }
    }

    /// Lines of a shell, in the folder of the sources if they build something there. Programs run on the driver of `sim/run`.
    fn shell(&self, code: &str) -> Cmd<'_> {
        let in_sources = code.lines().any(|line| line.starts_with("make ") || line.contains("docs/"));
        let folder = if in_sources { &self.context.root } else { &self.work };
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let default = |name: &str, folder: &str| {
            let given = variable(name);
            if given.is_empty() { format!("{}/{folder}", variable("HOME")) } else { given }
        };
        let local = self.home.join(".local").display().to_string();
        let command = self.context.sh.cmd(self.context.root.join("sim/run")).args(["bash", "-euo", "pipefail", "-c"]);
        // The shell of a test may have variables of builds; a reader who follows the pages has only what they say.
        ["DESTDIR", "LIBDIR", "PREFIX", "GDRAPI", "CMAKE_PREFIX_PATH"]
            .iter()
            .fold(command, |command, name| command.env_remove(name))
            .arg(format!("cd \"$0\"\n{code}"))
            .arg(folder)
            .env("CARGO_HOME", default("CARGO_HOME", ".cargo"))
            .env("RUSTUP_HOME", default("RUSTUP_HOME", ".rustup"))
            .env("HOME", &self.home)
            .env("PATH", format!("{local}/bin:{}", variable("PATH")))
            .env("PKG_CONFIG_PATH", format!("{local}/lib/pkgconfig"))
            .env("LD_LIBRARY_PATH", format!("{local}/lib:{}", variable("LD_LIBRARY_PATH")))
            .quiet()
    }

    /// A program is compiled as its page says and run; functions are compiled. Later pages use the last program.
    fn program(&self, block: &Block, compiler: &str, extension: &str, run: bool) -> Result {
        let whole = block.code.contains("int main(");
        let name = if whole { "program" } else { "functions" };
        fs::write(self.work.join(format!("{name}.{extension}")), &block.code)?;
        let kind = if whole { "-o program" } else { "-c -o functions.o" };
        let flags = if whole { "--cflags --libs" } else { "--cflags" };
        let options = STRICT.join(" ");
        quietly(self.shell(&format!("{compiler} {options} {name}.{extension} {kind} $(pkg-config {flags} vkgdr)\n")))?;
        if whole && run { quietly(self.shell("./program\n")) } else { Ok(()) }
    }

    /// Kernels are checked by clang, which needs no toolkit for those without includes.
    fn kernel(&self, code: &str) -> Result {
        fs::write(self.work.join("kernel.cu"), code)?;
        let options =
            "-x cuda --cuda-device-only --cuda-gpu-arch=sm_60 -nocudainc -nocudalib -fsyntax-only -Wall -Werror";
        let words =
            ["global", "device", "shared"].map(|word| format!("-D__{word}__='__attribute__(({word}))'")).join(" ");
        quietly(
            self.shell(&format!("clang {options} {words} -D__forceinline__=inline -I$HOME/.local/include kernel.cu\n")),
        )
    }

    /// The end of a project whose program is the last one in C.
    fn project(&self, code: &str) -> Result {
        let head =
            "cmake_minimum_required(VERSION 3.13)\nproject(program LANGUAGES C)\nadd_executable(program program.c)\n";
        fs::write(self.work.join("CMakeLists.txt"), format!("{head}{code}"))?;
        quietly(
            self.shell("cmake -DCMAKE_PREFIX_PATH=$HOME/.local -S . -B build\ncmake --build build\nbuild/program\n"),
        )
    }

    /// What is not run has the syntax of a shell and names targets that there are.
    fn parses(&self, code: &str) -> Result {
        quietly(self.context.sh.cmd("bash").args(["-n", "-c", code]).quiet())?;
        for line in code.lines().filter_map(|line| line.strip_prefix("make ")) {
            quietly(self.shell(&format!("make -n {line}\n")))?;
        }
        Ok(())
    }
}

/// Runs a command, whose output is printed only if it fails.
fn quietly(command: Cmd<'_>) -> Result {
    let output = command.ignore_status().output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&text)).into())
}
