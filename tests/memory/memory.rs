//! `Memory`: copies by the device, typed slices, parts and what they keep alive, and freeing. The rest is in `conformance`.
#![expect(unsafe_code, reason = "takes slices over mapped memory while nothing writes to it")]

use std::ptr::null_mut;

use support::cuda::{self, Stream, current};
use support::ledger::Live;
use support::{
    HOST_VIEWS, Random, Result, assert_says, device_read, host_read, host_write, pattern, refused, supported,
};
use vkgdr::{Error, Memory, MemoryKind, OpenFlags, RawMemory, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();

#[test]
fn the_host_sees_what_the_device_copies_from_one_memory_to_another() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let len = (1 << 16) + 13;
    let mut random = Random::new(9);
    for kind in supported(&gpu, &HOST_VIEWS) {
        for other in supported(&gpu, &MemoryKind::ALL) {
            let (source, target) = (Memory::allocate(&gpu, len, kind)?, Memory::allocate(&gpu, len, kind)?);
            let between = Memory::allocate(&gpu, len, other)?;
            assert_ne!(source.device_ptr(), target.device_ptr());
            host_write(&source, 0, &pattern(len, 6))?;
            let mut expected = pattern(len, 7);
            host_write(&target, 0, &expected)?;
            for _ in 0..10 {
                let (from, n) = random.range_within(len);
                let (through, to) = (random.below(len - n + 1), random.below(len - n + 1));
                let between = between.device_ptr() + through as u64;
                cuda::copy_dtod_async(between, source.device_ptr() + from as u64, n, &stream);
                cuda::copy_dtod_async(target.device_ptr() + to as u64, between, n, &stream);
                expected[to..to + n].copy_from_slice(&pattern(len, 6)[from..from + n]);
            }
            stream.synchronize();
            assert!(host_read(&target, 0, len)? == expected, "{kind} through {other}");
        }
    }
    Ok(())
}

#[test]
fn a_fill_whose_length_is_no_multiple_is_refused_and_writes_nothing() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, 4097, kind)?;
        memory.fill(.., 1_u8)?;
        memory.flush(..)?;
        for error in [
            refused(memory.fill(.., 2_u32)),
            refused(memory.fill(0..7, 2_u64)),
            refused(memory.fill(1..=1, 2_u16)),
            refused(memory.fill(3..7, [2_u8; 3])),
        ] {
            assert!(matches!(error, Error::Misaligned { .. }), "{error}");
            assert_says(&error, &["the length to fill", "is not a multiple of"]);
        }
        assert_says(&refused(memory.fill(0..7, 2_u64)), &["length to fill 7", "multiple of 8 bytes"]);
        assert_eq!(host_read(&memory, 0, 4097)?, [1; 4097]);
        memory.fill(4097.., 2_u64)?;
    }
    Ok(())
}

#[test]
fn slices_show_what_the_device_wrote_and_the_device_sees_what_goes_into_them() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let mut memory = Memory::allocate(&gpu, 4096, kind)?;
        cuda::memset_d8(memory.device_ptr(), 3, 4096);
        cuda::synchronize();
        memory.invalidate(..)?;
        // SAFETY: the device has finished, and no other code uses the memory.
        let words = unsafe { memory.as_slice::<u32>() }?;
        assert_eq!(words, [0x0303_0303; 1024]);
        // SAFETY: as above, and the earlier slice is dropped.
        let floats = unsafe { memory.as_mut_slice::<f32>() }?;
        assert_eq!(floats.len(), 1024);
        floats[1023] = 1.5;
        memory.flush(..)?;
        assert_eq!(device_read(memory.device_ptr() + 4092, 4), 1.5_f32.to_ne_bytes());
    }
    Ok(())
}

