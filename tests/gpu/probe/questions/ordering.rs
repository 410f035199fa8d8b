//! Synchronisation of host and device, and visibility of their writes.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use vkgdr::{Memory, MemoryKind};

use super::{kind_named, timed};
use crate::cuda::{self, Answer, Buffer, Imported, Kernel, Stream};
use crate::host::{Words, store_fence};
use crate::{Probe, allocate};

const SPIN: Duration = Duration::from_millis(200);
const SPIN_NANOSECONDS: u64 = 200_000_000;

fn waits(time: Duration) -> &'static str {
    if time > SPIN / 2 { "WAITS" } else { "does not wait" }
}

/// The memory that is freed.
pub(super) const FREED: &[&str] = &["ordinary", "imported mapped", "imported host", "imported device"];

pub(super) fn free_waits(probe: &Probe, part: &str) -> Answer<String> {
    const SIZE: u64 = 4 << 20;
    let spin = Kernel::load("spin").map_err(|refusal| format!("needs a kernel that runs for a while: {refusal}"))?;
    let stream = Stream::new()?;
    let Some(kind) = part.strip_prefix("imported ") else {
        let buffer = Buffer::new(4 << 20)?;
        return release(&stream, &spin, "cuMemFree", || drop(buffer));
    };
    let vulkan = probe.vulkan()?;
    let allocation = vulkan.allocate(vulkan.type_of(kind_named(kind))?, SIZE)?;
    let imported = Imported::new(allocation.export()?, SIZE, false)?;
    let mapped = imported.map(0, SIZE)?;
    let answers = [
        release(&stream, &spin, "cuMemFree", || drop(mapped))?,
        release(&stream, &spin, "cuDestroyExternalMemory", || drop(imported))?,
        release(&stream, &spin, "vkFreeMemory", || drop(allocation))?,
    ];
    Ok(answers.join("; "))
}

/// Makes the call behind a kernel that does not use the memory.
fn release(stream: &Stream, spin: &Kernel, name: &str, call: impl FnOnce()) -> Answer<String> {
    stream.synchronize()?;
    stream.launch(spin, &[SPIN_NANOSECONDS])?;
    let ((), time) = timed(call);
    stream.synchronize()?;
    println!("{name} behind a kernel of {SPIN:?}: {time:.1?}");
    Ok(format!("{name} {}", waits(time)))
}

/// The number of rounds in which the device misses the host's last write, with and without a flush.
fn count_stale(memory: &Memory, read_by_device: &mut dyn FnMut() -> Answer<u32>) -> Answer<String> {
    const ROUNDS: u32 = 2000;
    let words = Words::of(memory)?;
    let mut stale = [0; 2];
    for (flush, stale) in [true, false].into_iter().zip(&mut stale) {
        for round in 1..=ROUNDS {
            words.set(0, round);
            if flush {
                memory.flush(..4).map_err(|error| error.to_string())?;
            }
            *stale += u32::from(read_by_device()? != round);
        }
    }
    Ok(format!("{} of {ROUNDS} stale with flush, {} without", stale[0], stale[1]))
}

pub(super) fn launch(probe: &Probe) -> Answer<String> {
    let vkgdr = probe.vkgdr()?;
    let stream = Stream::new()?;
    let result = Buffer::new(4096)?;
    let kernel = Kernel::load("copy");
    let mut answers = Vec::new();
    for kind in [MemoryKind::Mapped, MemoryKind::Host] {
        let memory = allocate(&vkgdr, 1 << 20, kind)?;
        let source = memory.device_ptr();
        let mut seen = [0_u32];
        let mut by_copy = || {
            cuda::copy(result.0, source, 4)?;
            cuda::copy_to_host(&mut seen, result.0)?;
            Ok(seen[0])
        };
        answers.push(format!("{kind}, by a copy: {}", count_stale(&memory, &mut by_copy)?));
        let Ok(kernel) = &kernel else { continue };
        let mut seen = [0_u32];
        let mut by_kernel = || {
            stream.launch(kernel, &[source, result.0, 0])?;
            stream.synchronize()?;
            cuda::copy_to_host(&mut seen, result.0)?;
            Ok(seen[0])
        };
        answers.push(format!("{kind}, by a kernel: {}", count_stale(&memory, &mut by_kernel)?));
    }
    if let Err(refusal) = kernel {
        answers.push(format!("by a kernel: not answered: {refusal}"));
    }
    Ok(answers.join("; "))
}

