//! The soak: threads run sequences for a given time, and the resources of the process must stay within limits.
//!
//! A round is sixteen threads, each with a world of its own; after it nothing of it is alive. The limits apply to the
//! measurements after each round, from the first tenth of the time on: the numbers of descriptors and of shared and
//! file-backed mappings never change. The minimum of malloc's live bytes in the last third of the time exceeds that of
//! the first third by at most 512 KiB, and the minimum of resident memory by at most 24 MiB, since malloc's arenas, one
//! for each thread, fragment and release whole pages only.
#![expect(unsafe_code, reason = "calls mallinfo2 and malloc_trim")]

use std::time::{Duration, Instant};

use crate::{Tally, open, report, seed, work_together};
use support::ledger::Live;
use support::resources::{Snapshot, resident_bytes};
use support::step::Engine;
use support::{Result, number};

const MIB: u64 = 1 << 20;
/// Steps of all threads in a round, which take a second or two.
const ROUND: u64 = 8000;

/// Bytes of memory after each round, with the time.
#[derive(Default)]
struct Course(Vec<(Duration, u64)>);

impl Course {
    /// The minimum between two points of the time, in tenths of it.
    fn least(&self, whole: Duration, from: u32, to: u32) -> u64 {
        let inside = |at: Duration| at >= whole * from / 10 && at <= whole * to / 10;
        self.0.iter().filter(|(at, _)| inside(*at)).map(|(_, bytes)| *bytes).min().unwrap_or(0)
    }

    fn assert_flat(&self, whole: Duration, what: &str, slack: u64) -> (u64, u64) {
        let (first, last) = (self.least(whole, 1, 4), self.least(whole, 7, 10));
        assert!(last <= first + slack, "{what} grew from {first} to {last} bytes: {:?}", self.0);
        (first, last)
    }
}

/// The live bytes of malloc, after it has returned unused pages to the system.
fn allocated() -> u64 {
    // SAFETY: any padding is valid.
    unsafe { libc::malloc_trim(0) };
    // SAFETY: no arguments.
    let info = unsafe { libc::mallinfo2() };
    // Large allocations are mapped individually and counted separately.
    (info.uordblks + info.hblkhd) as u64
}

#[test]
#[ignore = "runs for MINUTES: make nightly PARTS=soak"]
fn the_resources_of_the_process_stay_flat() -> Result {
    let gpu = open()?;
    let whole = Duration::from_secs(60 * number("MINUTES").unwrap_or(10));
    let (start, seed, live) = (Instant::now(), seed(), Live::now());
    let (mut all, mut sequences, mut rounds) = (Tally::default(), 0, 0);
    let mut warm = None;
    let (mut heap, mut resident) = (Course::default(), Course::default());
    while start.elapsed() < whole {
        let (tally, count) = work_together(Engine::Crate, seed + rounds, ROUND)?;
        (sequences, rounds) = (sequences + count, rounds + 1);
        all.add(&tally);
        gpu.collect();
        assert_eq!(Live::now(), live, "after round {rounds}");
        let at = start.elapsed();
        heap.0.push((at, allocated()));
        resident.0.push((at, resident_bytes()));
        match &warm {
            Some(before) => Snapshot::assert_unchanged(before),
            None if at >= whole / 10 => warm = Some(Snapshot::take()),
            None => {}
        }
    }
    let heap = heap.assert_flat(whole, "the heap", MIB / 2);
    let resident = resident.assert_flat(whole, "resident memory", 24 * MIB);
    println!("soak rounds={rounds} heap={heap:?} resident={resident:?} bytes, in the first and the last third");
    report("soak", sequences, seed, &all);
    Ok(())
}
