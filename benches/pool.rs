//! The cost of memory from a pool: against a driver allocation each time, against a bare offset allocator that does the
//! arithmetic only, and with two threads against one.
//!
//! An operation is one allocation and one free with a given number of live chunks. "Beside" frees the new chunk;
//! "replacing" replaces a random live chunk by a new one, which with many live chunks mostly measures cache misses.
//! Both sides of a row do the same in the same order. Goals and measurement are those of `allocation`. If memory is too
//! small for the number of live chunks, the row states the smaller number.
#![expect(unsafe_code, reason = "bare calls the drivers for comparison")]

mod bare;
mod pairs;
#[allow(dead_code, reason = "other benches use more of it")]
mod report;

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bare::Bare;
use criterion::{BenchmarkId, Criterion};
use offset_allocator::{Allocation, Allocator};
use pairs::{Effort, Pairs};
use report::{Goal, Report};
use support::cuda::Context;
use support::simcuda;
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const LIVE: [usize; 3] = [1, 1000, 50_000];
const LARGEST: usize = 64 << 10;
/// The peer's unit, since it has no alignment.
const UNIT: usize = 256;

/// For calls of tens of nanoseconds.
const FAST: Effort = Effort { batch: 10_000, rounds: 300, at_most: Duration::from_secs(2) };
/// For calls of microseconds, or of milliseconds on a GPU.
const SLOW: Effort = Effort { batch: 64, rounds: 100, at_most: Duration::from_secs(3) };
/// The goal of two threads: 1.7 times the throughput.
const TWO_THREADS: Goal = Goal::Ratio(1.0 / 1.7);
/// Our operations per driver operation, after which the CPU's caches are cold for ours.
const OURS_TO_DRIVERS: u32 = 200;

fn main() -> Result {
    let context = Context::create(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let bare = Bare::open(gpu.uuid())?;

    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    measure_each(&mut criterion, &gpu)?;
    criterion.final_summary();

    // `cargo test --benches` and `--list` measure nothing.
    let arguments: Vec<_> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--bench") && !has("--test") && !has("--list") {
        compare(&gpu, &bare)?;
    }
    drop(context);
    Ok(())
}

/// Stops at the first error: a measurement of failures means nothing.
fn must<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// The lengths of a row's allocations.
#[derive(Clone, Copy)]
enum Lengths {
    /// One length.
    One(usize),
    /// From 256 bytes to 64 KiB, uniform over doublings.
    Mixed,
}

impl Lengths {
    const ALL: [Self; 4] = [Self::One(256), Self::One(4096), Self::One(LARGEST), Self::Mixed];

    fn name(self) -> String {
        match self {
            Self::One(len) if len < 1024 => format!("{len} B"),
            Self::One(len) => format!("{} KiB", len >> 10),
            Self::Mixed => "256 B to 64 KiB".to_owned(),
        }
    }

    /// An upper bound of the bytes per chunk: mixed lengths average 12 KiB, and size classes round up.
    const fn room(self) -> usize {
        match self {
            Self::One(len) => len,
            Self::Mixed => 16 << 10,
        }
    }

    fn pick(self, random: u64) -> usize {
        match self {
            Self::One(len) => len,
            Self::Mixed => {
                let doubling = 8 + random % 8;
                (1 << doubling) + ((random >> 8) & ((1 << doubling) - 1)) as usize
            }
        }
    }
}

/// The index of the replaced chunk and the new length: the same sequence for both sides (splitmix64).
#[derive(Clone)]
struct Choices {
    state: u64,
    live: u64,
    lengths: Lengths,
}

impl Choices {
    const fn new(live: usize, lengths: Lengths) -> Self {
        Self { state: 1, live: live as u64, lengths }
    }

    #[inline]
    fn next(&mut self) -> (usize, usize) {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = z ^ (z >> 27);
        // The upper bits times the limit: a division would cost as much as the measured operation.
        let place = (u128::from(z) * u128::from(self.live)) >> 64;
        (usize::try_from(place).unwrap_or(0), self.lengths.pick(z))
    }
}

/// Chunks of a pool, one of which is replaced at a time.
struct Ours<'a> {
    pool: &'a Pool,
    choices: Choices,
    chunks: Vec<Option<Memory>>,
}

