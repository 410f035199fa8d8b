//! The limits of allocations: size, sum and number.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use vkgdr::{Memory, MemoryKind, Vkgdr};

use super::{SKIPPED, mib, timed};
use crate::cuda::Answer;
use crate::host::Words;
use crate::{Probe, allocate};

/// Less than the time limit of the process, which also opens the GPU.
const PATIENCE: Duration = Duration::from_secs(9);
const MOST_PINNED: u64 = 8 << 30;

pub(super) fn largest_mapped(probe: &Probe) -> Answer<String> {
    let vkgdr = probe.vkgdr()?;
    spare_a_small_bar(&vkgdr)?;
    largest(&vkgdr, MemoryKind::Mapped, u64::MAX)
}

/// System memory used by the GPU cannot be swapped out, and pinning it takes long: only part of the free memory is tried.
pub(super) fn largest_host(probe: &Probe) -> Answer<String> {
    let free = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    let free = free.ok_or("/proc/meminfo does not tell MemAvailable")? << 10;
    let most = (free / 4).min(MOST_PINNED);
    println!("of the {} that are free {} are tried at most", mib(free), mib(most));
    largest(&probe.vkgdr()?, MemoryKind::Host, most)
}

/// Doubles the size up to the heap's or `most`, then bisects between success and failure. An attempt is made only if there is
/// time for it at the rate of the last one that succeeded.
fn largest(vkgdr: &Vkgdr, kind: MemoryKind, most: u64) -> Answer<String> {
    const STEP: u64 = 2 << 20;
    let started = Instant::now();
    let info = vkgdr.memory_info(kind).map_err(|error| error.to_string())?;
    let heap = info.total.min(most);
    let (mut works, mut refusal, mut seconds_a_byte) = (0, String::new(), 0.0_f64);
    let mut high = None;
    let mut size = 16 << 20;
    // Precise to 1/64, and to the sizes that are tried.
    let precision = (heap / 64).max(STEP);
    while high.unwrap_or(heap).saturating_sub(works) > precision {
        let expected = Duration::from_secs_f64((bytes(size) * seconds_a_byte).min(PATIENCE.as_secs_f64()));
        if started.elapsed() + expected > PATIENCE {
            println!("{}: no time left", mib(size));
            break;
        }
        let (outcome, took) = timed(|| touch(vkgdr, size, kind));
        println!("{}: {} ({took:.1?})", mib(size), super::yes_no(&outcome));
        match outcome {
            Ok(()) => (works, seconds_a_byte) = (size, took.as_secs_f64() / bytes(size)),
            Err(error) => (high, refusal) = (Some(size), error),
        }
        let middle = |high: u64| (works + (high - works) / 2).next_multiple_of(STEP);
        size = match high {
            None if size * 2 < heap => size * 2,
            None => middle(heap),
            Some(high) => middle(high),
        };
    }
    let stopped = if refusal.is_empty() { "nothing refused".to_owned() } else { format!("then {refusal}") };
    Ok(format!("{} of a heap of {}, {stopped}", mib(works), mib(info.total)))
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn bytes(size: u64) -> f64 {
    size as f64
}

/// Allocates, writes and reads both ends, frees.
fn touch(vkgdr: &Vkgdr, size: u64, kind: MemoryKind) -> Answer<()> {
    let len = usize::try_from(size).map_err(|error| error.to_string())?;
    let memory = allocate(vkgdr, len, kind)?;
    let words = Words::of(&memory)?;
    for index in [0, len / 4 - 1] {
        words.set(index, 0x1234_5678);
        if words.get(index) != 0x1234_5678 {
            return Err(format!("word {index} does not keep what was written"));
        }
    }
    Ok(())
}

/// Fails for a small BAR: filling one was seen to freeze displays and to raise Xid 31 and 154
/// (NVIDIA/open-gpu-kernel-modules issues 1134 and 1303).
fn spare_a_small_bar(vkgdr: &Vkgdr) -> Answer<()> {
    const SMALLEST: u64 = 1 << 30;
    let info = vkgdr.memory_info(MemoryKind::Mapped).map_err(|error| error.to_string())?;
    if info.total >= SMALLEST {
        return Ok(());
    }
    Err(format!("{SKIPPED}the BAR has {}, and filling one below 1 GiB can freeze a display", mib(info.total)))
}

/// Allocates 1/64 of the heap at a time until an allocation fails.
pub(super) fn total_mapped(probe: &Probe) -> Answer<String> {
    let vkgdr = probe.vkgdr()?;
    spare_a_small_bar(&vkgdr)?;
    let info = vkgdr.memory_info(MemoryKind::Mapped).map_err(|error| error.to_string())?;
    let chunk = (info.total / 64).next_multiple_of(2 << 20);
    let chunk_len = usize::try_from(chunk).map_err(|error| error.to_string())?;
    let mut chunks: Vec<Memory> = Vec::new();
    let started = Instant::now();
    let stopped = loop {
        // If the driver does not enforce the heap's size, no limit is found.
        if chunks.len() == 64 {
            break "nothing refused up to the heap's size".to_owned();
        }
        if started.elapsed() > PATIENCE {
            break "out of time".to_owned();
        }
        match allocate(&vkgdr, chunk_len, MemoryKind::Mapped) {
            Ok(memory) => {
                Words::of(&memory)?.set(0, 1);
                chunks.push(memory);
            }
            Err(refusal) => break refusal,
        }
    };
    let taken = chunk * chunks.len() as u64;
    println!("after {taken} bytes memory_info says {:?}", vkgdr.memory_info(MemoryKind::Mapped));
    Ok(format!("{} in {} allocations of {}, then: {stopped}", mib(taken), chunks.len(), mib(chunk)))
}

/// Makes small allocations until one fails.
pub(super) fn count(probe: &Probe) -> Answer<String> {
    const MOST: usize = 20_000;
    let vkgdr = probe.vkgdr()?;
    spare_a_small_bar(&vkgdr)?;
    println!(
        "maxMemoryAllocationCount: {:?}",
        probe.vulkan().map(|v| v.properties().limits.max_memory_allocation_count)
    );
    let mut memories: Vec<Memory> = Vec::new();
    let started = Instant::now();
    let stopped = loop {
        if memories.len() == MOST {
            break "nothing refused".to_owned();
        }
        if started.elapsed() > PATIENCE / 2 {
            break "out of time".to_owned();
        }
        match allocate(&vkgdr, 4096, MemoryKind::Mapped) {
            Ok(memory) => memories.push(memory),
            Err(refusal) => break refusal,
        }
    };
    let (count, time) = (memories.len(), started.elapsed());
    println!("open file descriptors: {:?}", std::fs::read_dir("/proc/self/fd").map(Iterator::count));
    let (errors, free_time) = timed(|| memories.into_iter().filter_map(|memory| memory.free().err()).count());
    println!("allocating took {time:.1?}, freeing {free_time:.1?}, {errors} errors");
    Ok(format!("{count}, then: {stopped}; {errors} errors when they were freed"))
}
