//! A C program that was written for gdrcopy, on GPUs of several kinds, and linked against gdrcopy's own library. That it is linked
//! with this one and finds it by each of its names is tried by `ffi/c/tests/installed/run.sh`.
//!
//! `libgdrapi.so.2` is made here as `make install GDRAPI=1` makes it (`ffi/c/install.sh`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use vkgdr_rs::{Memory, MemoryKind, OpenFlags};

use super::Result;
use super::symbols::{dynamic, gdrcopys};
use super::workshop::{Workshop, done, finish, fixture, has, library};

/// A workshop with gdrcopy's library.
fn workshop(name: &str) -> Result<Option<Workshop>> {
    let Some(shop) = Workshop::open(&format!("gdrapi-{name}"))?.filter(|_| has("cc")) else { return Ok(None) };
    let empty = shop.path("lib/libgdrapi.so.2");
    let options = ["-shared", "-nostdlib", "-Wl,-z,noexecstack,--no-as-needed,-soname,libgdrapi.so.2,-rpath,$ORIGIN"];
    finish(Command::new("cc").args(options).arg(library()?).arg("-o").arg(&empty))?;
    Ok(Some(shop))
}

/// The program, which loads the library by name, or is linked with one.
fn program(shop: &Workshop, linked: Option<&Path>) -> Result<PathBuf> {
    let program = shop.path("program");
    let mut command = Command::new("cc");
    command.args(["-Wall", "-Wextra", "-Werror", "-g", "-std=gnu11", "-I"]).arg(fixture("../../include"));
    command.args(linked.map(|_| "-DLINKED")).arg(fixture("gdrcopy.c")).args(linked);
    finish(command.arg("-ldl").arg("-o").arg(&program))?;
    Ok(program)
}

/// It names that, and nothing of vkgdr.
#[test]
fn a_program_that_was_linked_against_gdrcopys_own_library_runs() -> Result {
    let Some(shop) = workshop("old")?.filter(|_| has("readelf")) else { return Ok(()) };
    let header = fs::read_to_string(fixture("../../include/gdrapi.h"))?;
    let program = program(&shop, Some(&shop.stub("libgdrapi.so.2", &gdrcopys(&header))?))?;
    let needed = dynamic(&program, "(NEEDED)")?;
    assert!(needed.iter().any(|name| name == "libgdrapi.so.2"), "{needed:?}");
    assert!(!needed.iter().any(|name| name == "libvkgdr.so.1"), "{needed:?}");
    // It stores to the mapping only where the device sees that without a flush, for which gdrcopy has no function.
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 1, MemoryKind::Mapped)?;
    done(shop.command(&program).args(["linked", if memory.is_coherent() { "vkgdr" } else { "non-coherent" }]))
}

#[test]
fn memory_of_cuda_is_pinned_where_the_driver_maps_it_and_refused_elsewhere() -> Result {
    let Some(shop) = workshop("existing")? else { return Ok(()) };
    let program = program(&shop, None)?;
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
        let Some(mut command) = shop.profiled(profile, &program)? else { return Ok(()) };
        let run = done(command.args(["libgdrapi.so.2", whose]).env("VKGDR_GDR_OPEN", open));
        run.map_err(|error| format!("{profile}, {whose}, {open}: {error}"))?;
    }
    Ok(())
}
