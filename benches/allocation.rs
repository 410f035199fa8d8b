//! The overhead of this crate over the drivers' own time: allocate and free, later opens, flush, and the getters.
//!
//! criterion measures each call alone. The goals apply to ratios and differences, measured here with both sides
//! alternating in one run, and reported in a table and in `vkgdr.json`, which has the results so far after each row (see
//! `report`).
#![expect(unsafe_code, reason = "frees raw memory by hand, and calls the drivers for comparison")]

mod bare;
mod pairs;
mod report;

use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use bare::Bare;
use criterion::{BenchmarkId, Criterion};
use pairs::{Effort, Pairs, median};
use report::{Goal, Report};
use support::cuda::Context;
use vkgdr::{Memory, MemoryKind, OpenFlags, RawMemory, Vkgdr};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const SIZES: [(&str, usize); 2] = [("4 KiB", 4 << 10), ("1 MiB", 1 << 20)];
const LEN: usize = 4096;
/// The name of the results.
const NAME: &str = "vkgdr";
/// Set in the processes that measure the first open.
const CHILD: &str = "VKGDR_BENCH_CHILD";
const CHILDREN: usize = 7;

/// For calls of a few nanoseconds.
const FAST: Effort = Effort { batch: 10_000, rounds: 500, at_most: Duration::from_secs(1) };
/// For calls of some microseconds, or of milliseconds on a GPU.
const SLOW: Effort = Effort { batch: 8, rounds: 400, at_most: Duration::from_secs(4) };

fn main() -> Result {
    if std::env::var_os(CHILD).is_some() {
        return open_in_fresh_process();
    }
    let _context = Context::create(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let bare = Bare::open(gpu.uuid())?;

    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    measure_each(&mut criterion, &gpu, &bare)?;
    criterion.final_summary();

    // `cargo test --benches` and `--list` measure nothing.
    let arguments: Vec<_> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--bench") && !has("--test") && !has("--list") {
        compare(&gpu, &bare)?;
    }
    Ok(())
}

/// Allocates and frees.
fn cycle(gpu: &Vkgdr, len: usize) -> vkgdr::Result<()> {
    let mut memory = black_box(RawMemory::allocate(gpu, len, MemoryKind::Mapped)?);
    // SAFETY: nothing uses the memory.
    unsafe { memory.free() }
}

/// Cached memory: `MemoryKind::Host` is cached by definition.
fn cached(gpu: &Vkgdr) -> Result<RawMemory> {
    let memory = RawMemory::allocate(gpu, LEN, MemoryKind::Host)?;
    assert!(memory.is_coherent(), "the GPU has no coherent cached memory");
    Ok(memory)
}

/// The empty call.
#[inline(never)]
fn empty(memory: &RawMemory) -> usize {
    black_box(memory);
    0
}

/// Stops at the first error: a measurement of failures means nothing.
fn must<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn measure_each(criterion: &mut Criterion, gpu: &Vkgdr, bare: &Bare) -> Result {
    let mut group = criterion.benchmark_group("allocate and free");
    for (name, len) in SIZES {
        group.bench_function(BenchmarkId::new("vkgdr", name), |b| b.iter(|| must(cycle(gpu, len))));
        group.bench_function(BenchmarkId::new("bare", name), |b| b.iter(|| must(bare.cycle(len as u64))));
    }
    group.finish();
    criterion.bench_function("open again", |b| b.iter(|| must(Vkgdr::open(0, OpenFlags::empty()))));

    let mut memory = cached(gpu)?;
    let mut group = criterion.benchmark_group("calls");
    group.bench_function("empty", |b| b.iter(|| empty(black_box(&memory))));
    group.bench_function("flush", |b| b.iter(|| must(black_box(&memory).flush(0, black_box(LEN)))));
    group.bench_function("device_ptr", |b| b.iter(|| black_box(&memory).device_ptr()));
    group.bench_function("host_ptr", |b| b.iter(|| black_box(&memory).host_ptr()));
    group.bench_function("len", |b| b.iter(|| black_box(&memory).len()));
    group.bench_function("is_coherent", |b| b.iter(|| black_box(&memory).is_coherent()));
    group.finish();
    // SAFETY: nothing uses the memory.
    unsafe { memory.free() }?;
    Ok(())
}

