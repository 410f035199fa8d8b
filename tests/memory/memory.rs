//! `Memory`: allocation, bytes seen by both sides, typed accessors, slices and freeing.
#![expect(unsafe_code, reason = "takes slices over mapped memory while nothing writes to it")]

use std::fmt::Debug;
use std::ptr::null_mut;

use bytemuck::Pod;
use support::codes;
use support::cuda::{self, Context, Stream, current};
use support::ledger::Live;
use support::{
    HOST_VIEWS, Random, Result, assert_says, device_read, driver, host_read, host_write, pattern, refused, skip,
    supported,
};
use vkgdr::{DropPolicy, Error, Memory, MemoryKind, OpenFlags, RawMemory, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();

#[test]
fn every_size_of_every_kind_is_allocated_and_freed_by_the_drop() -> Result {
    let (context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for kind in support::imported(&gpu, &MemoryKind::ALL) {
        for len in [1, 4095, 4096, 4097, (64 << 20) + 1] {
            let memory = Memory::allocate(&gpu, len, kind)?;
            assert_eq!((memory.len(), memory.kind(), memory.is_empty()), (len, kind, false));
            assert_eq!((memory.context(), memory.drop_policy()), (context.raw(), DropPolicy::WaitForContext));
            assert_ne!(memory.device_ptr(), 0);
            assert_eq!(memory.host_ptr().is_some(), kind.has_host_view());
            let bytes = pattern(len.min(4096), len as u64);
            let end = memory.device_ptr() + (len - bytes.len()) as u64;
            cuda::memcpy_htod(end, &bytes);
            cuda::synchronize();
            assert!(device_read(end, bytes.len()) == bytes, "{len} bytes, {kind}");
            assert_eq!(Live::now(), before.plus_one(kind));
            drop(memory);
            assert_eq!(Live::now(), before);
        }
    }
    Ok(())
}

#[test]
fn the_device_sees_what_the_host_writes_at_any_offset() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let len = (1 << 20) + 13;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, len, kind)?;
        let mut random = Random::new(3);
        for turn in 0..50 {
            let (offset, n) = random.range_within(len);
            let bytes = pattern(n, turn);
            host_write(&memory, offset, &bytes)?;
            let seen = device_read(memory.device_ptr() + offset as u64, n);
            assert!(seen == bytes, "{kind}: {n} bytes at {offset}");
        }
    }
    Ok(())
}

#[test]
fn the_host_sees_what_the_device_fills_and_nothing_beside_it() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    // Short, since reads through a BAR are slow.
    let len = (1 << 16) + 13;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, len, kind)?;
        let mut expected = pattern(len, 4);
        host_write(&memory, 0, &expected)?;
        let mut random = Random::new(5);
        for value in 0..50 {
            let (offset, n) = random.range_within(len);
            cuda::memset_d8(memory.device_ptr() + offset as u64, value, n);
            cuda::synchronize();
            expected[offset..offset + n].fill(value);
            assert!(host_read(&memory, 0, len)? == expected, "{kind}: {n} bytes at {offset}");
        }
    }
    Ok(())
}

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
fn host_and_device_pointers_are_different_addresses_of_the_same_bytes() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, 4096, kind)?;
        let host = memory.host_ptr().ok_or("no host view")?.addr().get() as u64;
        assert_ne!(host, memory.device_ptr(), "{kind}");
    }
    Ok(())
}

#[test]
fn two_memories_share_no_bytes() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memories =
            (0..4).map(|_| Memory::allocate(&gpu, 5000, kind)).collect::<std::result::Result<Vec<_>, _>>()?;
        for (seed, memory) in (0..).zip(&memories) {
            host_write(memory, 0, &pattern(5000, seed))?;
        }
        for (seed, memory) in (0..).zip(&memories) {
            assert!(device_read(memory.device_ptr(), 5000) == pattern(5000, seed), "{kind}");
        }
    }
    Ok(())
}

/// Writes, reads and fills elements of one type at every misalignment.
fn check_typed<T: Pod + PartialEq + Debug>(memory: &Memory, elements: &[T], fill: T) -> Result {
    for offset in 0..=size_of::<T>() {
        memory.write(offset, elements)?;
        memory.flush(..)?;
        let bytes = bytemuck::cast_slice::<T, u8>(elements);
        assert_eq!(device_read(memory.device_ptr() + offset as u64, bytes.len()), bytes, "at {offset}");

        let mut seen = vec![T::zeroed(); elements.len()];
        memory.read(offset, &mut seen)?;
        assert_eq!(seen, elements, "at {offset}");

        memory.fill(offset..offset + size_of_val(elements), fill)?;
        memory.flush(..)?;
        memory.read(offset, &mut seen)?;
        assert_eq!(seen, vec![fill; elements.len()], "at {offset}");
    }
    Ok(())
}

