//! The CPU's access: flush and invalidate, ranges at the edges, map guards.

use support::cuda::{self, Stream};
use support::ledger::Calls;
use support::{
    HOST_VIEWS, Result, assert_says, device_read, host_read, host_write, pattern, ranges, refused, supported,
};
use vkgdr::{Error, MapMode, Memory, MemoryKind, OpenFlags};

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
const SIZE: usize = 4097;
const MODES: [MapMode; 4] = [MapMode::Read, MapMode::Write, MapMode::ReadWrite, MapMode::Discard];

/// Counts flushes and invalidates that reach the driver.
struct Syncs {
    flushes: Calls,
    invalidates: Calls,
}

impl Syncs {
    fn count() -> Self {
        Self {
            flushes: Calls::of("vkFlushMappedMemoryRanges"),
            invalidates: Calls::of("vkInvalidateMappedMemoryRanges"),
        }
    }

    #[track_caller]
    fn assert(&self, flushes: u64, invalidates: u64, what: &str) {
        self.flushes.assert(flushes, what);
        self.invalidates.assert(invalidates, what);
    }
}

#[test]
fn every_range_around_the_atoms_is_flushed_and_seen() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
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
    for kind in supported(&gpu, &HOST_VIEWS) {
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
    for kind in supported(&gpu, &HOST_VIEWS) {
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
        let region = memory.region(4033..)?;
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
                    refused(memory.region(range)),
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
        memory.region(..)?.len(),
        memory.region(97..)?.len(),
        memory.region(..97)?.len(),
        memory.region(..=97)?.len(),
        memory.region(1..97)?.len(),
        memory.region(1..=97)?.len(),
    ];
    assert_eq!(lens, [4097, 4000, 97, 98, 96, 97]);
    for error in [
        refused(memory.region(..=usize::MAX)),
        refused(memory.region(0..=usize::MAX)),
        refused(memory.region(usize::MAX..)),
        refused(memory.region(usize::MAX..=usize::MAX)),
    ] {
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    Ok(())
}

/// As errors begin that say that a range is out of range.
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

#[test]
fn each_map_mode_synchronises_what_it_says() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let atoms = memory.non_coherent_atom_size()..4096;
        for (mode, flushes, invalidates) in
            [(MapMode::Read, 0, 1), (MapMode::Write, 1, 1), (MapMode::ReadWrite, 1, 1), (MapMode::Discard, 1, 0)]
        {
            let what = format!("{kind}, {mode:?}");
            let syncs = Syncs::count();
            let guard = memory.map(mode, atoms.clone())?;
            syncs.assert(0, invalidates, &what);
            drop(guard);
            syncs.assert(flushes, invalidates, &what);

            let syncs = Syncs::count();
            memory.map(mode, atoms.clone())?.finish()?;
            syncs.assert(flushes, invalidates, &format!("{what}, finished"));
        }
    }
    Ok(())
}

#[test]
fn discarding_part_of_an_atom_invalidates_that_atom_since_the_flush_writes_all_of_it() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let atom = memory.non_coherent_atom_size();
        for (start, end) in [(0, 4096), (3, 4096), (0, 4001), (3, 4001), (5, 6), (0, SIZE), (4096, SIZE)] {
            let mut expected = pattern(SIZE, start as u64);
            cuda::memcpy_htod(memory.device_ptr(), &expected);
            cuda::synchronize();
            let (syncs, what) = (Syncs::count(), format!("{kind}: {start}..{end}"));
            // In a region, whose own start is odd.
            let region = memory.region(start..)?;
            let mut guard = region.map(MapMode::Discard, ..end - start)?;
            syncs.assert(0, partial_edges(start, end, atom), &what);
            guard.write(0, &vec![0x99_u8; end - start])?;
            guard.finish()?;
            expected[start..end].fill(0x99);
            assert!(device_read(memory.device_ptr(), SIZE) == expected, "{what}");
        }
    }
    Ok(())
}

/// How many of a range's two ends lie within an atom.
fn partial_edges(start: usize, end: usize, atom: usize) -> u64 {
    u64::from(!start.is_multiple_of(atom)) + u64::from(!end.is_multiple_of(atom))
}

#[test]
fn a_guard_for_reading_cannot_be_written_through() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let mut guard = memory.map(MapMode::Read, ..)?;
    let error = refused(guard.write(0, &[1_u8]));
    assert!(matches!(error, Error::ReadOnly), "{error}");
    assert_says(&error, &["mapped for reading only"]);
    Ok(())
}

