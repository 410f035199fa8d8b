//! Bandwidth of large CPU reads of GPU memory: by one thread and by several, against `memcpy` by one thread.
#![expect(unsafe_code, reason = "calls libc's memcpy for comparison")]

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use vkgdr::{Memory, MemoryKind};

use crate::report::Goal;
use crate::{Bench, Result, contest, must};

const LEN: usize = 16 << 20;
/// Small enough that `Memory::read` does not spread it over threads.
const PART: usize = 64 << 10;
const THREADS: usize = 8;

pub(crate) fn measure(bench: &mut Bench, limit: Duration) -> Result {
    let memory = &Memory::allocate(&bench.gpu, LEN, MemoryKind::Mapped)?;
    memory.fill(.., 0x5a_u8)?;
    let mapping = memory.host_ptr().ok_or("mapped memory has no host view")?.as_ptr();
    let target = &mut vec![0_u8; LEN];
    let times = contest::measure(4, limit, |way| match way {
        // SAFETY: both sides have that many bytes, and no other code uses them.
        0 => drop(black_box(unsafe { libc::memcpy(target.as_mut_ptr().cast(), black_box(mapping).cast(), LEN) })),
        1 => in_parts(memory, 0, black_box(target)),
        2 => must(memory.read(0, black_box(target))),
        _ => thread::scope(|scope| {
            for (index, part) in target.chunks_mut(LEN / THREADS).enumerate() {
                scope.spawn(move || in_parts(memory, index * (LEN / THREADS), black_box(part)));
            }
        }),
    });
    if target.iter().any(|byte| *byte != 0x5a) {
        return Err("wrong bytes".into());
    }
    let mut add = |what: &str, way, goal| {
        report_rate(what, &times.of(way));
        bench.report.add(
            format!("read 16 MiB of GPU memory, {what}"),
            "libc memcpy, 1 thread",
            times.pairs(way, 0),
            goal,
        );
    };
    add("1 thread", 1, Goal::Faster(3.0));
    add("spread over up to 8 threads by Memory::read", 2, Goal::Faster(8.0));
    add("by 8 threads of the program", 3, Goal::None);
    report_rate("libc memcpy", &times.of(0));
    Ok(())
}

fn in_parts(memory: &Memory, start: usize, target: &mut [u8]) {
    for (index, part) in target.chunks_mut(PART).enumerate() {
        must(memory.read(start + index * PART, part));
    }
}

fn report_rate(what: &str, times: &[f64]) {
    let rate = LEN as f64 / crate::pairs::minimum(times);
    println!("    {what}: at best {rate:.2} GB/s");
}
