//! CPU access: flush, invalidate, and edge cases of ranges.

use support::cuda;
use support::ledger::Calls;
use support::{
    HOST_VIEWS, Result, assert_says, device_read, host_read, host_write, pattern, ranges, refused, supported,
};
use vkgdr::{Error, MapMode, Memory, MemoryKind, OpenFlags};

pub(crate) const NONE: OpenFlags = OpenFlags::empty();
pub(crate) const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
pub(crate) const SIZE: usize = 4097;
pub(crate) const MODES: [MapMode; 4] = [MapMode::Read, MapMode::Write, MapMode::ReadWrite, MapMode::Discard];

/// Counts the flushes and invalidates that call the driver.
pub(crate) struct Syncs {
    flushes: Calls,
    invalidates: Calls,
}

impl Syncs {
    pub(crate) fn count() -> Self {
        Self {
            flushes: Calls::of("vkFlushMappedMemoryRanges"),
            invalidates: Calls::of("vkInvalidateMappedMemoryRanges"),
        }
    }

    #[track_caller]
    pub(crate) fn assert(&self, flushes: u64, invalidates: u64, what: &str) {
        self.flushes.assert(flushes, what);
        self.invalidates.assert(invalidates, what);
    }
}

#[test]
fn every_range_around_the_atoms_is_flushed_and_seen() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        assert!(!memory.is_coherent());
        let mut expected = pattern(SIZE, 0);
        host_write(&memory, 0, &expected)?;
        for (turn, (offset, len)) in (1..).zip(ranges::around_atoms(SIZE, memory.non_coherent_atom_size())) {
            let what = format!("{kind}: {len} bytes at {offset}");
            let bytes = pattern(len, turn);
            memory.write(offset, &bytes)?;
            expected[offset..offset + len].copy_from_slice(&bytes);
            let syncs = Syncs::count();
            memory.flush(offset..offset + len)?;
            syncs.assert(u64::from(len > 0), 0, &what);
            assert!(device_read(memory.device_ptr(), SIZE) == expected, "{what}");
        }
    }
    Ok(())
}

#[test]
fn every_range_around_the_atoms_is_invalidated_and_shows_the_devices_writes() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        for (turn, (offset, len)) in (1..).zip(ranges::around_atoms(SIZE, memory.non_coherent_atom_size())) {
            let what = format!("{kind}: {len} bytes at {offset}");
            let bytes = pattern(SIZE, turn);
            cuda::memcpy_htod(memory.device_ptr(), &bytes);
            cuda::synchronize();
            let syncs = Syncs::count();
            let seen = host_read(&memory, offset, len)?;
            syncs.assert(0, u64::from(len > 0), &what);
            assert!(seen == bytes[offset..offset + len], "{what}");
        }
    }
    Ok(())
}

#[test]
fn the_whole_is_flushed_and_invalidated_in_one_call() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        for len in [1, 4095, 4096, 4097, (64 << 20) + 1] {
            let memory = Memory::allocate(&gpu, len, kind)?;
            let syncs = Syncs::count();
            memory.flush(..)?;
            memory.invalidate(..)?;
            syncs.assert(1, 1, &format!("{kind}: {len} bytes"));
        }
    }
    Ok(())
}

#[test]
fn parts_of_a_region_at_an_odd_offset_are_rounded_to_the_atoms_of_the_memory() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let region = memory.slice(4033..)?;
        for (offset, len) in ranges::around_atoms(region.len(), memory.non_coherent_atom_size()) {
            region.flush(offset..offset + len)?;
            region.invalidate(offset..offset + len)?;
        }
    }
    Ok(())
}

#[test]
fn coherent_memory_makes_no_driver_calls_for_flush_and_invalidate() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        if !memory.is_coherent() {
            eprintln!("left out: {kind} memory is not coherent");
            continue;
        }
        let syncs = Syncs::count();
        memory.flush(..)?;
        memory.flush(3..5)?;
        memory.invalidate(..)?;
        if kind.has_host_view() {
            for mode in MODES {
                memory.map(mode, ..)?.finish()?;
            }
        }
        syncs.assert(0, 0, &kind.to_string());
    }
    Ok(())
}