#[test]
fn slices_that_do_not_fit_their_element_are_refused() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let mut memory = Memory::allocate(&gpu, 4097, kind)?;
        // SAFETY: the calls fail, so that no slice is created.
        let length = refused(unsafe { memory.as_slice::<u32>() });
        assert_says(&length, &["the length 4097 is not a multiple of 4 bytes"]);
        // SAFETY: as above.
        let length = refused(unsafe { memory.as_mut_slice::<u64>() });
        assert_says(&length, &["the length 4097 is not a multiple of 8 bytes"]);
        let odd = memory.slice(1..5)?;
        // SAFETY: as above.
        let address = refused(unsafe { odd.as_slice::<u32>() });
        assert_says(&address, &["the host address", "is not a multiple of 4 bytes"]);
        assert!(matches!(address, Error::Misaligned { .. }));
        // SAFETY: nothing writes to the memory.
        assert_eq!(unsafe { odd.as_slice::<u8>() }?.len(), 4);
    }
    Ok(())
}

#[test]
fn a_primary_handle_needs_no_context_for_anything() -> Result {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::FORCE_NON_COHERENT)?;
    let before = Live::now();
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, 4097, kind)?;
        assert_ne!(memory.context(), null_mut());
        host_write(&memory, 1, b"no context")?;
        assert_eq!(host_read(&memory, 1, 10)?, b"no context");
        assert_eq!(current(), null_mut());
        drop(memory);
        assert_eq!(current(), null_mut());
    }
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn free_frees_and_says_that_all_went_well() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for kind in supported(&gpu, &MemoryKind::ALL) {
        Memory::allocate(&gpu, 4097, kind)?.free()?;
        assert_eq!(Live::now(), before, "{kind}");
    }
    Ok(())
}

#[test]
fn everything_may_be_shared_between_threads() {
    const fn shared<T: Send + Sync>() {}
    shared::<Vkgdr>();
    shared::<Memory>();
    shared::<RawMemory>();
    shared::<Error>();
}

#[test]
fn the_debug_text_shows_length_kind_and_pointers() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, 4097, MemoryKind::Mapped)?;
    let text = format!("{memory:?}");
    for part in ["4097", "Mapped", &format!("{:#x}", memory.device_ptr()), "WaitForContext"] {
        assert!(text.contains(part), "{text} does not show {part}");
    }
    Ok(())
}

/// The distance between the pointers of two regions.
fn offset_of(region: &Memory, base: &Memory) -> (u64, Option<usize>) {
    let host = |region: &Memory| region.host_ptr().map(|pointer| pointer.addr().get());
    let distance = host(region).zip(host(base)).map(|(region, base)| region - base);
    (region.device_ptr() - base.device_ptr(), distance)
}

#[test]
fn regions_nest_and_each_alone_keeps_the_memory() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, 4097, MemoryKind::Mapped)?;
    host_write(&memory, 0, &pattern(4097, 3))?;
    let outer = memory.slice(100..4000)?;
    let middle = outer.slice(50..=1000)?;
    let inner = middle.slice(7..17)?;
    assert_eq!(offset_of(&inner, &memory), (157, Some(157)));
    assert_eq!((outer.len(), middle.len(), inner.len()), (3900, 951, 10));
    drop((memory, outer));
    drop(middle);
    assert_eq!(Live::now(), before.plus_one(MemoryKind::Mapped));
    assert_eq!(host_read(&inner, 0, 10)?, pattern(4097, 3)[157..167]);
    assert_eq!(device_read(inner.device_ptr(), 10), pattern(4097, 3)[157..167]);
    drop(inner);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn freeing_memory_with_a_live_region_frees_it_with_the_region() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, 4097, MemoryKind::Mapped)?;
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
    let memory = Memory::allocate(&gpu, 4097, MemoryKind::Mapped)?;
    host_write(&memory, 0, &pattern(4097, 5))?;
    let region = memory.slice(40..60)?;
    drop((memory, gpu));
    let seen = std::thread::spawn(move || {
        let mut bytes = [0_u8; 20];
        region.read(0, &mut bytes).map(|()| bytes)
    });
    let seen = seen.join().map_err(|_| "the thread panicked")??;
    assert_eq!(seen, pattern(4097, 5)[40..60]);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn the_debug_text_shows_where_the_region_lies() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, 4097, MemoryKind::Mapped)?;
    let text = format!("{:?}", memory.slice(321..654)?);
    assert!(text.contains("321") && text.contains("333") && text.contains("Mapped"), "{text}");
    Ok(())
}
