//! What real compilers make of the kernels in `sim/ptx/tests/fixtures`, against the same computed here.
//!
//! `scripts/compile-ptx.py` compiled them, some in several ways, and each test runs all compilations of its source.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

#[path = "../common/mod.rs"]
mod common;

mod atomics;
mod control;
mod data;
mod half;
mod integers;
mod library;
mod math;
mod output;
mod tensor;
mod tiles;
mod waiting;
mod warps;

/// Numbers that look random and are the same every time.
pub(crate) fn numbers(count: usize) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(next).collect()
}
