//! `RawMemory`, freed by hand: allocation, addresses, bytes seen by both sides, free.
#![expect(unsafe_code, reason = "frees memory by hand and uses its pointers")]

use std::ptr::null_mut;

use support::codes;
use support::cuda::{self, Context, current, no_context};
use support::ledger::{Calls, Live};
use support::{
    HOST_VIEWS, Random, Result, assert_says, device_read, driver, pattern, ranges, refused, simcuda, skip, supported,
    vklayer,
};
use vkgdr::{Error, MemoryKind, OpenFlags, RawMemory, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();

/// Frees unused memory.
fn free(memory: &mut RawMemory) -> vkgdr::Result<()> {
    // SAFETY: no device work is pending, and no pointer is used afterwards.
    unsafe { memory.free() }
}

/// Writes through the host pointer.
fn poke(memory: &RawMemory, offset: usize, bytes: &[u8]) -> Result {
    let base = memory.host_ptr().ok_or("no host view")?;
    assert!(offset + bytes.len() <= memory.len());
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: within the memory, as checked above.
        let target = unsafe { base.add(offset + index) };
        // SAFETY: mapped until the memory is freed.
        unsafe { target.write_volatile(*byte) };
    }
    Ok(memory.flush(offset, bytes.len())?)
}

/// Reads through the host pointer.
fn peek(memory: &RawMemory, offset: usize, len: usize) -> Result<Vec<u8>> {
    memory.invalidate(offset, len)?;
    let base = memory.host_ptr().ok_or("no host view")?;
    assert!(offset + len <= memory.len());
    let read = |index| {
        // SAFETY: within the memory, as checked above.
        let source = unsafe { base.add(offset + index) };
        // SAFETY: mapped until the memory is freed.
        unsafe { source.read_volatile() }
    };
    Ok((0..len).map(read).collect())
}

#[test]
fn every_size_of_every_kind_is_allocated_and_freed() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for kind in support::imported(&gpu, &MemoryKind::ALL) {
        for len in [1, 4095, 4096, 4097, (64 << 20) + 1] {
            let mut memory = RawMemory::allocate(&gpu, len, kind)?;
            assert_eq!((memory.len(), memory.kind(), memory.is_empty()), (len, kind, false));
            assert_ne!(memory.device_ptr(), 0);
            assert_eq!(memory.host_ptr().is_some(), kind.has_host_view());
            assert_eq!(Live::now(), before.plus_one(kind));
            cuda::memset_d8(memory.device_ptr() + len as u64 - 1, 0x5a, 1);
            cuda::synchronize();
            assert_eq!(device_read(memory.device_ptr() + len as u64 - 1, 1), [0x5a], "{len} bytes, {kind}");
            free(&mut memory)?;
            assert_eq!(Live::now(), before);
        }
    }
    Ok(())
}

#[test]
fn the_first_and_the_last_byte_are_the_same_on_both_sides() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        for len in [1, 4095, 4096, 4097, (64 << 20) + 1] {
            let mut memory = RawMemory::allocate(&gpu, len, kind)?;
            let last = len - 1;
            poke(&memory, 0, &[17])?;
            poke(&memory, last, &[93])?;
            let first = if len == 1 { 93 } else { 17 };
            assert_eq!(device_read(memory.device_ptr(), 1), [first], "{len} bytes, {kind}");
            assert_eq!(device_read(memory.device_ptr() + last as u64, 1), [93], "{len} bytes, {kind}");
            free(&mut memory)?;
        }
    }
    Ok(())
}

#[test]
fn host_and_device_see_each_others_writes_at_different_addresses() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let len = 1 << 18;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        let mut memory = RawMemory::allocate(&gpu, len, kind)?;
        let host = memory.host_ptr().ok_or("no host view")?.addr().get() as u64;
        assert_ne!(host, memory.device_ptr());
        let mut random = Random::new(1);
        for turn in 0..50 {
            let (offset, n) = random.range_within(len);
            let bytes = pattern(n.min(5000), turn);
            poke(&memory, offset, &bytes)?;
            let seen = device_read(memory.device_ptr() + offset as u64, bytes.len());
            assert!(seen == bytes, "{kind}: the device does not see {n} bytes at {offset}");

            let (offset, n) = random.range_within(len);
            let bytes = pattern(n.min(5000), turn + 1000);
            cuda::memcpy_htod(memory.device_ptr() + offset as u64, &bytes);
            cuda::synchronize();
            let seen = peek(&memory, offset, bytes.len())?;
            assert!(seen == bytes, "{kind}: the host does not see {n} bytes at {offset}");
        }
        free(&mut memory)?;
    }
    Ok(())
}

