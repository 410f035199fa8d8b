//! Regions: sub-ranges with pointers of their own, which keep the memory alive.

use support::ledger::Live;
use support::{
    HOST_VIEWS, Random, Result, cuda, device_read, host_read, host_write, pattern, ranges, refused, supported,
};
use vkgdr::{Error, Memory, MemoryKind, OpenFlags};

const NONE: OpenFlags = OpenFlags::empty();
const SIZE: usize = 4097;

/// The distance between the pointers of two regions.
fn offset_of(region: &Memory, base: &Memory) -> (u64, Option<usize>) {
    let host = |region: &Memory| region.host_ptr().map(|pointer| pointer.addr().get());
    let distance = host(region).zip(host(base)).map(|(region, base)| region - base);
    (region.device_ptr() - base.device_ptr(), distance)
}

#[test]
fn a_region_has_pointers_and_a_length_of_its_own() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let region = memory.slice(100..=1099)?;
        assert_eq!((region.len(), region.kind(), region.is_empty()), (1000, kind, false));
        assert_eq!(region.is_coherent(), memory.is_coherent());
        assert_eq!(region.non_coherent_atom_size(), memory.non_coherent_atom_size());
        assert_eq!(region.owner().uuid(), gpu.uuid());
        let host = kind.has_host_view().then_some(100);
        assert_eq!(offset_of(&region, &memory), (100, host), "{kind}");
    }
    Ok(())
}

#[test]
fn offsets_in_a_region_count_from_its_start_on_both_sides() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let mut expected = pattern(SIZE, 1);
        host_write(&memory, 0, &expected)?;
        let region = memory.slice(1001..3000)?;
        assert_eq!(host_read(&region, 0, 1999)?, expected[1001..3000]);

        host_write(&region, 7, b"from the host")?;
        expected[1008..1021].copy_from_slice(b"from the host");
        assert!(device_read(memory.device_ptr(), SIZE) == expected, "{kind}");

        cuda::memset_d8(region.device_ptr() + 500, 0x33, 10);
        cuda::synchronize();
        expected[1501..1511].fill(0x33);
        region.fill(1990.., 0x44_u8)?;
        region.flush(1990..)?;
        expected[2991..3000].fill(0x44);
        assert!(host_read(&memory, 0, SIZE)? == expected, "{kind}");
    }
    Ok(())
}

#[test]
fn a_region_outlives_the_variable_of_its_memory() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let bytes = pattern(SIZE, 2);
        host_write(&memory, 0, &bytes)?;
        let region = memory.slice(1000..2000)?;
        drop(memory);
        assert_eq!(Live::now(), before.plus_one(kind));
        // Later allocations would reuse the memory.
        let others = (0..8).map(|_| Memory::allocate(&gpu, SIZE, kind)).collect::<vkgdr::Result<Vec<_>>>()?;
        for other in &others {
            other.fill(.., 0xee_u8)?;
            other.flush(..)?;
        }
        assert!(host_read(&region, 0, 1000)? == bytes[1000..2000], "{kind}: the host's pages are gone");
        assert!(device_read(region.device_ptr(), 1000) == bytes[1000..2000], "{kind}: the device's pages are gone");
        host_write(&region, 0, b"and on")?;
        assert_eq!(device_read(region.device_ptr(), 6), b"and on");
        drop(others);
        drop(region);
        assert_eq!(Live::now(), before);
    }
    Ok(())
}

