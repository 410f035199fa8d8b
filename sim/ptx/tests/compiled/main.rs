//! What real compilers make of the kernels in `sim/ptx/tests/fixtures`, against the same computed here.
//!
//! Each source was compiled in several ways by `scripts/compile-ptx.py`, and each test runs them all.

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

/// The compilations of a source, each with the name of its way.
/// `fast` adds `nvrtc13-sm_90-fast`, for sources that have other instructions with it.
macro_rules! compiled {
    ($name:literal) => {
        [compiled!("nvrtc12-sm_70" / $name), compiled!("nvcc13-sm_90-debug" / $name)]
    };
    ($name:literal, fast) => {
        [
            compiled!("nvrtc12-sm_70" / $name),
            compiled!("nvrtc13-sm_90-fast" / $name),
            compiled!("nvcc13-sm_90-debug" / $name),
        ]
    };
    ($way:literal / $name:literal) => {
        ($way, include_str!(concat!("../fixtures/", $way, "/", $name, ".ptx")))
    };
}
pub(crate) use compiled;

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
