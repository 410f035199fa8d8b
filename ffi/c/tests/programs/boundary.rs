//! The sources: every export is one call of the boundary, where a panic becomes an error. The boundary has unit tests
//! of its own; this test reads the exports' bodies.

use std::collections::BTreeSet;
use std::fs;

use super::Result;
use super::symbols::declared;
use super::workshop::sources;

/// Exports that return a static string and cannot panic.
const EXCEPTIONS: [&str; 2] = ["vkgdr_status_string", "vkgdr_version"];

/// The allowed bodies, with the arguments of each call as `_`.
const SHAPES: [&str; 5] = [
    "boundary::status(_)",
    "boundary::value(_)",
    "let opened = remembered(_); opened.map_or(_)",
    "boundary::opening(_)",
    "let allocated = remembered(_); allocated.unwrap_or(_)",
];

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

/// A body without comments, line breaks and the contents of parentheses.
fn shape(body: &str) -> String {
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut depth = 0_usize;
    let mut shape = String::new();
    for character in text.chars() {
        match character {
            '(' if depth == 0 => shape.push_str("(_"),
            ')' if depth == 1 => shape.push(')'),
            _ if depth == 0 => shape.push(character),
            _ => {}
        }
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    shape.trim_end_matches(';').to_owned()
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
            let shape = shape(body);
            assert!(
                EXCEPTIONS.contains(&name) || SHAPES.contains(&shape.as_str()),
                "{name} does not consist of one call of the boundary, but of: {shape}"
            );
        }
    }
    assert_eq!(found, declared(folder)?, "the exports that were found in the sources are not those of the header");
    Ok(())
}
