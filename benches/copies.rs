//! Copies by the CPU, in two parts: cached memory against libc's `memcpy`, and write-combined memory against a
//! [plain loop](crate::plain_loop), through `Memory` and through a map guard.
//!
//! The routine is the CPU's best; `VKGDR_COPY` names another. On the simulated driver, whose profile `rebar` has mapped memory that
//! is not cached, the second part is ordinary memory treated as write-combined: it shows the cost for the CPU, not for the
//! bus. Both sides copy between the same addresses.
#![expect(unsafe_code, reason = "calls libc's memcpy and a plain loop for comparison")]

use std::hint::black_box;
use std::slice;
use std::time::Duration;

use support::cuda::Context;
use vkgdr::{CopyThresholds, MapMode, Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::contest::{Pairs, pairs};
use crate::plain_loop::{Copy, PlainLoop};
use crate::report::{Goal, Report};
use crate::{Result, must};

const SIZES: [usize; 14] = [1, 3, 8, 13, 32, 64, 100, 256, 1024, 4096, 16_384, 65_536, 1 << 20, 64 << 20];
const WRITE_COMBINED_SIZES: [usize; 14] = [1, 2, 4, 8, 13, 16, 32, 63, 64, 100, 256, 4096, 16_384, 65_536];

const PAGE: usize = 4096;
/// The offset of private memory in its page; the other side starts at a page. 16-byte aligned like malloc's memory, and far enough
/// that the CPU, which compares offsets within a page, does not mistake loads for loads of recent stores.
const APART: usize = 2048 + 16;

pub(crate) fn run() -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    // All copies are made by the CPU.
    gpu.set_copy_thresholds(CopyThresholds { read: usize::MAX, write: usize::MAX });
    let mut report = Report::new("copies", gpu.name(), false)?;
    let mut bytes = vec![2_u8; 2 * PAGE + (64 << 20)];
    let start = bytes.as_ptr().align_offset(PAGE) + APART;
    let private = bytes[start..].as_mut_ptr();

    // This kind is cached by definition.
    let memory = Memory::allocate(&gpu, 64 << 20, MemoryKind::Host)?;
    memory.fill(.., 1_u8)?;
    for len in SIZES {
        let goal = if len > 4096 { Goal::Ratio(1.05) } else { Goal::Ratio(1.2) };
        for (direction, times) in both(&memory, private, len, memcpy, memcpy)? {
            report.add(format!("{direction}, {len} B, {}", memory.copy_routine()), "libc memcpy", &times, goal);
        }
    }
    let memory = Memory::allocate(&gpu, 1 << 20, MemoryKind::Mapped)?;
    memory.fill(.., 1_u8)?;
    let routine = memory.copy_routine();
    let (store, load, peer) = match PlainLoop::of(routine) {
        Some(PlainLoop { store, load }) => (store, load, "plain loop"),
        None => (memcpy as Copy, memcpy as Copy, "libc memcpy"),
    };
    for len in WRITE_COMBINED_SIZES {
        let goal = if len > 256 { Goal::Ratio(1.05) } else { Goal::Ratio(1.3) };
        for (direction, times) in both(&memory, private, len, store, load)? {
            report.add(format!("write-combined {direction}, {len} B, {routine}"), peer, &times, goal);
        }
    }
    Ok(())
}

/// Copies through memory, and for short lengths through a guard, beside functions that copy to and from the same addresses.
fn both(memory: &Memory, private: *mut u8, len: usize, store: Copy, load: Copy) -> Result<Vec<(&'static str, Pairs)>> {
    let limit = Duration::from_millis(600);
    let shared = memory.host_ptr().ok_or("no host view")?.as_ptr();
    // SAFETY: private memory of `len` bytes, which only this side uses meanwhile.
    let source = || unsafe { slice::from_raw_parts(black_box(private), len) };
    // SAFETY: as above.
    let target = || unsafe { slice::from_raw_parts_mut(black_box(private), len) };
    // SAFETY: both sides have `len` bytes, which nothing else uses.
    let stored = || unsafe { store(black_box(shared), black_box(private), black_box(len)) };
    // SAFETY: as above.
    let loaded = || unsafe { load(black_box(private), black_box(shared), black_box(len)) };
    let mut all = vec![
        ("write", pairs(limit, || must(black_box(memory).write(black_box(0), source())), stored)),
        ("read", pairs(limit, || must(black_box(memory).read(black_box(0), target())), loaded)),
    ];
    if len <= 256 {
        let mut guard = memory.map(MapMode::ReadWrite, ..)?;
        all.push(("guard's write", pairs(limit, || must(guard.write(black_box(0), source())), stored)));
        all.push(("guard's read", pairs(limit, || must(guard.read(black_box(0), target())), loaded)));
    }
    Ok(all)
}

/// A copy function, like the plain loops.
unsafe fn memcpy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: by the type's contract.
    unsafe { libc::memcpy(to.cast(), from.cast(), len) };
}
