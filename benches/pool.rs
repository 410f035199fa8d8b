//! The cost of memory from a pool: against a bare offset allocator behind a mutex, which does the arithmetic only, against a driver
//! allocation each time, and with several threads against one.
//!
//! An operation is one allocation and one free with a given number of live chunks. "Beside" frees the new chunk; "replacing"
//! replaces a random live chunk by a new one, which with many live chunks mostly measures cache misses. Both sides of a row do
//! the same in the same order. If memory is too small for the number of live chunks, the row states the smaller number.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use offset_allocator::{Allocation, Allocator};
use support::cuda::Context;
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::bare::Bare;
use crate::contest::{Pairs, is_quick, pairs};
use crate::report::{Goal, Report};
use crate::{Result, must};

/// The peer's unit, since it has no alignment.
const UNIT: usize = 256;
const LIMIT: Duration = Duration::from_secs(2);
/// Our operations per driver operation, after which the CPU's caches are cold for ours.
const OURS_TO_DRIVERS: u32 = 200;

/// The chunk to replace and the length of the new one: the same sequence for both sides (splitmix64).
struct Choices {
    state: u64,
    live: u64,
    /// None is mixed: from 256 bytes to 64 KiB, uniform over doublings.
    len: Option<usize>,
}

impl Choices {
    fn new(live: usize, len: Option<usize>) -> Self {
        Self { state: 1, live: live as u64, len }
    }

    #[inline]
    fn next(&mut self) -> (usize, usize) {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = z ^ (z >> 27);
        // The upper bits times the limit: a division would cost as much as the measured operation.
        let place = (u128::from(z) * u128::from(self.live)) >> 64;
        let doubling = 8 + z % 8;
        let mixed = (1 << doubling) + ((z >> 8) & ((1 << doubling) - 1)) as usize;
        (usize::try_from(place).unwrap_or(0), self.len.unwrap_or(mixed))
    }
}

/// An allocator, of which both sides of a row are one.
trait Heap: Sync {
    type Chunk;
    fn take(&self, len: usize) -> Self::Chunk;
    fn give(&self, chunk: Self::Chunk);
}

impl Heap for Pool {
    type Chunk = Memory;

    #[inline]
    fn take(&self, len: usize) -> Memory {
        must(self.allocate(len))
    }

    #[inline]
    fn give(&self, chunk: Memory) {
        drop(chunk);
    }
}

/// The peer, for the largest possible sum of its chunks, twice.
struct Offsets(Mutex<Allocator>);

impl Offsets {
    fn new(live: usize) -> Self {
        let units = must(u32::try_from((live + 16) * 2 * (64 << 10) / UNIT));
        Self(Mutex::new(Allocator::with_max_allocs(units, 128 * 1024)))
    }
}

impl Heap for Offsets {
    type Chunk = Allocation;

    #[inline]
    fn take(&self, len: usize) -> Allocation {
        let units = u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let mut allocator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allocator.allocate(units).unwrap_or_else(|| panic!("the peer is full"))
    }

    #[inline]
    fn give(&self, chunk: Allocation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).free(chunk);
    }
}

/// A heap with live chunks.
struct Side<'a, H: Heap> {
    heap: &'a H,
    choices: Choices,
    chunks: Vec<Option<H::Chunk>>,
}

impl<'a, H: Heap> Side<'a, H> {
    fn new(heap: &'a H, live: usize, len: Option<usize>) -> Self {
        let mut choices = Choices::new(live, len);
        let chunks = (0..live).map(|_| Some(heap.take(choices.next().1))).collect();
        Self { heap, choices, chunks }
    }

    /// Frees one of the live chunks and allocates another in its place, or allocates one beside them and frees it.
    #[inline]
    fn run(&mut self, replaces: bool) {
        let (place, len) = self.choices.next();
        if replaces {
            self.chunks[place].take().into_iter().for_each(|chunk| self.heap.give(chunk));
            self.chunks[place] = Some(black_box(self.heap.take(black_box(len))));
        } else {
            self.heap.give(black_box(self.heap.take(black_box(len))));
        }
    }
}

