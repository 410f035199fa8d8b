//! Sequences of C library calls, decoded from bytes: the engine of the C library's tests (`ffi/c/tests/sequences`).
#![no_main]

#[path = "../../ffi/c/tests/sequences/world/mod.rs"]
mod world;

use libfuzzer_sys::fuzz_target;
use support::cuda::Context;

fuzz_target!(|bytes: &[u8]| {
    thread_local! {
        // The current context, for handles that use it.
        static CONTEXT: Context = Context::create(0);
    }
    CONTEXT.with(|_| world::run(bytes, true));
});
