//! The shared library's exports, dependencies and soname.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::Result;
use super::workshop::{dynamic, finish, has, library, sources};

/// The functions of vkgdr 0.1, none of which may be removed.
const OLD: [&str; 12] = [
    "vkgdr_close",
    "vkgdr_last_error",
    "vkgdr_memory_alloc",
    "vkgdr_memory_flush",
    "vkgdr_memory_free",
    "vkgdr_memory_get_device_ptr",
    "vkgdr_memory_get_host_ptr",
    "vkgdr_memory_get_size",
    "vkgdr_memory_invalidate",
    "vkgdr_memory_is_coherent",
    "vkgdr_memory_non_coherent_atom_size",
    "vkgdr_open",
];

/// The functions that the header declares.
pub(crate) fn declared(folder: &Path) -> Result<BTreeSet<String>> {
    let header = fs::read_to_string(folder.join("include/vkgdr.h"))?;
    let lines = header.lines().filter_map(|line| line.strip_prefix("VKGDR_API "));
    let name = |line: &str| line.split('(').next()?.split([' ', '*']).next_back().map(str::to_owned);
    Ok(lines.filter_map(name).collect())
}

/// The functions of gdrcopy: those that `gdrapi.h` declares, and `gdr_get_info`, which is a macro of gdrcopy's header too, while
/// its library exports the function for programs built with older headers.
pub(crate) fn gdrcopys(header: &str) -> BTreeSet<String> {
    let is_prototype =
        |line: &&str| line.ends_with(';') && ["gdr_t ", "int ", "void "].iter().any(|t| line.starts_with(t));
    let name = |line: &str| Some(line.split_once('(')?.0.split([' ', '*']).next_back()?.to_owned());
    header.lines().filter(is_prototype).filter_map(name).chain(["gdr_get_info".to_owned()]).collect()
}

/// The names that the shared library exports.
fn exported() -> Result<BTreeSet<String>> {
    let output = finish(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library()?))?;
    let names = String::from_utf8(output.stdout)?;
    Ok(names.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

#[test]
fn the_library_exports_the_functions_of_both_headers_and_nothing_else() -> Result {
    let Some(folder) = sources() else { return Ok(()) };
    let declared = declared(folder)?;
    assert!(declared.len() > OLD.len(), "the header was not understood: {declared:?}");
    let gdrcopys = gdrcopys(&fs::read_to_string(folder.join("include/gdrapi.h"))?);
    assert_eq!(gdrcopys.len(), 17, "{gdrcopys:?}");
    if has("nm") {
        assert_eq!(exported()?, declared.union(&gdrcopys).cloned().collect());
    }
    Ok(())
}

#[test]
fn every_symbol_of_vkgdr_0_1_is_declared_and_exported() -> Result {
    let Some(folder) = sources() else { return Ok(()) };
    let old: BTreeSet<_> = OLD.into_iter().map(str::to_owned).collect();
    assert!(declared(folder)?.is_superset(&old));
    if has("nm") {
        assert!(exported()?.is_superset(&old));
    }
    Ok(())
}

/// The drivers are found at run time: a program that uses the library starts where there are none.
#[test]
fn the_library_has_the_soname_of_vkgdr_0_1_and_needs_no_driver() -> Result {
    if sources().is_none() || !has("readelf") {
        return Ok(());
    }
    assert_eq!(dynamic(&library()?, "(SONAME)")?, ["libvkgdr.so.1"]);
    // glibc's libraries (before 2.34 also pthread, dl, m, rt) and the unwinder.
    const SYSTEM: [&str; 7] = ["libc.", "libgcc_s.", "ld-linux", "libpthread.", "libdl.", "libm.", "librt."];
    let needed = dynamic(&library()?, "(NEEDED)")?;
    let foreign: Vec<_> = needed.iter().filter(|name| !SYSTEM.iter().any(|known| name.starts_with(known))).collect();
    assert!(foreign.is_empty(), "the library needs {foreign:?}");
    Ok(())
}
