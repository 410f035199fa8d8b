//! Map guards: flushed and invalidated ranges, and the bytes seen by both sides.

use support::cuda::{self};
use support::{HOST_VIEWS, Result, device_read, pattern, refused};
use vkgdr::{Error, MapMode, Memory, MemoryKind};

use crate::access::{FORCED, NONE, SIZE, Syncs};

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
fn a_guard_covers_its_range_and_no_more() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let region = memory.slice(1000..2000)?;
    let mut guard = region.map(MapMode::ReadWrite, 10..20)?;
    assert_eq!((guard.len(), guard.is_empty()), (10, false));
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
