//! The shared library's exports, dependencies and soname.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::Result;
use super::workshop::{finish, has, library, sources};

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
    let mut names = prototypes(header);
    names.insert("gdr_get_info".to_owned());
    names
}

/// The functions that lines of a header declare.
pub(crate) fn prototypes(header: &str) -> BTreeSet<String> {
    let lines = header.lines().filter(|line| line.ends_with(");") && !line.starts_with(['#', ' ', '/']));
    let name = |line: &str| Some(line.split_once('(')?.0.split([' ', '*']).next_back()?.to_owned());
    lines.filter_map(name).collect()
}

/// The names that the shared library exports.
fn exported() -> Result<BTreeSet<String>> {
    let output = finish(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library()?))?;
    let names = String::from_utf8(output.stdout)?;
    Ok(names.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// The names that a program or library has in its dynamic section, of one kind: `(NEEDED)` or `(SONAME)`.
pub(crate) fn dynamic(file: &Path, kind: &str) -> Result<Vec<String>> {
    let output = finish(Command::new("readelf").args(["--dynamic", "--wide"]).arg(file).env("LC_ALL", "C"))?;
    let text = String::from_utf8(output.stdout)?;
    let lines = text.lines().filter(|line| line.contains(kind));
    Ok(lines.filter_map(|line| Some(line.split('[').nth(1)?.split(']').next()?.to_owned())).collect())
}

#[test]
fn the_library_exports_the_functions_of_both_headers_and_nothing_else() -> Result {
    let Some(folder) = sources() else { return Ok(()) };
    let declared = declared(folder)?;
    assert!(declared.len() > 12, "the header was not understood: {declared:?}");
    let gdrcopys = gdrcopys(&fs::read_to_string(folder.join("include/gdrapi.h"))?);
    assert_eq!(gdrcopys.len(), 17, "{gdrcopys:?}");
    if has("nm") {
        assert_eq!(exported()?, declared.union(&gdrcopys).cloned().collect());
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