#[test]
fn empty_ranges_do_nothing() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let bytes = pattern(SIZE, 1);
        host_write(&memory, 0, &bytes)?;
        let syncs = Syncs::count();
        for range in ranges::empty(SIZE) {
            memory.flush(range)?;
            memory.invalidate(range)?;
            memory.fill(range, 0xff_u8)?;
            for mode in MODES {
                let guard = memory.map(mode, range)?;
                assert!(guard.is_empty());
            }
        }
        for offset in [0, 1, SIZE] {
            memory.write(offset, &[0_u64; 0])?;
            memory.read(offset, &mut [0_u64; 0])?;
        }
        syncs.assert(0, 0, &kind.to_string());
        assert!(device_read(memory.device_ptr(), SIZE) == bytes, "{kind}");
    }
    Ok(())
}

#[test]
fn every_range_outside_the_memory_is_refused() -> Result {
    for flags in [NONE, FORCED] {
        let (_context, gpu) = support::open(flags)?;
        for kind in supported(&gpu, &HOST_VIEWS) {
            let memory = Memory::allocate(&gpu, SIZE, kind)?;
            let syncs = Syncs::count();
            for range in ranges::outside(SIZE) {
                let mut errors = vec![
                    refused(memory.flush(range)),
                    refused(memory.invalidate(range)),
                    refused(memory.fill(range, 0_u8)),
                    refused(memory.slice(range)),
                ];
                errors.extend(MODES.map(|mode| refused(memory.map(mode, range))));
                for error in errors {
                    ranges::assert_refused(&error, range, SIZE);
                }
            }
            syncs.assert(0, 0, &kind.to_string());
        }
    }
    Ok(())
}

#[test]
fn ranges_may_be_written_in_every_way_that_rust_has() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let lens = [
        memory.slice(..)?.len(),
        memory.slice(97..)?.len(),
        memory.slice(..97)?.len(),
        memory.slice(..=97)?.len(),
        memory.slice(1..97)?.len(),
        memory.slice(1..=97)?.len(),
    ];
    assert_eq!(lens, [4097, 4000, 97, 98, 96, 97]);
    for error in [
        refused(memory.slice(..=usize::MAX)),
        refused(memory.slice(0..=usize::MAX)),
        refused(memory.slice(usize::MAX..)),
        refused(memory.slice(usize::MAX..=usize::MAX)),
    ] {
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    Ok(())
}

/// The prefix of out-of-range errors.
fn bytes_at(len: usize, offset: usize) -> String {
    let (unit, is) = if len == 1 { ("byte", "is") } else { ("bytes", "are") };
    format!("{len} {unit} at offset {offset} {is}")
}

#[test]
fn reads_and_writes_outside_the_memory_are_refused_and_touch_nothing() -> Result {
    const MAX: usize = usize::MAX;
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let bytes = pattern(SIZE, 2);
        host_write(&memory, 0, &bytes)?;
        for (offset, len) in [(0, 4098), (1, 4097), (4097, 1), (4096, 2), (4098, 0), (MAX, 0), (MAX, 1), (MAX - 7, 8)] {
            let mut buffer = vec![0xdd_u8; len];
            for error in [refused(memory.write(offset, &buffer)), refused(memory.read(offset, &mut buffer))] {
                assert_says(&error, &[&format!("{} out of range", bytes_at(len, offset))]);
            }
            assert_eq!(buffer, vec![0xdd; len]);
        }
        // Elements are counted in bytes.
        let error = refused(memory.write(4090, &[0_u64]));
        assert!(matches!(error, Error::OutOfRange { offset: 4090, len: 8, size: SIZE }), "{error}");
        assert!(matches!(refused(memory.read(1, &mut [0_u32; 1025])), Error::OutOfRange { len: 4100, .. }));
        assert!(host_read(&memory, 0, SIZE)? == bytes, "{kind}");
    }
    Ok(())
}