fn compare(gpu: &Vkgdr, bare: &Bare) -> Result {
    let mut report = Report::default();
    for (name, len) in SIZES {
        let pairs = SLOW.measure(|| must(cycle(gpu, len)), || must(bare.cycle(len as u64)));
        report.add(format!("RawMemory allocate + free, {name}"), "ash + cudarc", pairs, Goal::Ratio(1.05));
        report.save(NAME, gpu.name());
    }
    report.add("Vkgdr::open again", "first open", opens()?, Goal::Ratio(0.01));
    compare_calls_of_raw_memory(&mut report, gpu)?;
    compare_calls_of_memory(&mut report, gpu)?;
    report.publish(NAME, gpu.name());
    Ok(())
}

fn compare_calls_of_raw_memory(report: &mut Report, gpu: &Vkgdr) -> Result {
    let mut raw = cached(gpu)?;
    let memory = &raw;
    let mut add = |what: &str, call: &mut dyn FnMut() -> Pairs| {
        report.add(format!("RawMemory::{what}"), "empty call", call(), Goal::Nanoseconds(2.0));
        report.save(NAME, gpu.name());
    };
    let nothing = || empty(black_box(memory));
    add("flush", &mut || FAST.measure(|| must(black_box(memory).flush(0, black_box(LEN))), nothing));
    add("device_ptr", &mut || FAST.measure(|| black_box(memory).device_ptr(), nothing));
    add("host_ptr", &mut || FAST.measure(|| black_box(memory).host_ptr(), nothing));
    add("len", &mut || FAST.measure(|| black_box(memory).len(), nothing));
    add("is_coherent", &mut || FAST.measure(|| black_box(memory).is_coherent(), nothing));
    // SAFETY: nothing uses the memory.
    unsafe { raw.free() }?;
    Ok(())
}

fn compare_calls_of_memory(report: &mut Report, gpu: &Vkgdr) -> Result {
    let memory = &Memory::allocate(gpu, LEN, MemoryKind::Host)?;
    let mut raw = cached(gpu)?;
    let other = &raw;
    let mut add = |what: &str, call: &mut dyn FnMut() -> Pairs| {
        report.add(format!("Memory::{what}"), "empty call", call(), Goal::Nanoseconds(2.0));
        report.save(NAME, gpu.name());
    };
    let nothing = || empty(black_box(other));
    add("flush", &mut || FAST.measure(|| must(black_box(memory).flush(..black_box(LEN))), nothing));
    add("device_ptr", &mut || FAST.measure(|| black_box(memory).device_ptr(), nothing));
    add("host_ptr", &mut || FAST.measure(|| black_box(memory).host_ptr(), nothing));
    add("len", &mut || FAST.measure(|| black_box(memory).len(), nothing));
    add("is_coherent", &mut || FAST.measure(|| black_box(memory).is_coherent(), nothing));
    // SAFETY: nothing uses the memory.
    unsafe { raw.free() }?;
    Ok(())
}

/// In a fresh process: prints the nanoseconds of the first open and the median of later ones.
///
/// CUDA is initialised before, as in a program that uses it, so that the first open is Vulkan's share only.
fn open_in_fresh_process() -> Result {
    support::driver::initialise();
    let open = || -> Result<f64> {
        let start = Instant::now();
        let gpu = Vkgdr::open(0, OpenFlags::empty())?;
        let elapsed = start.elapsed();
        black_box(gpu);
        Ok(elapsed.as_secs_f64() * 1e9)
    };
    let first = open()?;
    let later: Vec<_> = (0..100).map(|_| open()).collect::<Result<_>>()?;
    println!("{first} {}", median(later));
    Ok(())
}

/// Later opens (ours) and the first one (peer) in several processes.
fn opens() -> Result<Pairs> {
    let mut pairs = Pairs::default();
    for _ in 0..CHILDREN {
        let output = Command::new(std::env::current_exe()?).env(CHILD, "1").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (first, later) = text.trim().split_once(' ').ok_or_else(|| format!("the child: {output:?}"))?;
        pairs.peer.push(first.parse()?);
        pairs.ours.push(later.parse()?);
    }
    Ok(pairs)
}