pub(crate) fn run() -> Result {
    let _context = Context::create(0);
    let (gpu, options) = (Vkgdr::open(0, OpenFlags::empty())?, PoolOptions::new(MemoryKind::Mapped));
    let bare = Bare::open(gpu.uuid())?;
    let mut report = Report::new("pool", gpu.name(), false)?;
    // 50,000 chunks of 64 KiB are 3.3 GB, and many GPUs expose only 256 MiB to the CPU.
    let half = usize::try_from(gpu.memory_info(MemoryKind::Mapped)?.available / 2)?;
    for (replaces, name) in [(false, "beside"), (true, "replacing one of")] {
        for (len, lengths) in [(Some(256), "256 B"), (Some(64 << 10), "64 KiB"), (None, "256 B to 64 KiB")] {
            for asked in [1, 1000, 50_000] {
                // Mixed lengths average 12 KiB, and size classes round up.
                let live = asked.min(half / len.unwrap_or(16 << 10));
                let what = format!("pool, {lengths}, {name} {live} live");
                let (pool, offsets) = (Pool::new(&gpu, options)?, Offsets::new(live));
                let (mut ours, mut peer) = (Side::new(&pool, live, len), Side::new(&offsets, live, len));
                let times = pairs(LIMIT, || ours.run(replaces), || peer.run(replaces));
                report.add(&what, "offset-allocator in a mutex", &times, Goal::None);
                if asked == 1 {
                    report.add(format!("pair of a pool, {lengths}, {name} 1"), "the same", &times, Goal::Time(100.0));
                }
                if asked == 1000 {
                    let mut choices = Choices::new(1, len);
                    let drivers = || must(bare.cycle(choices.next().1.next_multiple_of(UNIT) as u64));
                    let mut many = || (0..OURS_TO_DRIVERS).for_each(|_| ours.run(replaces));
                    let mut times = pairs(LIMIT, &mut many, drivers);
                    times.ours.iter_mut().for_each(|time| *time /= f64::from(OURS_TO_DRIVERS));
                    report.add(&what, "ash + cudarc", &times, Goal::Ratio(0.005));
                }
            }
        }
    }
    let pool = Pool::new(&gpu, options)?;
    report.add("pool, 1,000 live each, 2 threads", "1 thread", &threads(&pool, 2), Goal::Ratio(2.0));
    report.add("pool, 1,000 live each, 4 threads", "1 thread", &threads(&pool, 4), Goal::Ratio(2.0));
    Ok(())
}

/// The time of an operation with several threads, and with one.
fn threads(heap: &impl Heap, count: u32) -> Pairs {
    let rounds = if is_quick() { 20 } else { 200 };
    let (ours, peer) = (0..rounds).map(|_| (at_work(heap, count), at_work(heap, 1))).unzip();
    Pairs { ours, peer }
}

/// Nanoseconds from the start of all threads to the end of the last, divided by the operations of all threads.
fn at_work(heap: &impl Heap, count: u32) -> f64 {
    const OPERATIONS: u32 = 50_000;
    let ready = AtomicU32::new(0);
    let times: Vec<_> = thread::scope(|scope| {
        let work = || {
            let mut side = Side::new(heap, 1000, None);
            (0..OPERATIONS / 4).for_each(|_| side.run(true));
            // Spinning, so that every thread is running when the measurement starts.
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < count {
                thread::yield_now();
            }
            let start = Instant::now();
            (0..OPERATIONS).for_each(|_| side.run(true));
            let end = Instant::now();
            side.chunks.into_iter().flatten().for_each(|chunk| heap.give(chunk));
            (start, end)
        };
        let handles: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    let first = times.iter().map(|(start, _)| *start).min();
    let last = times.iter().map(|(_, end)| *end).max();
    let elapsed = last.zip(first).map_or(f64::NAN, |(last, first)| last.duration_since(first).as_secs_f64());
    elapsed * 1e9 / f64::from(OPERATIONS * count)
}