/// The memories of the CPU's flag and of the kernel's reply.
pub(super) const ROUND_TRIPS: &[&str] =
    &["flag mapped, reply host", "flag host, reply host", "flag mapped, reply mapped"];

/// The CPU writes the number of a round into one memory, and a running kernel answers in another.
pub(super) fn round_trip(probe: &Probe, part: &str) -> Answer<String> {
    let kernel = Kernel::load("answer").map_err(|refusal| format!("needs a kernel: {refusal}"))?;
    let vkgdr = probe.vkgdr()?;
    let stream = Stream::new()?;
    let (flag, reply) = match part {
        "flag mapped, reply host" => (MemoryKind::Mapped, MemoryKind::Host),
        "flag host, reply host" => (MemoryKind::Host, MemoryKind::Host),
        _ => (MemoryKind::Mapped, MemoryKind::Mapped),
    };
    let flag_memory = allocate(&vkgdr, 4096, flag)?;
    let reply_memory = allocate(&vkgdr, 4096, reply)?;
    exchange(&kernel, &stream, &flag_memory, &reply_memory)
}

fn exchange(kernel: &Kernel, stream: &Stream, flag_memory: &Memory, reply_memory: &Memory) -> Answer<String> {
    const ROUNDS: u32 = 5000;
    const PATIENCE: Duration = Duration::from_secs(1);
    let (flag, reply) = (Words::of(flag_memory)?, Words::of(reply_memory)?);
    flag.set(0, 0);
    reply.set(0, 0);
    store_fence();
    let arguments = [flag_memory.device_ptr(), reply_memory.device_ptr(), u64::from(ROUNDS), 1_500_000_000];
    stream.launch(kernel, &arguments)?;
    let started = Instant::now();
    let mut best = Duration::MAX;
    let mut answered = 0;
    'rounds: for round in 1..=ROUNDS {
        let from = Instant::now();
        flag.set(0, round);
        store_fence();
        while reply.get(0) != round {
            if started.elapsed() > PATIENCE {
                break 'rounds;
            }
            std::hint::spin_loop();
        }
        best = best.min(from.elapsed());
        answered = round;
    }
    let mean = started.elapsed() / answered.max(1);
    stream.synchronize()?;
    if answered == 0 {
        return Ok("NOTHING SEEN while the kernel ran".to_owned());
    }
    Ok(format!("{answered} round trips while the kernel ran, best {best:.2?}, mean {mean:.2?}"))
}

pub(super) fn stream_values(probe: &Probe, kind: &str) -> Answer<String> {
    let memory = allocate(&probe.vkgdr()?, 4096, kind_named(kind))?;
    let words = Words::of(&memory)?;
    let stream = Stream::new()?;
    let flush = || memory.flush(..).map_err(|error| error.to_string());
    words.set(0, 0);
    store_fence();
    flush()?;
    let write = stream.write_value(memory.device_ptr(), 42).and_then(|()| {
        stream.synchronize()?;
        memory.invalidate(..).map_err(|error| error.to_string())?;
        if words.get(0) == 42 { Ok(()) } else { Err(format!("the host sees {}", words.get(0))) }
    });
    let wait = stream.wait_value(memory.device_ptr() + 4, 7).and_then(|()| {
        words.set(1, 7);
        store_fence();
        flush()?;
        stream.synchronize()
    });
    Ok(format!("write {}, wait {}", super::yes_no(&write), super::yes_no(&wait)))
}