/// The operation of a row.
trait Side {
    /// Allocates a chunk and frees it.
    fn pair(&mut self);
    /// Frees one of the live chunks and allocates another in its place.
    fn replace(&mut self);

    #[inline]
    fn run(&mut self, what: Operation) {
        match what {
            Operation::Beside => self.pair(),
            Operation::Replacing => self.replace(),
        }
    }
}

#[derive(Clone, Copy)]
enum Operation {
    Beside,
    Replacing,
}

impl<'a> Ours<'a> {
    fn new(pool: &'a Pool, live: usize, lengths: Lengths) -> Self {
        let mut choices = Choices::new(live, lengths);
        let chunks = (0..live).map(|_| Some(must(pool.allocate(choices.next().1)))).collect();
        Self { pool, choices, chunks }
    }
}

impl Side for Ours<'_> {
    #[inline]
    fn pair(&mut self) {
        let (_, len) = self.choices.next();
        drop(black_box(must(self.pool.allocate(black_box(len)))));
    }

    #[inline]
    fn replace(&mut self) {
        let (place, len) = self.choices.next();
        self.chunks[place] = None;
        self.chunks[place] = Some(black_box(must(self.pool.allocate(black_box(len)))));
    }
}

/// The peer: the same with the crate `offset-allocator`.
struct Peer {
    allocator: Allocator,
    choices: Choices,
    chunks: Vec<Option<Allocation>>,
}

impl Peer {
    fn new(live: usize, lengths: Lengths) -> Self {
        let mut choices = Choices::new(live, lengths);
        // Twice the largest possible sum.
        let units = (live + 16) * 2 * LARGEST / UNIT;
        let mut allocator = must(u32::try_from(units).map(|units| Allocator::with_max_allocs(units, 128 * 1024)));
        let chunks = (0..live).map(|_| Some(allocate(&mut allocator, choices.next().1))).collect();
        Self { allocator, choices, chunks }
    }
}

impl Side for Peer {
    #[inline]
    fn pair(&mut self) {
        let (_, len) = self.choices.next();
        let chunk = black_box(allocate(&mut self.allocator, black_box(len)));
        self.allocator.free(chunk);
    }

    #[inline]
    fn replace(&mut self) {
        let (place, len) = self.choices.next();
        if let Some(chunk) = self.chunks[place].take() {
            self.allocator.free(chunk);
        }
        self.chunks[place] = Some(black_box(allocate(&mut self.allocator, black_box(len))));
    }
}

#[inline]
fn allocate(allocator: &mut Allocator, len: usize) -> Allocation {
    let units = u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX);
    allocator.allocate(units).unwrap_or_else(|| panic!("the peer is full"))
}

fn pool(gpu: &Vkgdr) -> Result<Pool> {
    Ok(Pool::new(gpu, PoolOptions::new(MemoryKind::Mapped))?)
}

/// The number of live chunks, at most half of the memory: 50,000 chunks of 64 KiB are 3.3 GB, and many GPUs expose only
/// 256 MiB to the CPU.
fn fitting(gpu: &Vkgdr, live: usize, lengths: Lengths) -> Result<usize> {
    let half = usize::try_from(gpu.memory_info(MemoryKind::Mapped)?.available / 2)?;
    Ok(live.min(half / lengths.room()))
}

fn measure_each(criterion: &mut Criterion, gpu: &Vkgdr) -> Result {
    let pool = pool(gpu)?;
    let mut group = criterion.benchmark_group("pool, allocate and free");
    for live in LIVE {
        let live = fitting(gpu, live, Lengths::Mixed)?;
        let mut ours = Ours::new(&pool, live, Lengths::Mixed);
        group.bench_function(BenchmarkId::new("vkgdr", live), |b| b.iter(|| ours.replace()));
        let mut peer = Peer::new(live, Lengths::Mixed);
        group.bench_function(BenchmarkId::new("offset-allocator", live), |b| b.iter(|| peer.replace()));
    }
    group.finish();
    Ok(())
}

