//! Copies by the CPU, in two parts.
//!
//! Cached memory: the default copies against libc's `memcpy`.
//!
//! Write-combined memory: each routine, forced, against a straightforward loop ([`ramps`]), through `Memory` and
//! through a map guard. A process chooses its routine once, so that each is measured in a process of its own, the best first:
//! goals are for that one, and only its results are written to a file. `VKGDR_COPY=portable` measures `portable`, which is left
//! out on CPUs with another routine: it reads single bytes across the bus. On the simulated driver this is ordinary memory
//! treated as write-combined: the result is the cost for the CPU, not for the bus.
//!
//! If `VKGDR_BENCH_SECONDS` is set, routines for which that number of seconds leaves no time are left out, but never the best. The
//! results so far are written after each size (see `report`).
//!
//! Both sides copy between the same addresses, alternating in one run.
#![expect(unsafe_code, reason = "calls libc's memcpy and its own loops for comparison")]

mod pairs;
mod ramps;
#[allow(dead_code, reason = "other benches use differences")]
mod report;

use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use pairs::{Effort, Pairs, minimum};
use ramps::{Copy, Ramps};
use report::{Goal, Report};
use support::cuda::Context;
use vkgdr::ash::vk::MemoryPropertyFlags;
use vkgdr::{CopyRoutine, CopyThresholds, MapGuard, MapMode, Memory, MemoryKind, OpenFlags, Vkgdr};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The variable that forces a routine, set in child processes.
const VARIABLE: &str = "VKGDR_COPY";

const SIZES: [usize; 20] =
    [1, 2, 3, 4, 8, 13, 16, 31, 32, 64, 100, 128, 256, 1024, 4096, 16_384, 65_536, 1_048_576, 8_388_608, 67_108_864];
const WRITE_COMBINED_SIZES: [usize; 17] = [1, 2, 3, 4, 8, 13, 16, 31, 32, 63, 64, 100, 128, 256, 4096, 16_384, 65_536];

const PAGE: usize = 4096;
/// The offset of private memory in its page; the other side starts at a page. 16-byte aligned like malloc's memory, and
/// far enough that the CPU, which compares offsets within a page, does not mistake loads for loads of recent stores.
const APART: usize = 2048 + 16;

fn main() -> Result {
    // `cargo test --benches` and `--list` measure nothing.
    let arguments: Vec<_> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !has("--bench") || has("--test") || has("--list") {
        return Ok(());
    }
    if std::env::var_os(VARIABLE).is_some() {
        return write_combined();
    }
    let limit = limit()?;
    let start = Instant::now();
    cached()?;
    let mut last = Duration::ZERO;
    for routine in routines() {
        // Each takes about the time of the one before.
        if !last.is_zero() && limit.is_some_and(|limit| start.elapsed() + last > limit) {
            println!("\nno time was left for {routine}");
            continue;
        }
        let started = Instant::now();
        let status = again()?.arg("--bench").env(VARIABLE, routine.name()).status()?;
        if !status.success() {
            return Err(format!("with {routine}: {status}").into());
        }
        last = started.elapsed();
    }
    Ok(())
}

fn limit() -> Result<Option<Duration>> {
    let Ok(seconds) = std::env::var("VKGDR_BENCH_SECONDS") else { return Ok(None) };
    Ok(Some(Duration::try_from_secs_f64(seconds.parse()?)?))
}

/// The measured routines, the best first.
fn routines() -> Vec<CopyRoutine> {
    let mut routines: Vec<_> = CopyRoutine::ALL.into_iter().filter(|routine| routine.is_supported()).rev().collect();
    if routines.len() > 1 {
        routines.retain(|routine| *routine != CopyRoutine::Portable);
    }
    routines
}

/// The command that runs this program again; on the simulated driver, with uncached mapped memory.
fn again() -> Result<Command> {
    let program = std::env::current_exe()?;
    let run = std::env::var_os("CARGO_MANIFEST_DIR").map(|root| PathBuf::from(root).join("sim/run"));
    match run.filter(|run| support::simcuda().is_some() && run.is_file()) {
        None => Ok(Command::new(program)),
        Some(run) => {
            let mut command = Command::new(run);
            command.arg(program).env("VKGDR_TEST_PROFILE", "rebar");
            Ok(command)
        }
    }
}

/// Private memory of `len` bytes, at `PLACE` in its page.
fn private(len: usize) -> (Vec<u8>, usize) {
    let bytes = vec![2_u8; 2 * PAGE + len];
    let start = bytes.as_ptr().align_offset(PAGE) + APART;
    (bytes, start)
}

fn cached() -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let most = SIZES.into_iter().max().unwrap_or(0);
    // This kind is cached by definition.
    let memory = Memory::allocate(&gpu, most, MemoryKind::Host)?;
    memory.fill(.., 1_u8)?;
    let (mut bytes, start) = private(most);
    let private = &mut bytes[start..][..most];
    let routine = memory.copy_routine();
    let mut report = Report::default();
    for len in SIZES {
        let goal = if len > 4096 { Goal::Ratio(1.05) } else { Goal::Ratio(1.2) };
        let written = write(&memory, &private[..len], memcpy);
        report.add(format!("write, {len} B, {routine}"), "libc memcpy", written, goal);
        let seen = read(&memory, &mut private[..len], memcpy);
        report.add(format!("read, {len} B, {routine}"), "libc memcpy", seen, goal);
        report.save("copies", gpu.name());
    }
    report.publish("copies", gpu.name());
    println!("\nCached memory only: these results do not include the PCIe BAR.");
    Ok(())
}

