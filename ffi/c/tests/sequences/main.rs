//! Random sequences of the C library's calls, by the engine that the fuzz target `c_abi` runs, too. `VKGDR_STEPS` and `VKGDR_SEED`
//! are as for the sequences of the Rust library.
#![expect(unsafe_code, reason = "calls C functions")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one fact serves all calls of a block")]

mod world;

use std::thread;

use support::cuda::Context;
use support::profile::under;
use support::step::Code;
use support::{Random, Result, amount, number};

/// The number of steps of a test.
fn goal() -> u64 {
    number("VKGDR_STEPS").unwrap_or_else(|| amount(30_000, 300_000))
}

/// Runs sequences in a context of their own.
fn sequences(goal: u64, seed: u64, is_alone: bool) {
    let _context = Context::create(0);
    let mut random = Random::new(number("VKGDR_SEED").unwrap_or(1) + (seed << 32));
    let mut steps = 0;
    while steps < goal {
        let len = 1 + random.below(250);
        steps += world::run(&random.bytes(len * size_of::<Code>()), is_alone) as u64;
    }
}

#[test]
fn random_calls_return_what_the_header_says_and_agree_with_a_model() {
    sequences(goal(), 0, true);
}

#[test]
fn random_calls_agree_with_a_model_where_memory_is_not_coherent() -> Result {
    under("non-coherent", || {
        // Allocations and flushes take their time there.
        sequences(goal() / 5, 0, true);
        Ok(())
    })
}

#[test]
fn threads_of_random_calls_disturb_no_other() {
    thread::scope(|scope| (1..5).for_each(|seed| drop(scope.spawn(move || sequences(goal(), seed, false)))));
    world::assert_nothing_lives();
}
