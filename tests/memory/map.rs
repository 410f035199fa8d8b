//! Map guards: flushed and invalidated ranges, and the bytes seen by both sides.

use support::cuda::{self, Stream};
use support::{HOST_VIEWS, Result, assert_says, device_read, host_write, pattern, refused, supported};
use vkgdr::{Error, MapMode, Memory, MemoryKind};

use crate::access::{FORCED, MODES, NONE, SIZE, Syncs};

#[test]
fn each_map_mode_synchronises_what_it_says() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
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
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let atom = memory.non_coherent_atom_size();
        for (start, end) in [(0, 4096), (3, 4096), (0, 4001), (3, 4001), (5, 6), (0, SIZE), (4096, SIZE)] {
            let mut expected = pattern(SIZE, start as u64);
            cuda::memcpy_htod(memory.device_ptr(), &expected);
            cuda::synchronize();
            let (syncs, what) = (Syncs::count(), format!("{kind}: {start}..{end}"));
            // In a region that starts at an odd offset.
            let region = memory.slice(start..)?;
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

/// The number of ends of a range that are not atom boundaries.
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
    let region = memory.slice(1000..2000)?;
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
