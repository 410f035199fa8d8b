//! C programs that were written for gdrcopy: linked with the library, and loading it by each of its names.
//!
//! `libgdrapi.so.2` is made here as `make install GDRAPI=1` makes it (`ffi/c/install.sh`), whose result is tried by
//! `ffi/c/tests/installed/run.sh`.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use support::amount;
use vkgdr_rs::{Memory, MemoryKind, OpenFlags};

use super::Result;
use super::workshop::{Workshop, done, dynamic, finish, fixture, has, library};

/// A workshop with the names of gdrcopy's library.
fn workshop(name: &str) -> Result<Option<Workshop>> {
    let Some(shop) = Workshop::open(&format!("gdrapi-{name}"))?.filter(|_| has("cc")) else { return Ok(None) };
    let empty = shop.path("lib/libgdrapi.so.2");
    let options = ["-shared", "-nostdlib", "-Wl,-soname,libgdrapi.so.2", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"];
    finish(Command::new("cc").args(options).arg(library()?).arg("-o").arg(&empty))?;
    for folder in ["lib", "dev"] {
        symlink("../lib/libvkgdr.so.1", shop.path(folder).join("libgdrapi.so"))?;
    }
    Ok(Some(shop))
}

fn program(shop: &Workshop, standard: &str, flags: &[&str]) -> Result<PathBuf> {
    let program = shop.path("program");
    let mut command = Command::new("cc");
    command.args(["-Wall", "-Wextra", "-Werror", "-g"]).arg(format!("-std={standard}")).args(flags);
    command.arg("-I").arg(fixture("../../include")).arg(fixture("gdrcopy.c")).arg("-o").arg(&program);
    if flags.contains(&"-DLINKED") {
        command.arg("-L").arg(shop.path("dev")).arg("-lgdrapi");
    }
    finish(command.arg("-ldl"))?;
    Ok(program)
}

/// The name by which the program asks for memory of vkgdr: it stores to the mapping only where the device sees that without a
/// flush, for which gdrcopy has no function.
fn vkgdr_memory() -> Result<&'static str> {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 1, MemoryKind::Mapped)?;
    Ok(if memory.is_coherent() { "vkgdr" } else { "non-coherent" })
}

/// Linked by `-lgdrapi`, as programs for gdrcopy are.
#[test]
fn a_program_that_is_linked_with_gdrcopy_runs() -> Result {
    let Some(shop) = workshop("linked")? else { return Ok(()) };
    let whose = vkgdr_memory()?;
    for standard in ["gnu99", "gnu11"].into_iter().take(amount(1, 2)) {
        let program = program(&shop, standard, &["-DLINKED"])?;
        if has("readelf") {
            let needed = dynamic(&program, "(NEEDED)")?;
            assert!(needed.iter().any(|name| name == "libvkgdr.so.1"), "{needed:?}");
        }
        done(shop.command(&program).args(["linked", whose]))?;
    }
    Ok(())
}

/// A program that was linked against gdrcopy's own library names that, and nothing of vkgdr.
#[test]
fn a_program_that_was_linked_against_gdrcopys_own_library_runs() -> Result {
    let Some(shop) = workshop("old")?.filter(|_| has("readelf")) else { return Ok(()) };
    let whose = vkgdr_memory()?;
    // In place of gdrcopy's, for the link: the same soname, with the functions.
    let theirs = shop.path("dev/libgdrapi.so");
    std::fs::remove_file(&theirs)?;
    let stub = shop.path("stub.c");
    let header = std::fs::read_to_string(fixture("../../include/gdrapi.h"))?;
    let names = super::symbols::gdrcopys(&header).into_iter().map(|name| format!("void {name}(void) {{}}\n"));
    std::fs::write(&stub, names.collect::<String>())?;
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-Wl,-soname,libgdrapi.so.2"]).arg(&stub).arg("-o").arg(&theirs);
    finish(&mut command)?;
    let program = program(&shop, "gnu99", &["-DLINKED"])?;
    let needed = dynamic(&program, "(NEEDED)")?;
    assert!(needed.iter().any(|name| name == "libgdrapi.so.2"), "{needed:?}");
    assert!(!needed.iter().any(|name| name == "libvkgdr.so.1"), "{needed:?}");
    done(shop.command(&program).args(["linked", whose]))
}

#[test]
fn a_program_that_loads_gdrcopy_by_any_name_runs() -> Result {
    let Some(shop) = workshop("loaded")? else { return Ok(()) };
    let whose = vkgdr_memory()?;
    let program = program(&shop, "gnu99", &[])?;
    let absolute = shop.path("lib/libgdrapi.so.2").display().to_string();
    for name in ["libgdrapi.so.2", "libgdrapi.so", &absolute] {
        done(shop.command(&program).args([name, whose]))?;
    }
    Ok(())
}

#[test]
fn memory_of_cuda_is_pinned_where_the_driver_maps_it_and_refused_elsewhere() -> Result {
    let Some(shop) = workshop("existing")? else { return Ok(()) };
    let program = program(&shop, "gnu99", &[])?;
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