fn compare(gpu: &Vkgdr, bare: &Bare) -> Result {
    let mut report = Report::default();
    for (operation, name) in [(Operation::Beside, "beside"), (Operation::Replacing, "replacing one of")] {
        for lengths in Lengths::ALL {
            for asked in LIVE {
                let live = fitting(gpu, asked, lengths)?;
                let note = if live < asked { format!(", no room for {asked}") } else { String::new() };
                let what = format!("pool, {}, {name} {live} live{note}", lengths.name());
                let pool = pool(gpu)?;
                let mut ours = Ours::new(&pool, live, lengths);
                let mut peer = Peer::new(live, lengths);
                let pairs = FAST.measure(|| ours.run(operation), || peer.run(operation));
                // Of 50,000 live chunks neither allocator's records are in the CPU's caches.
                let goal = if asked > 1000 { 1.0 } else { 0.7 };
                report.add(&what, "offset-allocator", pairs, Goal::Ratio(goal));
                let mut choices = Choices::new(1, lengths);
                let drivers = || must(bare.cycle(choices.next().1.next_multiple_of(UNIT) as u64));
                let mut pairs = SLOW.measure(|| (0..OURS_TO_DRIVERS).for_each(|_| ours.run(operation)), drivers);
                pairs.ours.iter_mut().for_each(|time| *time /= f64::from(OURS_TO_DRIVERS));
                report.add(&what, "ash + cudarc", pairs, Goal::Ratio(0.002));
                report.save("pool", gpu.name());
            }
        }
    }
    let pool = pool(gpu)?;
    // Perfect scaling is a ratio of 0.5. The second row is the control: its threads share nothing.
    let ours = || Ours::new(&pool, 1000, Lengths::Mixed);
    report.add("pool, 1,000 live each, 2 threads", "1 thread", threads(ours), TWO_THREADS);
    let peers = || Peer::new(1000, Lengths::Mixed);
    report.add("offset-allocator for each of 2 threads", "1 thread", threads(peers), Goal::None);
    count(&mut report, gpu)?;
    report.publish("pool", gpu.name());
    Ok(())
}

/// Counts a pool's driver calls.
fn count(report: &mut Report, gpu: &Vkgdr) -> Result {
    let pool = pool(gpu)?;
    let before = gpu.live_allocations();
    let chunks: Vec<_> = (0..100_000).map(|_| must(pool.allocate(256))).collect();
    let made = gpu.live_allocations() - before;
    report.count("Vulkan allocations for 100,000 live chunks of 256 B", f64::from(made), 16.0);
    drop(chunks);

    let what = "CUDA calls of 10,000 warm pairs";
    let Some(driver) = simcuda() else {
        report.skip(what, "only the simulated driver counts its calls");
        return Ok(());
    };
    let mut ours = Ours::new(&pool, 1000, Lengths::Mixed);
    (0..10_000).for_each(|_| ours.pair());
    let before = driver.calls(None);
    (0..10_000).for_each(|_| ours.pair());
    let calls = u32::try_from(driver.calls(None) - before)?;
    report.count(what, f64::from(calls), 0.0);
    Ok(())
}

/// The time of an operation with two threads, and with one.
fn threads<S: Side>(side: impl Fn() -> S + Sync) -> Pairs {
    const ROUNDS: usize = 300;
    let mut pairs = Pairs::default();
    for _ in 0..ROUNDS {
        pairs.ours.push(at_work(&side, 2));
        pairs.peer.push(at_work(&side, 1));
    }
    pairs
}

/// Nanoseconds from the start of all threads to the end of the last, divided by the operations of all threads.
fn at_work<S: Side>(side: &(impl Fn() -> S + Sync), count: u32) -> f64 {
    const OPERATIONS: u32 = 50_000;
    let ready = AtomicU32::new(0);
    let times: Vec<_> = thread::scope(|scope| {
        let work = || {
            let mut side = side();
            (0..OPERATIONS / 4).for_each(|_| side.replace());
            // Spinning, so that every thread is running when the measurement starts.
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < count {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            (0..OPERATIONS).for_each(|_| side.replace());
            (start, Instant::now())
        };
        let handles: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    let first = times.iter().map(|(start, _)| *start).min();
    let last = times.iter().map(|(_, end)| *end).max();
    let elapsed = last.zip(first).map_or(f64::NAN, |(last, first)| last.duration_since(first).as_secs_f64());
    elapsed * 1e9 / f64::from(OPERATIONS * count)
}