#[test]
fn device_memory_has_no_host_view() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let mut memory = RawMemory::allocate(&gpu, 4097, MemoryKind::Device)?;
    assert_eq!(memory.host_ptr(), None);
    memory.flush(0, 4097)?;
    memory.invalidate(1, 4096)?;
    let bytes = pattern(4097, 2);
    cuda::memcpy_htod(memory.device_ptr(), &bytes);
    assert_eq!(device_read(memory.device_ptr(), 4097), bytes);
    free(&mut memory)?;
    Ok(())
}

#[test]
fn zero_bytes_are_refused() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let error = refused(RawMemory::allocate(&gpu, 0, kind));
        assert!(matches!(error, Error::ZeroSize { kind: k } if k == kind), "{error}");
        assert_says(&error, &["0 bytes", &format!("{kind} memory")]);
    }
    Ok(())
}

#[test]
fn more_than_the_heap_holds_is_out_of_device_memory_with_the_numbers() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for kind in supported(&gpu, &MemoryKind::ALL) {
        if kind == MemoryKind::Mapped && gpu.supports_existing()? {
            eprintln!("skipped: CUDA allocates mapped memory beyond Vulkan's heap");
            continue;
        }
        let heap = usize::try_from(gpu.memory_info(kind)?.total)?;
        for len in [heap + 1, 1_000_000_000_000_000, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX] {
            let error = refused(RawMemory::allocate(&gpu, len, kind));
            assert_says(&error, &["requested ", &format!(" of {kind} memory; the heap has ")]);
            assert_says(&error, &["(VK_ERROR_OUT_OF_DEVICE_MEMORY)"]);
            assert!(!error.to_string().contains("vkAllocateMemory"), "{error}: nothing was called");
            assert_eq!(error.vulkan_code(), Some(-2));
            let asked = matches!(error, Error::Allocation { operation: None, asked, .. } if asked == len as u64);
            assert!(asked, "{error:?}");
        }
    }
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn ten_to_the_fifteen_bytes_are_written_in_units_that_people_read() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let error = refused(RawMemory::allocate(&gpu, 1_000_000_000_000_000, MemoryKind::Device));
    assert_says(&error, &["requested 909.4 TiB of device memory"]);
    Ok(())
}

#[test]
fn without_a_context_allocating_is_invalid_context() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let before = Live::now();
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let error = refused(RawMemory::allocate(&gpu, 4096, kind));
        assert_says(&error, &["CUDA_ERROR_INVALID_CONTEXT", "open_primary_context"]);
        assert_eq!(error.cuda_code(), Some(codes::INVALID_CONTEXT));
    }
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn in_a_context_of_another_device_allocating_is_refused() -> Result {
    if driver::device_count() < 2 {
        return skip("this needs two devices");
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let _context = Context::create(1);
    let error = refused(RawMemory::allocate(&gpu, 4096, MemoryKind::Device));
    assert!(matches!(error, Error::WrongDevice { current: 1, expected: 0 }), "{error}");
    Ok(())
}

#[test]
fn freeing_twice_does_nothing_the_second_time() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let mut memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    let mut other = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    free(&mut memory)?;
    let frees = [Calls::of("cuMemFree"), Calls::of("cuDestroyExternalMemory"), Calls::of("vkFreeMemory")];
    free(&mut memory)?;
    // No driver call even without a current context.
    no_context(|| free(&mut memory))?;
    for calls in frees {
        calls.assert(0, "the second free");
    }
    free(&mut other)?;
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn after_the_free_there_are_no_pointers_and_the_numbers_remain() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let mut memory = RawMemory::allocate(&gpu, 4097, MemoryKind::Mapped)?;
    free(&mut memory)?;
    assert_eq!((memory.device_ptr(), memory.host_ptr()), (0, None));
    assert_eq!((memory.len(), memory.kind(), memory.is_empty()), (4097, MemoryKind::Mapped, false));
    for error in [refused(memory.flush(0, 1)), refused(memory.invalidate(0, 1)), refused(memory.flush(0, 0))] {
        assert!(matches!(error, Error::Freed), "{error}");
        assert_says(&error, &["was freed"]);
    }
    // The other accessors still work.
    let _ = (memory.is_coherent(), memory.non_coherent_atom_size());
    assert!(format!("{memory:?}").contains("4097"));
    Ok(())
}

