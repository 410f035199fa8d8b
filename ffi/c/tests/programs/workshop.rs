//! Compilers, a temporary folder with the library, and running the compiled programs.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use support::{profile, test_all};

use super::Result;

/// Warnings are errors in everything that is compiled here.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// The libraries that a Rust static library needs on Linux (`rustc --print native-static-libs`), as in the installed
/// `vkgdr.pc`: without those that compilers add to every program.
const STATIC_NEEDS: [&str; 5] = ["-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// A compiler and the language that it compiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    pub(crate) language: &'static str,
}

pub(crate) const GCC: Compiler = Compiler { program: "gcc", language: "c" };
pub(crate) const CLANG: Compiler = Compiler { program: "clang", language: "c" };
pub(crate) const GXX: Compiler = Compiler { program: "g++", language: "c++" };
pub(crate) const CLANGXX: Compiler = Compiler { program: "clang++", language: "c++" };

/// Whether a tool can be started; prints a skip if not.
pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: {tool} is not installed");
    }
    found
}

/// The installed ones of the compilers; prints a skip for each other. Without `VKGDR_TEST_ALL=1` it is the system's compiler of
/// each of their languages.
pub(crate) fn installed(compilers: &[Compiler]) -> Vec<Compiler> {
    let mut chosen = compilers.to_vec();
    if !test_all() {
        eprintln!("left out: compilers other than cc and c++ (set VKGDR_TEST_ALL=1)");
        chosen.iter_mut().for_each(|compiler| compiler.program = if compiler.language == "c" { "cc" } else { "c++" });
        chosen.dedup();
    }
    chosen.retain(|compiler| has(compiler.program));
    chosen
}

/// The crate's folder; none, with a printed skip, where only the compiled tests exist.
pub(crate) fn sources() -> Option<&'static Path> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !folder.join("tests/fixtures").is_dir() {
        eprintln!("skipped: the sources are not here");
        return None;
    }
    Some(folder)
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The sources of these names, and those in folders of these names.
pub(crate) fn fixtures(names: &[&str]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in names.iter().map(|name| fixture(name)) {
        if path.is_dir() {
            let files = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
            all.extend(files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "c")));
        } else {
            all.push(path);
        }
    }
    Ok(all)
}

/// The shared library under test.
pub(crate) fn library() -> Result<PathBuf> {
    let named = env::var_os("VKGDR_C_LIBRARY").map(PathBuf::from);
    let built = || Ok::<_, Box<dyn std::error::Error>>(env::current_exe()?.with_file_name("libvkgdr_c.so"));
    let path = named.map_or_else(built, Ok)?;
    if path.is_file() { Ok(path) } else { Err(format!("there is no {}", path.display()).into()) }
}

/// How a program is linked with the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// `libvkgdr.so`, found again at run time by its soname.
    Shared,
    /// `libvkgdr.a`.
    Static,
    /// Not linked.
    None,
}

/// A temporary folder with the files of a development package in `dev`, and those of a runtime package in `lib`.
#[derive(Debug)]
pub(crate) struct Workshop {
    folder: PathBuf,
}

impl Workshop {
    /// None, with a printed skip, where the sources do not exist.
    pub(crate) fn open(name: &str) -> Result<Option<Self>> {
        if sources().is_none() {
            return Ok(None);
        }
        let shop = Self { folder: env::temp_dir().join(format!("vkgdr-c-{name}-{}", std::process::id())) };
        let library = library()?;
        // Of an earlier process with this number, which did not come to its end.
        let _ = fs::remove_dir_all(&shop.folder);
        fs::create_dir_all(shop.path("dev"))?;
        fs::create_dir_all(shop.path("lib"))?;
        symlink(&library, shop.path("dev/libvkgdr.so"))?;
        symlink(&library, shop.path("lib/libvkgdr.so.1"))?;
        Ok(Some(shop))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A compiler's command with the warnings, the header's folder and the language.
    pub(crate) fn compile(&self, compiler: Compiler, standard: &str) -> Command {
        let mut command = Command::new(compiler.program);
        command.args(WARNINGS).arg(format!("-std={standard}")).args(["-g", "-O1", "-pthread"]);
        // For semaphores and barriers, which C99 and C++11 without GNU extensions hide.
        command.arg("-D_POSIX_C_SOURCE=200809L");
        command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
        command.args(["-x", compiler.language]);
        command
    }

    /// Compiles and links sources of `tests/fixtures` to a program.
    pub(crate) fn program(&self, compiler: Compiler, build: &Build<'_>) -> Result<PathBuf> {
        let program = self.path(&format!("{}-{}", build.name, compiler.program));
        let mut command = self.compile(compiler, build.standard);
        command.arg(concat!("-DEXPECTED_VERSION=\"", env!("CARGO_PKG_VERSION"), "\""));
        command.args(build.flags).args(fixtures(build.sources)?).args(["-x", "none"]);
        match build.linkage {
            Linkage::Shared => command.arg("-L").arg(self.path("dev")).arg("-lvkgdr"),
            Linkage::Static => command.arg(library()?.with_extension("a")).args(STATIC_NEEDS),
            Linkage::None => &mut command,
        };
        finish(command.arg("-ldl").arg("-o").arg(&program))?;
        Ok(program)
    }

    /// A command whose program finds the library, and libcuda as before, at run time.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        let inherited = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let folders = [self.path("lib")].into_iter().chain(env::split_paths(&inherited));
        // No folder's name has a colon: they come from a list with colons.
        command.env("LD_LIBRARY_PATH", env::join_paths(folders).unwrap_or_default());
        command
    }

    /// As [`command`](Self::command), on the simulated GPU made to look like a profile of vkgdr-sim; none, with a
    /// printed skip, on a real driver.
    pub(crate) fn profiled(&self, profile: &str, program: impl AsRef<Path>) -> Result<Option<Command>> {
        let Some(simulator) = profile::simulator()? else { return Ok(None) };
        let mut command = self.command(simulator);
        command.args(["--profile", profile, "--"]).arg(program.as_ref());
        Ok(Some(command))
    }

    /// A library with functions of these names, in place of another one that a program is linked against.
    pub(crate) fn stub(&self, soname: &str, names: &BTreeSet<String>) -> Result<PathBuf> {
        let (source, library) = (self.path("stub.c"), self.path("libstub.so"));
        fs::write(&source, names.iter().map(|name| format!("void {name}(void) {{}}\n")).collect::<String>())?;
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", &format!("-Wl,-soname,{soname}")]).arg(source).arg("-o").arg(&library);
        finish(&mut command)?;
        Ok(library)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Leftovers are in the system's temporary folder.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The parts of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build<'a> {
    pub(crate) name: &'a str,
    pub(crate) standard: &'a str,
    pub(crate) sources: &'a [&'a str],
    pub(crate) flags: &'a [&'a str],
    pub(crate) linkage: Linkage,
}

/// Runs a command, which must succeed.
pub(crate) fn finish(command: &mut Command) -> Result<Output> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{command:?} ended with {}:\n{out}\n{err}", output.status).into())
}

/// Runs a program of the fixtures, which must print "done" at its end.
pub(crate) fn done(command: &mut Command) -> Result {
    let output = finish(command)?;
    let said = String::from_utf8_lossy(&output.stdout);
    if said.lines().any(|line| line == "done") {
        return Ok(());
    }
    Err(format!("{command:?} did not come to its end; it said:\n{said}").into())
}
