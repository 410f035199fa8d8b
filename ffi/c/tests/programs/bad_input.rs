//! Programs that misuse every function, under AddressSanitizer.

use super::Result;
use super::clients::sanitized;
use super::workshop::{Build, GCC, Linkage, Workshop, done, installed};

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

/// Runs one test of the program.
fn run(test: &str) -> Result {
    let Some(shop) = Workshop::open(test)? else { return Ok(()) };
    for compiler in installed(&[GCC]) {
        let program = shop.program(compiler, &BAD_INPUT)?;
        done(sanitized(&shop, &program).arg(test))?;
    }
    Ok(())
}

#[test]
fn null_is_refused_or_ignored_for_every_pointer_of_every_function() -> Result {
    run("null")
}

#[test]
fn ranges_that_are_not_within_the_memory_are_refused_up_to_size_max() -> Result {
    run("ranges")
}

#[test]
fn unknown_flags_and_impossible_sizes_are_refused() -> Result {
    run("flags-and-sizes")
}

#[test]
fn every_int_has_a_status_string() -> Result {
    run("status-strings")
}

#[test]
fn the_last_error_is_a_copy_that_free_frees() -> Result {
    run("freed-by-free")
}

#[test]
fn sixteen_threads_read_their_own_last_errors() -> Result {
    run("sixteen-threads")
}

#[test]
fn every_function_can_be_called_while_a_thread_ends() -> Result {
    run("end-of-thread")
}

#[test]
fn memory_that_could_not_be_freed_on_a_stream_is_still_the_callers() -> Result {
    run("failed-free-on-stream")
}

#[test]
fn null_is_refused_or_ignored_for_every_pointer_of_a_pools_functions() -> Result {
    run("null-for-pools")
}

#[test]
fn unknown_and_impossible_options_of_pools_are_refused() -> Result {
    run("impossible-pools")
}

#[test]
fn a_pools_memory_that_is_freed_twice_is_lent_once() -> Result {
    run("double-frees-of-pool-memory")
}

#[test]
fn a_pool_can_be_used_and_closed_while_a_thread_ends() -> Result {
    run("pools-at-the-end-of-thread")
}
