//! Copies in memory that the CPU caches against libc's `memcpy`: as they are made by default, and with each routine
//! forced, which is meant for memory that the CPU does not cache.
//!
//! The choice is made once for a process, so that each routine is measured in a process of its own. Both sides copy
//! between the same places, in turns in one run.
#![expect(unsafe_code, reason = "calls libc's memcpy to compare with")]

mod pairs;
#[allow(dead_code, reason = "differences are for other benches")]
mod report;

use std::error::Error;
use std::ffi::c_void;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use pairs::{Effort, Pairs, minimum};
use report::{Goal, Report};
use support::cuda::Context;
use vkgdr::{CopyRoutine, Memory, MemoryKind, OpenFlags, Vkgdr};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Set in the processes in which a routine is forced.
const VARIABLE: &str = "VKGDR_COPY";

const SIZES: [usize; 20] =
    [1, 2, 3, 4, 8, 13, 16, 31, 32, 64, 100, 128, 256, 1024, 4096, 16_384, 65_536, 1_048_576, 8_388_608, 67_108_864];

const PAGE: usize = 4096;
/// Where private memory lies in its page, while the other side starts with one: aligned as by malloc, and so far that
/// loads are not taken for loads of what the last copy has just stored, which CPUs find out by the place within the page.
const APART: usize = 2048 + 16;

fn main() -> Result {
    // `cargo test --benches` and `--list` only want to know whether it runs.
    let arguments: Vec<_> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !has("--bench") || has("--test") || has("--list") {
        return Ok(());
    }
    if std::env::var_os(VARIABLE).is_some() {
        return measure();
    }
    measure()?;
    for routine in CopyRoutine::ALL.into_iter().filter(|routine| routine.is_supported()) {
        let status = Command::new(std::env::current_exe()?).arg("--bench").env(VARIABLE, routine.name()).status()?;
        if !status.success() {
            return Err(format!("with {routine}: {status}").into());
        }
    }
    Ok(())
}

fn measure() -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let most = SIZES.into_iter().max().unwrap_or(0);
    // Cached memory, which this kind is by definition.
    let memory = Memory::allocate(&gpu, most, MemoryKind::Host)?;
    memory.fill(.., 1_u8)?;
    let mut private = vec![2_u8; PAGE + most];
    let start = private.as_ptr().align_offset(PAGE) + APART;
    let private = &mut private[start % PAGE..][..most];
    let routine = memory.copy_routine();

    if std::env::var_os(VARIABLE).is_some() {
        println!("\n{routine}, ratio to libc memcpy: of minima, median; write | read");
        for len in SIZES {
            let (write, read) = (write(&memory, &private[..len]), read(&memory, &mut private[..len]));
            let ratios =
                |pairs: &Pairs| format!("{:7.3} {:7.3}", minimum(&pairs.ours) / minimum(&pairs.peer), pairs.ratio());
            println!("{len:>9} B  {} | {}", ratios(&write), ratios(&read));
        }
        return Ok(());
    }
    let mut report = Report::default();
    for len in SIZES {
        let goal = if len > 4096 { Goal::Ratio(1.05) } else { Goal::Ratio(1.2) };
        report.add(format!("write, {len} B, {routine}"), "libc memcpy", write(&memory, &private[..len]), goal);
        report.add(format!("read, {len} B, {routine}"), "libc memcpy", read(&memory, &mut private[..len]), goal);
    }
    report.publish("copies", gpu.name());
    println!("\nCached memory only: nothing here tells how fast the PCIe BAR is.");
    Ok(())
}

/// Small batches, so that both sides meet the same machine.
fn effort(len: usize) -> Effort {
    let batch = u32::try_from((256 << 10) / len.max(128)).unwrap_or(1).max(1);
    Effort { batch, rounds: 400, at_most: Duration::from_millis(600) }
}

fn write(memory: &Memory, private: &[u8]) -> Pairs {
    let to = host(memory);
    let len = private.len();
    effort(len).measure(
        || {
            let (memory, offset, private) = black_box((memory, 0, private));
            must(memory.write(offset, private));
        },
        || {
            let (to, from, len) = black_box((to, private.as_ptr(), len));
            // SAFETY: both sides have `len` bytes, and nobody else uses them.
            unsafe { libc::memcpy(to, from.cast(), len) }
        },
    )
}

fn read(memory: &Memory, private: &mut [u8]) -> Pairs {
    let from = host(memory);
    let len = private.len();
    let to = private.as_mut_ptr().cast::<c_void>();
    effort(len).measure(
        || {
            let (memory, offset, private) = black_box((memory, 0, &mut *private));
            must(memory.read(offset, private));
        },
        || {
            let (to, from, len) = black_box((to, from, len));
            // SAFETY: both sides have `len` bytes, and nobody else uses them.
            unsafe { libc::memcpy(to, from, len) }
        },
    )
}

fn host(memory: &Memory) -> *mut c_void {
    memory.host_ptr().map_or(std::ptr::null_mut(), |pointer| pointer.as_ptr().cast())
}

/// Stops at the first error: a measurement of failures means nothing.
fn must<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
