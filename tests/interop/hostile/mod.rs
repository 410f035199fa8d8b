//! Uncommon uses of cudarc's streams: arguments that are not launched, guards that are forgotten, threads that interleave,
//! contexts that are gone, calls of the driver that fail. The set-up is that of `order`.

mod contexts;
mod copies;
mod faults;
mod launches;
mod leaks;
mod sweep;
mod threads;

use std::thread;

use support::Result;
use support::blocking::{let_run, while_shut};
use support::cuda::Gate;
use vkgdr::{Memory, MemoryKind, Pool, PoolOptions, Vkgdr};

use crate::order::Setup;

/// A pool of small blocks, which are quick to add and to give back.
fn new_pool(gpu: &Vkgdr) -> Result<Pool> {
    Ok(Pool::new(gpu, PoolOptions::new(MemoryKind::Mapped).block_len(256 << 10).largest_piece(64 << 10))?)
}

/// Drops memory while a gate holds a kernel that uses it, and waits for the kernel, which fails if the memory is released.
fn drop_under_a_kernel(setup: &Setup, memory: Memory, gate: Gate) -> Result {
    while_shut(gate, || {
        drop(memory);
        let_run(|| setup.gpu.collect() > 0);
        Ok(())
    })?;
    Ok(setup.context.synchronize().map_err(|error| format!("a kernel used released memory: {error}"))?)
}

/// As [`let_run`], for tests of many rounds: long enough for a copy that waits for nothing.
fn let_run_briefly(condition: impl Fn() -> bool) {
    (0..500).take_while(|_| !condition()).for_each(|_| thread::yield_now());
}
