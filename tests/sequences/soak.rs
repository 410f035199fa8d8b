//! The soak: threads of sequences for as long as is asked, while what the process holds stays flat.
//!
//! A round is sixteen threads with worlds of their own. After each, nothing of it is alive. Flat means, of the moments
//! after a round and once the first tenth of the time is over: the descriptors and the shared and file-backed mappings
//! are the same every time. What the C allocator has given out is, at its least in the last third of the time, at most
//! 512 KiB more than at its least in the first; and resident memory at most 24 MiB, since the allocator's arenas, one for
//! each thread, fill up with gaps that it can give back only by whole pages.
#![expect(unsafe_code, reason = "asks the C allocator")]

use std::time::{Duration, Instant};

use crate::{Tally, number, open, report, seed, work_together};
use support::Result;
use support::ledger::Live;
use support::resources::{Snapshot, resident_bytes};

const MIB: u64 = 1 << 20;
/// Steps of all threads in a round: a second or two.
const ROUND: u64 = 8000;
/// How often a line tells where it stands.
const LINE: Duration = Duration::from_secs(15);

/// Bytes of memory after each round, with the moment.
#[derive(Default)]
struct Course(Vec<(Duration, u64)>);

impl Course {
    /// The least from one part of the time to another, in tenths.
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

/// The bytes that the C allocator has given out; it returns what it has not.
fn allocated() -> u64 {
    // SAFETY: takes a number.
    unsafe { libc::malloc_trim(0) };
    // SAFETY: takes nothing.
    let info = unsafe { libc::mallinfo2() };
    // Large blocks are mapped one by one, and counted apart.
    (info.uordblks + info.hblkhd) as u64
}

#[test]
#[ignore = "runs for MINUTES: make soak"]
fn what_the_process_holds_stays_flat() -> Result {
    let Some(gpu) = open()? else { return Ok(()) };
    let whole = Duration::from_secs(60 * number("MINUTES").unwrap_or(10));
    let (start, seed, live) = (Instant::now(), seed(), Live::now());
    let (mut all, mut sequences, mut rounds) = (Tally::default(), 0, 0);
    let (mut warm, mut told) = (None, Duration::ZERO);
    let (mut heap, mut resident) = (Course::default(), Course::default());
    while start.elapsed() < whole {
        let (tally, count) = work_together(seed + rounds, ROUND)?;
        (sequences, rounds) = (sequences + count, rounds + 1);
        all.add(&tally);
        gpu.collect();
        assert_eq!(Live::now(), live, "after round {rounds}");
        let (now, at) = (Snapshot::take(), start.elapsed());
        heap.0.push((at, allocated()));
        resident.0.push((at, resident_bytes()));
        match &warm {
            Some(before) => Snapshot::assert_unchanged(before),
            None if at >= whole / 10 => warm = Some(now.clone()),
            None => {}
        }
        if at - told >= LINE {
            told = at;
            let (minutes, steps, fds, maps) =
                (at.as_secs_f64() / 60.0, all.total(), now.fd_count(), now.mapping_count());
            let [heap, resident] = [allocated(), resident_bytes()].map(|bytes| bytes as f64 / MIB as f64);
            println!("{minutes:5.1} min {steps:8} steps {fds:3} fds {maps:4} maps {heap:6.1}/{resident:5.1} MiB");
        }
    }
    let end = Snapshot::take();
    let heap = heap.assert_flat(whole, "the heap", MIB / 2);
    let resident = resident.assert_flat(whole, "resident memory", 24 * MIB);
    println!(
        "reliability: soak minutes={} rounds={rounds} fds={} maps={} heap_kib={}:{} resident_kib={}:{}",
        whole.as_secs() / 60,
        end.fd_count(),
        end.mapping_count(),
        heap.0 >> 10,
        heap.1 >> 10,
        resident.0 >> 10,
        resident.1 >> 10,
    );
    report("soak", sequences, seed, &all);
    Ok(())
}
