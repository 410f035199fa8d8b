//! The number of blocks of a kernel that fit on a multiprocessor, by the device's limits and 32 registers a thread.

use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUoccupancy_flags};

use super::attributes::REGISTERS;

use crate::boundary::exports;
use crate::code::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::context;
use crate::device;
use crate::ffi::{BlockToShared, In, Out};
use crate::layout::LaunchConfig;
use crate::module::function::{Function, most_threads};
use crate::module::library;

const WARP: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE;
const MULTIPROCESSORS: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
const THREADS_PER_MULTIPROCESSOR: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
const SHARED_PER_MULTIPROCESSOR: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
const REGISTERS_PER_MULTIPROCESSOR: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR;
const BLOCKS_PER_MULTIPROCESSOR: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR;
const RESERVED_SHARED_PER_BLOCK: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK;

const KNOWN_FLAGS: u32 = CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE as u32;

// The blocks that fit by threads, registers and the limit on blocks, shared memory aside.
fn by_threads(threads: u64) -> u64 {
    let threads = threads.next_multiple_of(device::limit(WARP));
    let by_registers = device::limit(REGISTERS_PER_MULTIPROCESSOR) / (threads * REGISTERS);
    let by_threads = device::limit(THREADS_PER_MULTIPROCESSOR) / threads;
    by_threads.min(by_registers).min(device::limit(BLOCKS_PER_MULTIPROCESSOR))
}

// The blocks that fit on a multiprocessor; 0 where a single one does not.
fn blocks(function: &Function, threads: u64, dynamic_shared: u64) -> u64 {
    if threads > most_threads(&function.kernel) || dynamic_shared > function.settings.get().max_dynamic_shared {
        return 0;
    }
    let shared = function.kernel.shared_bytes() + dynamic_shared + device::limit(RESERVED_SHARED_PER_BLOCK);
    by_threads(threads).min(device::limit(SHARED_PER_MULTIPROCESSOR) / shared)
}

/// The number of blocks of that shape that the whole device can hold at once.
pub(super) fn resident_blocks(function: &Function, threads: u64, dynamic_shared: u64) -> u64 {
    blocks(function, threads, dynamic_shared) * device::limit(MULTIPROCESSORS)
}

fn int(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn threads_of(block: i32) -> Result<u64, i32> {
    u64::try_from(block).ok().filter(|threads| *threads > 0).ok_or(INVALID_VALUE)
}

fn max_active(out: Out<i32>, function: usize, block: i32, dynamic_shared: usize) -> Outcome {
    max_active_with_flags(out, function, block, dynamic_shared, 0)
}

fn max_active_with_flags(out: Out<i32>, function: usize, block: i32, dynamic_shared: usize, flags: u32) -> Outcome {
    out.required()?;
    context::usable()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let function = library::function(function)?;
    out.set(int(blocks(&function, threads_of(block)?, dynamic_shared as u64)))
}

fn max_potential(
    grid: Out<i32>,
    block: Out<i32>,
    function: usize,
    shared_of: BlockToShared,
    dynamic_shared: usize,
    limit: i32,
) -> Outcome {
    max_potential_with_flags(grid, block, function, shared_of, dynamic_shared, limit, 0)
}

// The block size with the most threads on a multiprocessor, the largest of several.
fn max_potential_with_flags(
    grid: Out<i32>,
    block: Out<i32>,
    function: usize,
    shared_of: BlockToShared,
    dynamic_shared: usize,
    limit: i32,
    flags: u32,
) -> Outcome {
    grid.required()?;
    block.required()?;
    context::usable()?;
    if flags & !KNOWN_FLAGS != 0 || limit < 0 {
        return Err(INVALID_VALUE);
    }
    let function = library::function(function)?;
    let most = most_threads(&function.kernel).min(if limit == 0 { u64::MAX } else { threads_of(limit)? });
    let warp = device::limit(WARP);
    let sizes = (1..=most.div_ceil(warp)).rev().map(|warps| (warps * warp).min(most));
    let fitting = sizes.map(|threads| {
        let shared = shared_of.call(int(threads)).unwrap_or(dynamic_shared);
        (blocks(&function, threads, shared as u64), threads)
    });
    let best = fitting.filter(|(blocks, _)| *blocks > 0).max_by_key(|(blocks, threads)| (blocks * threads, *threads));
    let (blocks, threads) = best.unwrap_or_default();
    grid.set(int(blocks * device::limit(MULTIPROCESSORS)))?;
    block.set(int(threads))
}

fn available_shared(out: Out<usize>, function: usize, count: i32, block: i32) -> Outcome {
    out.required()?;
    context::usable()?;
    let function = library::function(function)?;
    let count = threads_of(count)?;
    if count > by_threads(threads_of(block)?) {
        return Err(INVALID_VALUE);
    }
    let each = device::limit(SHARED_PER_MULTIPROCESSOR) / count;
    let taken = function.kernel.shared_bytes() + device::limit(RESERVED_SHARED_PER_BLOCK);
    let free = each.saturating_sub(taken).min(function.settings.get().max_dynamic_shared);
    out.set(usize::try_from(free).map_err(|_| INVALID_VALUE)?)
}

// The device's compute capability predates clusters.
fn clusters(out: Out<i32>, function: usize, config: In<LaunchConfig>) -> Outcome {
    out.required()?;
    config.get()?;
    context::usable()?;
    library::function(function)?;
    Err(NOT_SUPPORTED)
}

exports! {
    cuOccupancyMaxActiveBlocksPerMultiprocessor =>
        max_active(out: Out<i32>, function: usize, block: i32, dynamic_shared: usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags =>
        max_active_with_flags(out: Out<i32>, function: usize, block: i32, dynamic_shared: usize, flags: u32);
    cuOccupancyMaxPotentialBlockSize =>
        max_potential(grid: Out<i32>, block: Out<i32>, function: usize, shared_of: BlockToShared,
                      dynamic_shared: usize, limit: i32);
    cuOccupancyMaxPotentialBlockSizeWithFlags =>
        max_potential_with_flags(grid: Out<i32>, block: Out<i32>, function: usize, shared_of: BlockToShared,
                                 dynamic_shared: usize, limit: i32, flags: u32);
    cuOccupancyAvailableDynamicSMemPerBlock =>
        available_shared(out: Out<usize>, function: usize, count: i32, block: i32);
    cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxActiveClusters =>
        clusters(out: Out<i32>, function: usize, config: In<LaunchConfig>);
}