/// Measures this process's forced routine. Goals apply to the best routine of the CPU.
fn write_combined() -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    // All copies are made by the CPU.
    gpu.set_copy_thresholds(CopyThresholds { read: usize::MAX, write: usize::MAX });
    let most = WRITE_COMBINED_SIZES.into_iter().max().unwrap_or(0);
    let is_cached = |memory: &Memory| memory.memory_type().flags.contains(MemoryPropertyFlags::HOST_CACHED);
    let mapped = Memory::allocate(&gpu, most + PAGE, MemoryKind::Mapped).ok().filter(|memory| !is_cached(memory));
    let memory = match mapped {
        Some(memory) => memory,
        None => Memory::allocate(&gpu, most + PAGE, MemoryKind::Host)?,
    };
    memory.fill(.., 1_u8)?;
    let mut guard = memory.map(MapMode::ReadWrite, ..)?;
    let (mut bytes, start) = private(most);
    let private = &mut bytes[start..][..most];
    let routine = memory.copy_routine();
    let judged = routines().first() == Some(&routine);
    let ramps = Ramps::of(routine);
    let (store, load, in_order, peer) = match ramps {
        Some(Ramps { store, load, load_in_order }) => (store, load, load_in_order, "ramps"),
        None => (memcpy as Copy, memcpy as Copy, memcpy as Copy, "libc memcpy"),
    };
    let mut report = Report::default();
    println!("\n{routine}, ratio to {peer}: of minima, median");
    for len in WRITE_COMBINED_SIZES {
        let goal = if len > 256 { Goal::Ratio(1.05) } else { Goal::Ratio(1.3) };
        let rows = [
            ("write-combined write", write(&memory, &private[..len], store), goal),
            ("write-combined guard's write", guard_write(&mut guard, host(&memory), &private[..len], store), goal),
            ("write-combined read", read(&memory, &mut private[..len], in_order), goal),
            ("write-combined guard's read", guard_read(&guard, host(&memory), &mut private[..len], in_order), goal),
            ("write-combined read to one without order", read(&memory, &mut private[..len], load), Goal::None),
        ];
        let mut line = format!("{len:>9} B");
        for (what, pairs, goal) in rows {
            line += &format!(" | {:6.3} {:6.3}", minimum(&pairs.ours) / minimum(&pairs.peer), pairs.ratio());
            report.add(format!("{what}, {len} B, {routine}"), peer, pairs, goal);
        }
        println!("{line}");
        if judged {
            report.save("copies-write-combined", gpu.name());
        }
    }
    if judged {
        report.publish("copies-write-combined", gpu.name());
    }
    Ok(())
}

/// Small batches, so that both sides see the same machine conditions.
fn effort(len: usize) -> Effort {
    let batch = u32::try_from((256 << 10) / len.max(128)).unwrap_or(1).max(1);
    Effort { batch, rounds: 400, at_most: Duration::from_millis(600) }
}

/// A copy function, like the peers.
unsafe fn memcpy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: by the type's contract.
    unsafe { libc::memcpy(to.cast(), from.cast(), len) };
}

fn write(memory: &Memory, private: &[u8], peer: Copy) -> Pairs {
    let to = host(memory);
    effort(private.len()).measure(
        || {
            let (memory, offset, private) = black_box((memory, 0, private));
            must(memory.write(offset, private));
        },
        || {
            let (to, from, len) = black_box((to, private.as_ptr(), private.len()));
            // SAFETY: both sides have `len` bytes, which nothing else uses.
            unsafe { peer(to, from, len) }
        },
    )
}

fn guard_write(guard: &mut MapGuard<'_>, to: *mut u8, private: &[u8], peer: Copy) -> Pairs {
    effort(private.len()).measure(
        || {
            let (offset, private) = black_box((0, private));
            must(guard.write(offset, private));
        },
        || {
            let (to, from, len) = black_box((to, private.as_ptr(), private.len()));
            // SAFETY: both sides have `len` bytes, which nothing else uses.
            unsafe { peer(to, from, len) }
        },
    )
}

fn read(memory: &Memory, private: &mut [u8], peer: Copy) -> Pairs {
    let from = host(memory);
    let (to, len) = (private.as_mut_ptr(), private.len());
    effort(len).measure(
        || {
            let (memory, offset, private) = black_box((memory, 0, &mut *private));
            must(memory.read(offset, private));
        },
        || {
            let (to, from, len) = black_box((to, from, len));
            // SAFETY: both sides have `len` bytes, which nothing else uses.
            unsafe { peer(to, from, len) }
        },
    )
}

fn guard_read(guard: &MapGuard<'_>, from: *const u8, private: &mut [u8], peer: Copy) -> Pairs {
    let (to, len) = (private.as_mut_ptr(), private.len());
    effort(len).measure(
        || {
            let (guard, offset, private) = black_box((guard, 0, &mut *private));
            must(guard.read(offset, private));
        },
        || {
            let (to, from, len) = black_box((to, from, len));
            // SAFETY: both sides have `len` bytes, which nothing else uses.
            unsafe { peer(to, from, len) }
        },
    )
}

fn host(memory: &Memory) -> *mut u8 {
    memory.host_ptr().map_or(std::ptr::null_mut(), |pointer| pointer.as_ptr())
}

/// Stops at the first error: a measurement of failures means nothing.
fn must<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
