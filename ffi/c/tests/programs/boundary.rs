//! The sources: every export is one call of the boundary, where a panic becomes an error. The boundary has unit tests
//! of its own; this test reads the exports' bodies.

use std::collections::BTreeSet;
use std::fs;

use super::Result;
use super::symbols::declared;
use super::workshop::sources;

/// Exports that return a static string and cannot panic.
const EXCEPTIONS: [&str; 2] = ["vkgdr_status_string", "vkgdr_version"];

/// The functions for C in a source file, each with its body.
fn exports(source: &str) -> Vec<(&str, &str)> {
    let starts = source.match_indices("extern \"C\" fn ").map(|(at, text)| &source[at + text.len()..]);
    starts
        .filter_map(|rest| {
            let name = rest.split('(').next()?;
            // rustfmt ends a function with a brace at the start of a line.
            let (_, body) = rest.split_once(" {\n")?;
            Some((name, body.split_once("\n}")?.0))
        })
        .collect()
}

/// Whether a body is one call of the boundary, before which only a closure for it may be made.
fn is_one_call(body: &str) -> bool {
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let makes_closure =
        text.starts_with("let ") && text.split_once(" = ").is_some_and(|(_, value)| value.starts_with('|'));
    let text = text.rsplit_once("}; ").filter(|_| makes_closure).map_or(&*text, |(_, call)| call);
    let text = text.strip_prefix("unsafe { ").unwrap_or(text);
    let mut depth = 0;
    let end = text.find(|character| {
        depth += i32::from(character == '(') - i32::from(character == ')');
        character == ')' && depth == 0
    });
    text.starts_with("boundary::") && end.is_some_and(|end| ["", ";", " }", " };"].contains(&&text[end + 1..]))
}

#[test]
fn every_export_goes_through_the_boundary_so_that_a_panic_becomes_an_error() -> Result {
    let Some(folder) = sources() else { return Ok(()) };
    let mut found = BTreeSet::new();
    // gdrcopy's functions, in a folder, have a boundary of their own.
    let files = fs::read_dir(folder.join("src"))?.map(|entry| Ok(entry?.path()));
    for file in files.collect::<Result<Vec<_>>>()?.iter().filter(|path| path.is_file()) {
        let source = fs::read_to_string(file)?;
        for (name, body) in exports(&source) {
            found.insert(name.to_owned());
            assert!(
                EXCEPTIONS.contains(&name) || is_one_call(body),
                "{name} does not consist of one call of the boundary, but of:\n{body}"
            );
        }
    }
    assert_eq!(found, declared(folder)?, "the exports that were found in the sources are not those of the header");
    Ok(())
}
