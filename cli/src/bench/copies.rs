//! Copies between private memory and GPU memory: `bw` and `latency`.
//!
//! The CPU copies memory that it has a view of, and flushes or invalidates it; the copy engine copies the other kind. A
//! write is timed until it has left the CPU. Each thread copies its own bytes, all at the same time.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use vkgdr::{CopyPolicy, Memory, MemoryKind};

use super::timing::{self, Times};
use super::{Point, Run};
use crate::options::{CopyBench, Direction};
use crate::{Failure, Result};

pub(super) fn measure(run: &mut Run<'_>, options: &CopyBench, sizes: &[usize], kinds: &[MemoryKind]) -> Result {
    let (threads, largest) = (usize::from(options.threads), sizes.iter().copied().max().unwrap_or(0));
    let whole = largest
        .checked_next_multiple_of(4096)
        .and_then(|part| part.checked_mul(threads))
        .ok_or_else(|| Failure::boxed("the sizes are too large", "choose a smaller --to, or fewer --threads"))?;
    run.for_each_kind(kinds, whole, 1, |run, kind| {
        let memory = Memory::allocate(run.gpu, whole, kind)?;
        // Unwritten pages of a simulated or a host memory are not there yet.
        if kind.has_host_view() {
            memory.fill(.., 0_u8)?;
        }
        let parts = (0..threads)
            .map(|part| memory.slice(part * (whole / threads)..(part + 1) * (whole / threads)))
            .collect::<vkgdr::Result<Vec<_>>>()?;
        let mut private = vec![vec![0x5a_u8; largest]; threads];
        for direction in options.directions() {
            for len in sizes {
                let (times, rate) = measure_size(&parts, &mut private, direction, *len)?;
                let by = Some(if kind.has_host_view() { "cpu" } else { "engine" });
                let operation = if direction == Direction::Write { "write" } else { "read" };
                run.add(Point { kind, operation, by, threads, bytes: Some(*len), times, rate: Some(rate) })?;
            }
        }
        Ok(())
    })
}

/// The times of all threads, and bytes per second: by the median time of one thread, or by the time that several took
/// together, which may have had to share CPUs.
fn measure_size(
    parts: &[Memory],
    private: &mut [Vec<u8>],
    direction: Direction,
    len: usize,
) -> vkgdr::Result<(Times, f64)> {
    let copy = |part: &Memory, bytes: &mut [u8]| copy(part, bytes, direction);
    let batch = match (parts.first(), private.first_mut()) {
        (Some(first), Some(bytes)) => timing::batch(|| copy(first, &mut bytes[..len]))?,
        _ => 1,
    };
    let barrier = Barrier::new(parts.len());
    let results: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = parts
            .iter()
            .zip(private)
            .map(|(part, bytes)| {
                scope.spawn(|| {
                    barrier.wait();
                    let begin = Instant::now();
                    let times = timing::measure(batch, || copy(part, &mut bytes[..len]));
                    times.map(|times| (times, begin, Instant::now()))
                })
            })
            .collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let results = results.into_iter().collect::<vkgdr::Result<Vec<_>>>()?;
    let begin = results.iter().map(|(_, begin, _)| *begin).min();
    let end = results.iter().map(|(.., end)| *end).max();
    let together = begin.zip(end).map_or(0.0, |(begin, end)| (end - begin).as_secs_f64());
    let times = Times::joined(results.into_iter().map(|(times, ..)| times).collect());
    let rate = if parts.len() == 1 {
        len as f64 / (times.percentile(0.5) * 1e-9)
    } else {
        len as f64 * times.operations() / together
    };
    Ok((times, rate))
}

fn copy(part: &Memory, bytes: &mut [u8], direction: Direction) -> vkgdr::Result<()> {
    let by_cpu = part.kind().has_host_view();
    let policy = if by_cpu { CopyPolicy::Cpu } else { CopyPolicy::Dma };
    match direction {
        Direction::Write => {
            part.write_with(policy, 0, bytes)?;
            if by_cpu { part.flush(..bytes.len()) } else { Ok(()) }
        }
        Direction::Read => {
            if by_cpu {
                part.invalidate(..bytes.len())?;
            }
            part.read_with(policy, 0, bytes)
        }
    }
}
