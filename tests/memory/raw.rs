//! `RawMemory`, freed by hand: allocation, addresses, bytes seen by both sides, free.
#![expect(unsafe_code, reason = "frees memory by hand and uses its pointers")]

use std::ptr::null_mut;

use support::cuda::{Context, current, no_context, reset_primary};
use support::ledger::{Calls, Live};
use support::{Result, assert_says, refused, simcuda, skip, vklayer};
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
    // In a context of its own: the leaked memory keeps its handle, which would retain the primary one.
    let (_context, gpu) = (Context::create(0), Vkgdr::open(0, NONE)?);
    let before = Live::now();
    {
        let _memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    }
    assert_eq!(Live::now(), before.plus_one(MemoryKind::Mapped));
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
fn after_a_reset_of_the_primary_context_freeing_leaves_its_old_handles_alone() -> Result {
    if simcuda().is_none() {
        return skip("a reset of the primary context affects every user of a real GPU");
    }
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    let mut memory = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    reset_primary();
    let frees = ["cuMemFree", "cuDestroyExternalMemory"].map(Calls::of);
    free(&mut memory)?;
    for calls in frees {
        calls.assert(0, "a driver call with handles of a destroyed context");
    }
    assert_eq!(Live::now(), before, "Vulkan's side");
    Ok(())
}
