//! C programs that were written for gdrcopy: linked with the library, and loading it by each of its names.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::driver::{self, DriverKind};
use support::{Result, amount};
use vkgdr_rs::{Memory, MemoryKind, OpenFlags};

/// A folder with the installed names of both libraries, and the programs.
struct Workshop(PathBuf);

impl Workshop {
    /// None, with a printed skip, without the sources or a compiler.
    fn open(name: &str) -> Result<Option<Self>> {
        let compiler = Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !folder().join("tests/fixtures").is_dir() || !compiler {
            eprintln!("skipped: the sources or cc are missing");
            return Ok(None);
        }
        let shop = Self(env::temp_dir().join(format!("vkgdr-gdrapi-{name}-{}", std::process::id())));
        // Of an earlier process with this number, which did not come to its end.
        let _ = fs::remove_dir_all(&shop.0);
        fs::create_dir_all(&shop.0)?;
        let built = |name: &str| Ok::<_, std::io::Error>(env::current_exe()?.with_file_name(name));
        for name in ["libgdrapi.so", "libgdrapi.so.2"] {
            symlink(built("libvkgdr_gdrapi.so")?, shop.0.join(name))?;
        }
        symlink(built("libvkgdr_c.so")?, shop.0.join("libvkgdr.so.1"))?;
        Ok(Some(shop))
    }

    fn program(&self, standard: &str, flags: &[&str]) -> Result<PathBuf> {
        let program = self.0.join("program");
        let mut command = Command::new("cc");
        command.args(["-Wall", "-Wextra", "-Werror", "-g"]).arg(format!("-std={standard}")).args(flags);
        command.arg("-I").arg(folder().join("include")).arg(folder().join("tests/fixtures/program.c"));
        command.arg("-o").arg(&program);
        if flags.contains(&"-DLINKED") {
            command.arg("-L").arg(&self.0).arg("-lgdrapi");
        }
        run(command.arg("-ldl"))?;
        Ok(program)
    }

    /// A command that finds the libraries, under a profile of the simulated GPU; none, with a message, where there is no such.
    fn command(&self, profile: Option<&str>, program: &Path) -> Result<Option<Command>> {
        let mut command = match profile {
            None => Command::new(program),
            Some(_) if driver::kind() != Some(DriverKind::Sim) => {
                eprintln!("skipped: profiles are of the simulated driver");
                return Ok(None);
            }
            Some(profile) => {
                let simulator = env::var_os("VKGDR_SIM_DIR").ok_or("VKGDR_SIM_DIR is not set")?;
                let mut command = Command::new(Path::new(&simulator).join("vkgdr-sim"));
                command.args(["--profile", profile, "--"]).arg(program);
                command
            }
        };
        let inherited = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let folders = [self.0.clone()].into_iter().chain(env::split_paths(&inherited));
        command.env("LD_LIBRARY_PATH", env::join_paths(folders)?);
        Ok(Some(command))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Leftovers are in the system's temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command, which must succeed; returns what it printed.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() { Ok(out) } else { Err(format!("{command:?}: {}\n{out}\n{err}", output.status).into()) }
}

fn done(command: Option<Command>) -> Result {
    let Some(mut command) = command else { return Ok(()) };
    assert!(run(&mut command)?.ends_with("done\n"), "{command:?}");
    Ok(())
}

/// The name by which the program asks for memory of vkgdr: it stores to the mapping only where the device sees that without a
/// flush, for which gdrcopy has no function.
fn vkgdr_memory() -> Result<&'static str> {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 1, MemoryKind::Mapped)?;
    Ok(if memory.is_coherent() { "vkgdr" } else { "non-coherent" })
}

#[test]
fn a_program_that_is_linked_with_gdrcopy_runs() -> Result {
    let Some(shop) = Workshop::open("linked")? else { return Ok(()) };
    let whose = vkgdr_memory()?;
    for standard in ["gnu99", "gnu11"].into_iter().take(amount(1, 2)) {
        let program = shop.program(standard, &["-DLINKED"])?;
        let needed = run(Command::new("readelf").args(["-dW"]).arg(&program).env("LC_ALL", "C"))?;
        assert!(needed.contains("[libgdrapi.so.2]"), "{needed}");
        done(shop.command(None, &program)?.map(|mut command| {
            command.args(["linked", whose]);
            command
        }))?;
    }
    Ok(())
}

#[test]
fn a_program_that_loads_gdrcopy_by_any_name_runs() -> Result {
    let Some(shop) = Workshop::open("loaded")? else { return Ok(()) };
    let whose = vkgdr_memory()?;
    let program = shop.program("gnu99", &[])?;
    let absolute = shop.0.join("libgdrapi.so.2").display().to_string();
    for name in ["libgdrapi.so.2", "libgdrapi.so", &absolute] {
        done(shop.command(None, &program)?.map(|mut command| {
            command.args([name, whose]);
            command
        }))?;
    }
    Ok(())
}

#[test]
fn memory_of_cuda_is_pinned_where_the_driver_maps_it_and_refused_elsewhere() -> Result {
    let Some(shop) = Workshop::open("existing")? else { return Ok(()) };
    let program = shop.program("gnu99", &[])?;
    for (profile, whose, open) in [
        ("dma-buf", "cuda", ""),
        ("dma-buf-cached", "cuda", ""),
        ("dma-buf-no-vulkan", "cuda", ""),
        ("bar256", "none", ""),
        ("bar256", "none", "sometimes"),
        ("bar256", "refused", "always"),
        ("bar256", "vkgdr", ""),
        ("bar256", "later", "always"),
        ("dma-buf", "later", ""),
        ("dma-buf", "vkgdr", ""),
        ("non-coherent", "non-coherent", ""),
    ] {
        let command = shop.command(Some(profile), &program)?;
        let run = done(command.map(|mut command| {
            command.args(["libgdrapi.so.2", whose]).env("VKGDR_GDR_OPEN", open);
            command
        }));
        run.map_err(|error| format!("{profile}, {whose}, {open}: {error}"))?;
    }
    Ok(())
}

#[test]
fn the_library_exports_the_functions_of_the_header_and_has_gdrcopys_soname() -> Result {
    let Some(_shop) = Workshop::open("symbols")? else { return Ok(()) };
    let library = env::current_exe()?.with_file_name("libvkgdr_gdrapi.so");
    let header = fs::read_to_string(folder().join("include/gdrapi.h"))?;
    let name = |line: &str| Some(line.split_once('(')?.0.split([' ', '*']).next_back()?.to_owned());
    let is_prototype =
        |line: &&str| line.ends_with(';') && ["gdr_t ", "int ", "void "].iter().any(|t| line.starts_with(t));
    let mut declared: BTreeSet<_> = header.lines().filter(is_prototype).filter_map(name).collect();
    // Of gdrcopy's header too it is a macro, while its library exports the function for programs built with older headers.
    declared.insert("gdr_get_info".to_owned());
    let listed = run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(&library))?;
    let exported: BTreeSet<_> = listed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert_eq!((exported.len(), &exported), (17, &declared));
    let dynamic = run(Command::new("readelf").args(["-dW"]).arg(&library).env("LC_ALL", "C"))?;
    assert!(dynamic.contains("soname: [libgdrapi.so.2]"), "{dynamic}");
    Ok(())
}
