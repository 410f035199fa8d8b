//! Programs written for vkgdr 0.1: linked against its library and run with this one, and compiled with this header.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Result;
use super::workshop::{CLANG, CLANGXX, Compiler, GCC, GXX, Workshop, done, finish, fixture, has, installed};

/// The libcuda.so.1 that the programs run with, as an argument of the linker.
fn libcuda() -> PathBuf {
    let folders = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let found = env::split_paths(&folders).map(|folder| folder.join("libcuda.so.1")).find(|file| file.is_file());
    found.unwrap_or_else(|| "-l:libcuda.so.1".into())
}

/// A program of `tests/fixtures/old`, compiled with vkgdr 0.1's declarations, against the stub.
fn old_program(shop: &Workshop, compiler: Compiler, source: &str) -> Result<PathBuf> {
    let stub = shop.path("libstub.so");
    let mut command = Command::new(compiler.program);
    command.args(["-shared", "-fPIC", "-Wl,-soname,libvkgdr.so.1", "-I"]).arg(fixture("old/include"));
    finish(command.arg("-I").arg(fixture("cuda")).arg(fixture("old/stub.c")).arg("-o").arg(&stub))?;
    let program = shop.path("old-program");
    let mut command = Command::new(compiler.program);
    command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(fixture("old/include"));
    command.arg("-I").arg(fixture("cuda")).arg(fixture(source)).arg(&stub);
    // vkgdr 0.1's users link libcuda.
    finish(command.arg(libcuda()).arg("-o").arg(&program))?;
    Ok(program)
}

#[test]
fn a_program_linked_against_vkgdr_0_1_runs_with_this_library() -> Result {
    let Some(shop) = Workshop::open("old")? else { return Ok(()) };
    for compiler in installed(&[GCC, CLANG]) {
        let client = old_program(&shop, compiler, "old/client.c")?;
        shop.run(&client, &[])?;
    }
    Ok(())
}

/// Programs fall back on other memory where vkgdr 0.1 reports that no memory can be mapped.
#[test]
fn a_program_of_vkgdr_0_1_cannot_open_a_gpu_without_mapped_memory() -> Result {
    let Some(shop) = Workshop::open("fallback")? else { return Ok(()) };
    for compiler in installed(&[GCC]) {
        let program = old_program(&shop, compiler, "old/fallback.c")?;
        // The first is vkgdr 0.1's text, which programs may compare with the start of the last error.
        let texts = [
            ("no-bar", "Vulkan device does not provide a suitable memory type"),
            ("no-vulkan", "vkCreateInstance failed (VK_ERROR_INCOMPATIBLE_DRIVER)"),
        ];
        for (profile, text) in texts {
            let Some(mut command) = shop.profiled(profile, program.clone())? else { return Ok(()) };
            done(command.arg(text))?;
        }
    }
    Ok(())
}

#[test]
fn a_program_written_for_vkgdr_0_1_compiles_with_this_header() -> Result {
    let Some(shop) = Workshop::open("old-source")? else { return Ok(()) };
    for compiler in installed(&[GCC, CLANG, GXX, CLANGXX]) {
        let program = shop.path(compiler.program);
        let mut command = shop.compile(compiler, if compiler.language == "c" { "c99" } else { "c++11" });
        command.arg("-I").arg(fixture("cuda")).arg(fixture("old/client.c")).args(["-x", "none", "-L"]);
        command.arg(shop.path("dev")).arg("-lvkgdr").arg(libcuda());
        finish(command.arg("-o").arg(&program))?;
        shop.run(&program, &[])?;
    }
    Ok(())
}

/// A Python with cffi in cargo's folder for tests, created once; none, with the reason, if that fails.
fn python_with_cffi() -> Result<Option<PathBuf>> {
    if !has("python3") {
        return Ok(None);
    }
    let works = |python: &Path| {
        Command::new(python).args(["-c", "import cffi"]).output().is_ok_and(|output| output.status.success())
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (all, mine) = (folder.join("cffi"), folder.join(format!("cffi-{}", std::process::id())));
    let python = |folder: &Path| folder.join("bin/python");
    if works(&python(&all)) {
        return Ok(Some(python(&all)));
    }
    // With the system's packages, so that an installed cffi is enough and the network is not needed.
    let venv = finish(Command::new("python3").args(["-m", "venv", "--system-site-packages"]).arg(&mine));
    let install = || {
        let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1", "cffi"];
        finish(Command::new(python(&mine)).args(options).env("PIP_DEFAULT_TIMEOUT", "60"))
    };
    if let Err(error) = venv.and_then(|_| install()) {
        eprintln!("skipped: Python has no cffi, and it could not be installed: {error}");
        let _ = fs::remove_dir_all(&mine);
        return Ok(None);
    }
    // Another run may have made one meanwhile; the one that does not work is of a Python that is gone.
    if !works(&python(&all)) {
        let _ = fs::remove_dir_all(&all);
        let _ = fs::rename(&mine, &all);
    }
    let _ = fs::remove_dir_all(&mine);
    Ok(Some(python(&all)).filter(|python| works(python)))
}

#[test]
fn a_cffi_module_with_the_declarations_of_vkgdr_0_1_works() -> Result {
    let Some(shop) = Workshop::open("cffi")? else { return Ok(()) };
    if !has(GCC.program) {
        return Ok(());
    }
    let Some(python) = python_with_cffi()? else { return Ok(()) };
    let includes =
        finish(Command::new(&python).args(["-c", "import sysconfig; print(sysconfig.get_path('include'))"]))?;
    let includes = PathBuf::from(String::from_utf8(includes.stdout)?.trim());
    if !includes.join("Python.h").is_file() {
        return support::skip("Python's headers are not installed");
    }
    let (source, module) = (shop.path("vkgdr_cffi.c"), shop.path("vkgdr_cffi.so"));
    finish(Command::new(&python).arg(fixture("cffi/build.py")).arg("vkgdr_cffi").arg(&source))?;
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new(GCC.program);
    command.args(["-shared", "-fPIC", "-I"]).arg(includes).arg("-I").arg(header).arg(source);
    finish(command.arg("-L").arg(shop.path("dev")).args(["-lvkgdr", "-o"]).arg(module))?;
    done(shop.command(python).arg(fixture("cffi/use.py")).env("PYTHONPATH", shop.path("")))
}