#[test]
fn what_a_guard_writes_is_seen_by_the_device_when_it_ends() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        for (turn, mode) in (0..).zip([MapMode::Write, MapMode::ReadWrite, MapMode::Discard]) {
            for finish in [false, true] {
                let bytes = pattern(1000, turn * 2 + u64::from(finish));
                let mut guard = memory.map(mode, 1001..2001)?;
                guard.write(0, &bytes)?;
                if finish {
                    guard.finish()?;
                } else {
                    drop(guard);
                }
                assert!(device_read(memory.device_ptr() + 1001, 1000) == bytes, "{kind}, {mode:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_write_guard_keeps_the_bytes_that_it_does_not_write() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let mut expected = pattern(SIZE, 3);
        cuda::memcpy_htod(memory.device_ptr(), &expected);
        cuda::synchronize();
        let mut guard = memory.map(MapMode::Write, 100..200)?;
        guard.write(50, &[9_u8; 10])?;
        guard.finish()?;
        expected[150..160].fill(9);
        assert!(device_read(memory.device_ptr(), SIZE) == expected, "{kind}");
    }
    Ok(())
}

#[test]
fn a_guard_shows_what_the_device_wrote() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    let stream = Stream::create();
    for kind in supported(&gpu, &HOST_VIEWS) {
        let (source, memory) = (Memory::allocate(&gpu, SIZE, kind)?, Memory::allocate(&gpu, SIZE, kind)?);
        for (turn, mode) in (0..).zip([MapMode::Read, MapMode::ReadWrite]) {
            let bytes = pattern(SIZE, turn);
            host_write(&source, 0, &bytes)?;
            cuda::copy_dtod_async(memory.device_ptr(), source.device_ptr(), SIZE, &stream);
            stream.synchronize();
            let guard = memory.map(mode, 1..=4096)?;
            let mut seen = vec![0; 4096];
            guard.read(0, &mut seen)?;
            assert!(seen == bytes[1..], "{kind}, {mode:?}");
        }
    }
    Ok(())
}

#[test]
fn a_guard_covers_its_range_and_no_more() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let region = memory.region(1000..2000)?;
    let mut guard = region.map(MapMode::ReadWrite, 10..20)?;
    assert_eq!((guard.len(), guard.is_empty(), guard.mode()), (10, false, MapMode::ReadWrite));
    let distance = guard.host_ptr().zip(memory.host_ptr()).map(|(guard, base)| guard.addr().get() - base.addr().get());
    assert_eq!(distance, Some(1010));
    for (offset, len) in [(10, 1), (9, 2), (0, 11), (usize::MAX, 1), (usize::MAX, 0)] {
        let mut bytes = vec![0_u8; len];
        for error in [refused(guard.write(offset, &bytes)), refused(guard.read(offset, &mut bytes))] {
            assert!(matches!(error, Error::OutOfRange { size: 10, .. }), "{error}");
        }
    }
    guard.write(1, &[1_u8; 9])?;
    guard.write(3, &[7.5_f32])?;
    let mut seen = [0_f32];
    guard.read(3, &mut seen)?;
    assert_eq!(seen, [7.5]);
    Ok(())
}

#[test]
fn device_memory_cannot_be_mapped() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Device)?;
    for mode in MODES {
        let error = refused(memory.map(mode, ..));
        assert!(matches!(error, Error::NoHostView { kind: MemoryKind::Device }), "{error}");
        assert!(matches!(refused(memory.map(mode, ..=SIZE)), Error::OutOfRange { .. }));
    }
    let syncs = Syncs::count();
    memory.flush(..)?;
    memory.invalidate(..)?;
    syncs.assert(0, 0, "device memory");
    Ok(())
}

#[test]
fn several_guards_of_one_memory_may_live_at_once() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let syncs = Syncs::count();
    let mut first = memory.map(MapMode::Discard, ..1000)?;
    let mut second = memory.map(MapMode::Discard, 1000..)?;
    first.write(0, &[1_u8; 1000])?;
    second.write(0, &[2_u8; 3097])?;
    drop((first, second));
    let atom = memory.non_coherent_atom_size();
    syncs.assert(2, partial_edges(0, 1000, atom) + partial_edges(1000, SIZE, atom), "two guards");
    let mut expected = vec![1; 1000];
    expected.resize(SIZE, 2);
    assert!(device_read(memory.device_ptr(), SIZE) == expected);
    Ok(())
}
