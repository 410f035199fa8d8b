//! A program written for vkgdr 0.1: linked against its library and run with this one, and compiled with this header.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::Result;
use super::symbols::prototypes;
use super::workshop::{CLANG, CLANGXX, GCC, GXX, Workshop, done, finish, fixture, installed};

/// The libcuda.so.1 that the programs run with, as an argument of the linker.
fn libcuda() -> PathBuf {
    let folders = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let found = env::split_paths(&folders).map(|folder| folder.join("libcuda.so.1")).find(|file| file.is_file());
    found.unwrap_or_else(|| "-l:libcuda.so.1".into())
}

#[test]
fn a_program_linked_against_vkgdr_0_1_runs_with_this_library() -> Result {
    let Some(shop) = Workshop::open("old")? else { return Ok(()) };
    let stub = shop.stub("libvkgdr.so.1", &prototypes(&fs::read_to_string(fixture("old/prototypes.h"))?))?;
    for compiler in installed(&[GCC, CLANG]) {
        let program = shop.path(compiler.program);
        let mut command = Command::new(compiler.program);
        command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(fixture("old/include"));
        command.arg("-I").arg(fixture("cuda")).arg(fixture("old/client.c")).arg(fixture("common/check.c")).arg(&stub);
        // vkgdr 0.1's users link libcuda.
        finish(command.arg(libcuda()).arg("-o").arg(&program))?;
        done(&mut shop.command(program))?;
    }
    Ok(())
}

#[test]
fn a_program_written_for_vkgdr_0_1_compiles_with_this_header() -> Result {
    let Some(shop) = Workshop::open("old-source")? else { return Ok(()) };
    for compiler in installed(&[GCC, CLANG, GXX, CLANGXX]) {
        let program = shop.path(compiler.program);
        let mut command = shop.compile(compiler, if compiler.language == "c" { "c99" } else { "c++11" });
        command.arg("-I").arg(fixture("cuda")).arg(fixture("old/client.c")).arg(fixture("common/check.c"));
        command.args(["-x", "none", "-L"]).arg(shop.path("dev")).arg("-lvkgdr").arg(libcuda());
        finish(command.arg("-o").arg(&program))?;
        done(&mut shop.command(program))?;
    }
    Ok(())
}
