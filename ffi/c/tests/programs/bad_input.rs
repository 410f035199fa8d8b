//! Programs that misuse every function, under AddressSanitizer.

use super::Result;
use super::clients::sanitized;
use super::workshop::{Build, GCC, Linkage, Workshop, done, installed};

/// The tests of the program, and what each of them shows.
const TESTS: [(&str, &str); 11] = [
    ("null", "null is refused or ignored for every pointer of every function"),
    ("ranges", "ranges that are not within the memory are refused up to SIZE_MAX"),
    ("flags-and-sizes", "unknown flags and impossible sizes are refused"),
    ("status-strings", "every int has a status string"),
    ("freed-by-free", "the last error is a copy that free() frees"),
    ("sixteen-threads", "sixteen threads read their own last errors"),
    ("end-of-thread", "every function can be called while a thread ends"),
    ("failed-free-on-stream", "memory that could not be freed on a stream is still the caller's"),
    ("null-for-pools", "null is refused or ignored for every pointer of a pool's functions"),
    ("impossible-pools", "unknown and impossible options of pools are refused"),
    ("pools-at-the-end-of-thread", "a pool can be used and closed while a thread ends"),
];
const BAD_INPUT: Build<'_> = Build {
    name: "bad-input",
    standard: "c99",
    sources: &[
        "common/check.c",
        "common/driver.c",
        "bad_input/main.c",
        "bad_input/null.c",
        "bad_input/numbers.c",
        "bad_input/last_error.c",
        "bad_input/pool.c",
    ],
    flags: &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    linkage: Linkage::Shared,
};

/// Each of them in a process of its own. One test, since building the program takes longer than its runs.
#[test]
fn programs_that_misuse_every_function_are_refused_and_do_no_harm() -> Result {
    let Some(shop) = Workshop::open("bad-input")? else { return Ok(()) };
    for compiler in installed(&[GCC]) {
        let program = shop.program(compiler, &BAD_INPUT)?;
        for (test, claim) in TESTS {
            done(sanitized(&shop, &program).arg(test)).map_err(|error| format!("not so: {claim}: {error}"))?;
        }
    }
    Ok(())
}
