//! The speed of each side. On the simulator the numbers are meaningless.
#![forbid(unsafe_code)]

use std::time::Duration;

use vkgdr::{Memory, MemoryKind};

use super::{best_of, rate, timed};
use crate::cuda::{self, Answer, Stream};
use crate::host::{Words, store_fence};
use crate::{Probe, allocate};

/// The prefix of times and rates.
pub(super) fn meaning(probe: &Probe) -> &'static str {
    if probe.cuda.is_simulated() { "MEANINGLESS, simulated: " } else { "" }
}

pub(super) fn cpu(probe: &Probe) -> Answer<String> {
    const LEN: usize = 1 << 20;
    let vkgdr = probe.vkgdr()?;
    let mut buffer = vec![1_u32; LEN / 4];
    let mut answers = Vec::new();
    for kind in [MemoryKind::Mapped, MemoryKind::Host] {
        let memory = allocate(&vkgdr, LEN, kind)?;
        let words = Words::of(&memory)?;
        let write = best_of(20, || {
            words.write(&buffer);
            store_fence();
            Ok(())
        })?;
        let read = best_of(5, || {
            words.read(&mut buffer);
            Ok(())
        })?;
        let load = best_of_many(|| {
            words.get(1000);
        })?;
        for len in [4_usize, 64, 4096] {
            let small = best_of_many(|| {
                words.write(&buffer[..len / 4]);
                store_fence();
            })?;
            println!("{kind}: write {len} bytes and fence {small}");
        }
        println!("{kind}: one load {load}");
        let guess = if read > write * 4 { "write-combined or uncached" } else { "cached" };
        answers.push(format!("{kind}: write {}, read {}: {guess}", rate(LEN, write), rate(LEN, read)));
    }
    Ok(format!("{}1 MiB, one thread: {}", meaning(probe), answers.join("; ")))
}

/// The time of one of many operations: two readings of the clock take as long as one of them.
fn best_of_many(mut work: impl FnMut()) -> Answer<String> {
    const OPERATIONS: u32 = 256;
    let all = best_of(50, || {
        for _ in 0..OPERATIONS {
            work();
        }
        Ok(())
    })?;
    Ok(format!("{:.1} ns", all.as_secs_f64() * 1e9 / f64::from(OPERATIONS)))
}

pub(super) fn copies(probe: &Probe) -> Answer<String> {
    const LEN: usize = 64 << 20;
    let vkgdr = probe.vkgdr()?;
    let memories: Vec<Memory> =
        MemoryKind::ALL.into_iter().filter_map(|kind| allocate(&vkgdr, LEN, kind).ok()).collect();
    let mut answers = Vec::new();
    for from in &memories {
        for to in &memories {
            let target = if from.device_ptr() == to.device_ptr() {
                // Within one memory, from one half to the other.
                to.device_ptr() + (LEN / 2) as u64
            } else {
                to.device_ptr()
            };
            let time = best_of(5, || {
                cuda::copy(target, from.device_ptr(), LEN / 2)?;
                probe.cuda.synchronize()
            })?;
            answers.push(format!("{} to {} {}", from.kind(), to.kind(), rate(LEN / 2, time)));
        }
    }
    Ok(format!("{}{}", meaning(probe), answers.join("; ")))
}

pub(super) fn calls(probe: &Probe) -> Answer<String> {
    let (first, first_time) = timed(|| probe.vkgdr());
    let vkgdr = first?;
    let (second, second_time) = timed(|| probe.vkgdr());
    second?;
    for kind in MemoryKind::ALL {
        for len in [4096_usize, 1 << 20, 64 << 20] {
            match allocate_and_free(&vkgdr, len, kind) {
                Ok((allocate, free)) => println!("{kind}, {len} bytes: allocate {allocate:.0?}, free {free:.0?}"),
                Err(refusal) => println!("{kind}, {len} bytes: {refusal}"),
            }
        }
    }
    let (stream, time) = timed(Stream::new);
    stream?;
    println!("cuStreamCreate, to compare with: {time:.0?}");
    let (allocate, free) = allocate_and_free(&vkgdr, 1 << 20, MemoryKind::Mapped)?;
    Ok(format!(
        "{}open {first_time:.1?}, again {second_time:.1?}; 1 MiB mapped: allocate {allocate:.0?}, free {free:.0?}",
        meaning(probe)
    ))
}

/// The medians of 15 measurements.
fn allocate_and_free(vkgdr: &vkgdr::Vkgdr, len: usize, kind: MemoryKind) -> Answer<(Duration, Duration)> {
    let (mut allocations, mut frees) = (Vec::new(), Vec::new());
    for _ in 0..15 {
        let (memory, time) = timed(|| allocate(vkgdr, len, kind));
        allocations.push(time);
        let memory = memory?;
        let (freed, time) = timed(|| memory.free());
        frees.push(time);
        freed.map_err(|error| error.to_string())?;
    }
    allocations.sort_unstable();
    frees.sort_unstable();
    Ok((allocations[7], frees[7]))
}
