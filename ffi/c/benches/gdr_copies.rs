//! What a copy by `gdr_copy_to_mapping` and `gdr_copy_from_mapping` costs beside the same copy by [`Memory`].
//!
//! The two sides take turns in one run; the table is also written to `gdrapi.json` (see `benches/report`).
#![expect(unsafe_code, reason = "calls C functions")]

#[path = "../../../benches/pairs/mod.rs"]
mod pairs;
#[path = "../../../benches/report/mod.rs"]
mod report;

use std::error::Error;
use std::hint::black_box;
use std::ptr::null_mut;
use std::slice;
use std::time::Duration;

use pairs::Effort;
use report::{Goal, Report};
use vkgdr_c::{
    gdr_close, gdr_copy_from_mapping, gdr_copy_to_mapping, gdr_get_info_v2, gdr_info_v2_t, gdr_map, gdr_mh_t, gdr_open,
    gdr_pin_buffer, vkgdr_open_primary_context,
};
use vkgdr_rs::{Memory, MemoryKind, OpenFlags, Vkgdr};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const LEN: usize = 1 << 20;
/// Lengths with their goals: 5 ns below 4 KiB, 5 % from there on.
const LENGTHS: [(usize, &str); 7] = [
    (8, "8 B"),
    (64, "64 B"),
    (512, "512 B"),
    (4096, "4 KiB"),
    (16 << 10, "16 KiB"),
    (128 << 10, "128 KiB"),
    (LEN, "1 MiB"),
];

fn main() -> Result {
    // `cargo test --benches` and `--list` only want to know whether it runs.
    let arguments: Vec<_> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !has("--bench") || has("--test") || has("--list") {
        return Ok(());
    }
    // `gdr_open` asks whether this library was used.
    let mut opened = null_mut();
    // SAFETY: a place for the handle, which lasts as long as the process.
    assert_eq!(unsafe { vkgdr_open_primary_context(0, 0, &raw mut opened) }, 0);
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    let (mut handle, mut va, mut known) = (gdr_mh_t { h: 0 }, null_mut(), gdr_info_v2_t::default());
    let g = gdr_open();
    // SAFETY: places for the results, here and below.
    let pinned = unsafe { gdr_pin_buffer(g, memory.device_ptr(), LEN, 0, 0, &raw mut handle) };
    // SAFETY: as above.
    let asked = unsafe { gdr_get_info_v2(g, handle, &raw mut known) };
    // SAFETY: as above.
    let mapped = unsafe { gdr_map(g, handle, &raw mut va, LEN) };
    assert_eq!((pinned, asked, mapped), (0, 0, 0));
    let bytes = va.wrapping_byte_add(usize::try_from(memory.device_ptr() - known.v1.va)?);

    let mut report = Report::default();
    for (len, name) in LENGTHS {
        let (goal, effort) = if len < 4096 {
            (Goal::Nanoseconds(5.0), Effort { batch: 5000, rounds: 300, at_most: Duration::from_secs(1) })
        } else {
            let batch = u32::try_from((64 << 20) / len / 64)?.max(1);
            (Goal::Ratio(1.05), Effort { batch, rounds: 300, at_most: Duration::from_secs(2) })
        };
        // Both sides use the same private bytes, whose place in a page changes the time of a copy.
        let mut private = vec![7_u8; len];
        let place = private.as_mut_ptr();
        // SAFETY: private memory of `len` bytes.
        let ours = || unsafe { gdr_copy_to_mapping(black_box(handle), bytes, place.cast(), black_box(len)) };
        // SAFETY: as above, which only this side uses meanwhile.
        let source = || unsafe { slice::from_raw_parts(black_box(place), len) };
        let theirs = || memory.write(black_box(0), source()).unwrap_or_else(|error| panic!("{error}"));
        report.add(format!("gdr_copy_to_mapping, {name}"), "Memory::write", effort.measure(ours, theirs), goal);
        // SAFETY: private memory of `len` bytes.
        let ours = || unsafe { gdr_copy_from_mapping(black_box(handle), place.cast(), bytes, black_box(len)) };
        // SAFETY: as above, which only this side uses meanwhile.
        let target = || unsafe { slice::from_raw_parts_mut(black_box(place), len) };
        let theirs = || memory.read(black_box(0), target()).unwrap_or_else(|error| panic!("{error}"));
        report.add(format!("gdr_copy_from_mapping, {name}"), "Memory::read", effort.measure(ours, theirs), goal);
        report.save("gdrapi", gpu.name());
    }
    report.publish("gdrapi", gpu.name());
    assert_eq!(gdr_close(g), 0);
    Ok(())
}