#[test]
fn a_drop_does_not_free() -> Result {
    if simcuda().is_none() && vklayer().is_none() {
        return skip("this needs a ledger: the simulated driver, or VKGDR_TEST_LAYERS=faults");
    }
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    {
        let _memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    }
    assert_eq!(Live::now(), before.plus_one(MemoryKind::Mapped));
    Ok(())
}

#[test]
fn memory_outlives_its_handle() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let mut memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    drop(gpu);
    poke(&memory, 7, b"still here")?;
    assert_eq!(device_read(memory.device_ptr() + 7, 10), b"still here");
    free(&mut memory)?;
    Ok(())
}

#[test]
fn a_primary_handle_allocates_and_frees_in_the_primary_context_whichever_is_current() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    let mut memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    assert_eq!(current(), null_mut());
    let pushes = Calls::of("cuCtxPushCurrent");
    free(&mut memory)?;
    pushes.assert(1, "the free needs the primary context");
    assert_eq!(current(), null_mut());

    let other = Context::create(0);
    let mut memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    assert_eq!(current(), other.raw());
    drop(other);
    // The memory did not belong to the destroyed context.
    poke(&memory, 0, b"primary")?;
    let other = Context::create(0);
    free(&mut memory)?;
    assert_eq!(current(), other.raw());
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn freeing_memory_of_a_primary_handle_may_be_the_end_of_the_handle() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let mut memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    drop(gpu);
    free(&mut memory)?;
    assert!(simcuda().is_none_or(|sim| sim.live_objects_of("primary") == 0));
    assert_eq!(current(), null_mut());
    Ok(())
}

#[test]
fn ranges_outside_the_memory_are_refused_and_named() -> Result {
    let size = 4097;
    for flags in [NONE, OpenFlags::FORCE_NON_COHERENT] {
        let (_context, gpu) = support::open(flags)?;
        for kind in supported(&gpu, &MemoryKind::ALL) {
            let mut memory = RawMemory::allocate(&gpu, size, kind)?;
            let calls = [Calls::of("vkFlushMappedMemoryRanges"), Calls::of("vkInvalidateMappedMemoryRanges")];
            for (offset, len) in ranges::offsets_outside(size) {
                for error in [refused(memory.flush(offset, len)), refused(memory.invalidate(offset, len))] {
                    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
                    assert_says(&error, &[&format!("{len} byte"), &format!(" at offset {offset} "), "has 4097 bytes"]);
                }
            }
            for calls in calls {
                calls.assert(0, "out of range");
            }
            memory.flush(size, 0)?;
            memory.invalidate(size, 0)?;
            free(&mut memory)?;
        }
    }
    Ok(())
}

#[test]
fn non_coherent_memory_is_flushed_at_every_range_around_the_atoms() -> Result {
    let (_context, gpu) = support::open(OpenFlags::FORCE_NON_COHERENT)?;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        let mut memory = RawMemory::allocate(&gpu, 4097, kind)?;
        for (offset, len) in ranges::around_atoms(4097, memory.non_coherent_atom_size()) {
            let flushes = Calls::of("vkFlushMappedMemoryRanges");
            let invalidates = Calls::of("vkInvalidateMappedMemoryRanges");
            memory.flush(offset, len)?;
            memory.invalidate(offset, len)?;
            flushes.assert(u64::from(len > 0), &format!("{len} bytes at {offset}"));
            invalidates.assert(u64::from(len > 0), &format!("{len} bytes at {offset}"));
        }
        free(&mut memory)?;
    }
    Ok(())
}

#[test]
fn after_a_reset_of_the_primary_context_freeing_leaves_its_old_handles_alone() -> Result {
    let Some(sim) = support::simcuda() else {
        return skip("a reset of the primary context affects every user of a real GPU");
    };
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let vulkan = || support::vklayer().map(|layer| layer.live_objects_of("memory"));
    let before = vulkan();
    let mut memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    // SAFETY: nothing uses the context at this time.
    let code = unsafe { cudarc::driver::sys::cuDevicePrimaryCtxReset_v2(0) };
    assert_eq!(code as i32, 0);
    let calls = || ["cuMemFree", "cuDestroyExternalMemory"].map(|function| sim.calls(Some(function)));
    let freed = calls();
    // SAFETY: nothing uses the memory.
    unsafe { memory.free() }?;
    assert_eq!(calls(), freed, "a driver call with handles of a destroyed context");
    assert_eq!(vulkan(), before, "Vulkan's side");
    Ok(())
}
