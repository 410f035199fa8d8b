//! The functions of the simulated libraries: their exported symbols, less those that the library lists as not simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol};

/// A function by its name without version, and whether it is simulated.
pub(crate) type Functions = BTreeMap<String, bool>;

/// The functions of a library whose names begin with one of these. Its symbol `list` has the names of those that are not
/// simulated, separated by spaces and ended by a zero.
pub(super) fn of(library: &Path, prefixes: &[&str], list: &str) -> Result<Functions, String> {
    let complain = |error: &dyn std::fmt::Display| format!("{}: {error}", library.display());
    let bytes = std::fs::read(library).map_err(|error| complain(&error))?;
    let file = object::File::parse(&*bytes).map_err(|error| complain(&error))?;
    let symbols: Vec<_> = file.dynamic_symbols().filter(|symbol| symbol.is_definition()).collect();
    let names = symbols.iter().filter_map(|symbol| symbol.name().ok());
    let names: BTreeSet<&str> = names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).collect();
    let listed =
        symbols.iter().find(|symbol| symbol.name() == Ok(list)).ok_or_else(|| complain(&"no list of functions"))?;
    let section = listed.section_index().and_then(|index| file.section_by_index(index).ok());
    let data = section.and_then(|section| section.data_range(listed.address(), listed.size()).ok().flatten());
    let missing =
        data.and_then(|data| std::str::from_utf8(data).ok()).ok_or_else(|| complain(&"no list of functions"))?;
    let missing: BTreeSet<&str> = missing.trim_end_matches('\0').split_whitespace().collect();
    let mut functions = Functions::new();
    for name in names {
        *functions.entry(base_name(name).to_owned()).or_default() |= !missing.contains(name);
    }
    Ok(functions)
}

/// A name without the suffixes of versions and of default streams.
pub(crate) fn base_name(name: &str) -> &str {
    let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    let base = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    base.strip_suffix("_v").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_name_has_no_version() {
        let names =
            ["cuMemFree", "cuMemFree_v2", "cuMemcpyHtoD_v2_ptds", "cuStreamQuery_ptsz", "cuMemcpy2D", "cuMemsetD8_v2"];
        let bases = ["cuMemFree", "cuMemFree", "cuMemcpyHtoD", "cuStreamQuery", "cuMemcpy2D", "cuMemsetD8"];
        assert_eq!(names.map(base_name), bases);
    }
}