#[test]
fn elements_of_any_type_are_written_read_and_filled_at_unaligned_offsets() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, 4097, kind)?;
        check_typed(&memory, &[1.5_f32, -0.0, f32::MAX, f32::MIN_POSITIVE, 7.25], 2.5)?;
        check_typed(&memory, &[1_u64, u64::MAX, 0x0123_4567_89ab_cdef], 0xfedc_ba98_7654_3210)?;
        check_typed(&memory, &[1_u8, 2, 3, 255, 0, 9, 17], 0xa5)?;
        check_typed(&memory, &[[1_u16, 2, 3], [4, 5, 6]], [7, 8, 9])?;
    }
    Ok(())
}

#[test]
fn a_write_touches_its_own_bytes_only() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, 4097, kind)?;
        let mut expected = pattern(4097, 7);
        host_write(&memory, 0, &expected)?;
        let mut random = Random::new(8);
        for turn in 0..100 {
            let (offset, n) = random.range_within(4097);
            let bytes = pattern(n, turn + 100);
            expected[offset..offset + n].copy_from_slice(&bytes);
            host_write(&memory, offset, &bytes)?;
            assert!(device_read(memory.device_ptr(), 4097) == expected, "{kind}: {n} bytes at {offset}");
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
fn device_memory_has_no_host_view_and_the_error_names_it() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let mut memory = Memory::allocate(&gpu, 4096, MemoryKind::Device)?;
    assert_eq!(memory.host_ptr(), None);
    let mut errors =
        vec![refused(memory.write(0, &[1_u8])), refused(memory.read(0, &mut [0_u8])), refused(memory.fill(0..4, 1_u8))];
    // SAFETY: the call fails, so that no slice is created.
    errors.push(refused(unsafe { memory.as_slice::<u8>() }));
    // SAFETY: as above.
    errors.push(refused(unsafe { memory.as_mut_slice::<u8>() }));
    for error in errors {
        assert!(matches!(error, Error::NoHostView { kind: MemoryKind::Device }), "{error}");
        assert_says(&error, &["device memory has no host view", "device pointer"]);
    }
    // An empty access is no error; the range is checked before the host view.
    memory.flush(..)?;
    memory.invalidate(1..3)?;
    assert!(matches!(refused(memory.write(4096, &[1_u8])), Error::OutOfRange { .. }));
    assert!(matches!(refused(memory.flush(..=4096)), Error::OutOfRange { .. }));
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
fn what_cannot_be_allocated_is_refused_with_reasons() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let allocate = |len, kind| refused(Memory::allocate(&gpu, len, kind));
    for kind in supported(&gpu, &MemoryKind::ALL) {
        assert_says(&allocate(0, kind), &[&format!("cannot allocate 0 bytes of {kind} memory")]);
        for len in [1_000_000_000_000_000, isize::MAX as usize, usize::MAX] {
            let error = allocate(len, kind);
            assert_says(&error, &["VK_ERROR_OUT_OF_DEVICE_MEMORY", &format!("{kind} memory; the heap has ")]);
            assert_eq!((error.vulkan_code(), error.cuda_code()), (Some(-2), None));
        }
    }
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn without_a_context_allocating_is_invalid_context_and_says_what_to_do() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let error = refused(Memory::allocate(&gpu, 4096, MemoryKind::Device));
    assert_says(&error, &["CUDA_ERROR_INVALID_CONTEXT", "open_primary_context"]);
    assert_eq!((error.cuda_code(), error.vulkan_code()), (Some(codes::INVALID_CONTEXT), None));
    Ok(())
}

#[test]
fn in_a_context_of_another_device_allocating_is_refused() -> Result {
    if driver::device_count() < 2 {
        return skip("this needs two devices");
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let _context = Context::create(1);
    let error = refused(Memory::allocate(&gpu, 4096, MemoryKind::Device));
    assert!(matches!(error, Error::WrongDevice { current: 1, expected: 0 }), "{error}");
    assert_says(&error, &["on device 1", "on device 0"]);
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
fn memory_outlives_its_handle() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    drop(gpu);
    host_write(&memory, 5, b"still here")?;
    assert_eq!(device_read(memory.device_ptr() + 5, 10), b"still here");
    assert_eq!(memory.owner().device(), 0);
    drop(memory);
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