#[test]
fn regions_nest_and_each_alone_keeps_the_memory() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    host_write(&memory, 0, &pattern(SIZE, 3))?;
    let outer = memory.slice(100..4000)?;
    let middle = outer.slice(50..=1000)?;
    let inner = middle.slice(7..17)?;
    assert_eq!(offset_of(&inner, &memory), (157, Some(157)));
    assert_eq!((outer.len(), middle.len(), inner.len()), (3900, 951, 10));
    drop((memory, outer));
    drop(middle);
    assert_eq!(Live::now(), before.plus_one(MemoryKind::Mapped));
    assert_eq!(host_read(&inner, 0, 10)?, pattern(SIZE, 3)[157..167]);
    assert_eq!(device_read(inner.device_ptr(), 10), pattern(SIZE, 3)[157..167]);
    drop(inner);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_part_cannot_reach_beyond_its_parent() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let region = memory.slice(1000..1100)?;
    for range in ranges::outside(100) {
        let error = refused(region.slice(range));
        ranges::assert_refused(&error, range, 100);
    }
    for (offset, n) in [(100, 1), (99, 2), (0, 101), (usize::MAX, 1), (usize::MAX - 999, 1000)] {
        let mut bytes = vec![0_u8; n];
        assert!(matches!(refused(region.write(offset, &bytes)), Error::OutOfRange { .. }), "{n} at {offset}");
        assert!(matches!(refused(region.read(offset, &mut bytes)), Error::OutOfRange { .. }), "{n} at {offset}");
    }
    Ok(())
}

#[test]
fn regions_of_a_region_are_what_they_are_of_the_memory() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let mut random = Random::new(4);
    for _ in 0..200 {
        let (offset, len) = random.range_within(SIZE);
        let (inner, inner_len) = random.range_within(len);
        let part = memory.slice(offset..offset + len)?.slice(inner..inner + inner_len)?;
        assert_eq!(part.len(), inner_len);
        let expected = offset + inner;
        assert_eq!(offset_of(&part, &memory), (expected as u64, Some(expected)));
    }
    Ok(())
}

#[test]
fn a_region_may_be_empty_anywhere_up_to_the_end() -> Result {
    let (_context, gpu) = support::open(OpenFlags::FORCE_NON_COHERENT)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    for range in ranges::empty(SIZE) {
        let region = memory.slice(range)?;
        assert!(region.is_empty(), "{range:?}");
        assert_eq!(region.len(), 0);
        region.write(0, &[0_u8; 0])?;
        region.read(0, &mut [0_u8; 0])?;
        region.fill(.., 1_u64)?;
        region.flush(..)?;
        region.invalidate(..)?;
        assert!(region.slice(..)?.is_empty());
        assert!(matches!(refused(region.write(0, &[1_u8])), Error::OutOfRange { .. }));
        assert!(matches!(refused(region.flush(0..1)), Error::OutOfRange { .. }));
    }
    assert_eq!(offset_of(&memory.slice(SIZE..)?, &memory), (SIZE as u64, Some(SIZE)));
    Ok(())
}

#[test]
fn the_whole_of_a_memory_is_a_region_too() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let whole = memory.slice(..)?;
    assert_eq!((whole.len(), offset_of(&whole, &memory)), (SIZE, (0, Some(0))));
    Ok(())
}

#[test]
fn freeing_memory_with_a_live_region_frees_it_with_the_region() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let region = memory.slice(10..20)?;
    host_write(&region, 0, b"stays")?;
    memory.free()?;
    assert_eq!(Live::now(), before.plus_one(MemoryKind::Mapped));
    assert_eq!(device_read(region.device_ptr(), 5), b"stays");
    drop(region);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_region_outlives_its_handle_on_another_thread() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    host_write(&memory, 0, &pattern(SIZE, 5))?;
    let region = memory.slice(40..60)?;
    drop((memory, gpu));
    let seen = std::thread::spawn(move || {
        let mut bytes = [0_u8; 20];
        region.read(0, &mut bytes).map(|()| bytes)
    });
    let seen = seen.join().map_err(|_| "the thread panicked")??;
    assert_eq!(seen, pattern(SIZE, 5)[40..60]);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn the_debug_text_shows_where_the_region_lies() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let text = format!("{:?}", memory.slice(321..654)?);
    assert!(text.contains("321") && text.contains("333") && text.contains("Mapped"), "{text}");
    Ok(())
}
