//! Primary contexts that were reset: memory finds out without naming one to the driver.
//!
//! The simulated driver ends a test that names a destroyed context, or a stream or an event of one
//! (`SIMCUDA_STALE_CONTEXT=abort`), and gives its address to the next context.
#![expect(unsafe_code, reason = "binds raw streams, and frees by hand")]

use std::ptr::null_mut;
use std::thread;

use support::cuda::{Context, PrimaryContext, Stream, current, no_context, reset_primary};
use support::ledger::{Calls, Live};
use support::{Result, host_write, logs, refused, simcuda, skip};
use vkgdr::{CopyPolicy, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, RawMemory, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const SIZE: usize = 4097;
const ONLY_SIMULATED: &str = "only the simulated driver says what becomes of a destroyed context";

fn memory(gpu: &Vkgdr) -> vkgdr::Result<Memory> {
    Memory::allocate(gpu, SIZE, MemoryKind::Mapped)
}

/// Drops memory of a destroyed context, of which CUDA's side is gone; with no call for a context, and one line logged.
#[track_caller]
fn assert_orphan(memory: Memory) {
    let calls = ["cuCtxPushCurrent", "cuCtxSetCurrent", "cuMemFree", "cuDestroyExternalMemory"].map(Calls::of);
    logs::capture();
    drop(memory);
    for calls in calls {
        calls.assert(0, "the context is gone");
    }
    let lines = logs::captured();
    assert!(lines.len() == 1 && lines[0].contains("destroyed"), "{lines:?}");
}

#[test]
fn memory_freed_where_its_context_is_current_costs_no_question() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = memory(&gpu)?;
    let calls = ["cuPointerGetAttributes", "cuDevicePrimaryCtxGetState", "cuCtxPushCurrent", "cuCtxGetCurrent"];
    let calls = calls.map(Calls::of);
    memory.free()?;
    for calls in calls {
        calls.assert(0, "the context is current");
    }
    Ok(())
}

#[test]
fn memory_freed_elsewhere_while_others_free_theirs_is_not_taken_for_an_orphan() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let _context = Context::create(0);
    let before = Live::now();
    let kept = memory(&gpu)?;
    logs::capture();
    let batches: Vec<Vec<_>> = (0..4).map(|_| (0..50).map(|_| memory(&gpu)).collect()).collect::<vkgdr::Result<_>>()?;
    thread::scope(|scope| {
        for batch in batches {
            scope.spawn(|| batch.into_iter().for_each(drop));
        }
    });
    assert_eq!(logs::captured(), [""; 0]);
    no_context(|| kept.free())?;
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn the_end_of_a_primary_context_is_known_by_the_device() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    for made_again in [false, true] {
        let context = PrimaryContext::retain_and_push(0);
        let before = Live::now();
        let memory = memory(&gpu)?;
        reset_primary();
        let again = made_again.then(|| PrimaryContext::retain_and_push(0));
        thread::spawn(|| assert_orphan(memory)).join().map_err(|_| "the thread panicked")?;
        assert_eq!(Live::now(), before);
        drop((again, context));
    }
    Ok(())
}

#[test]
fn a_primary_context_that_lives_is_entered_without_attributes() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let plain = Vkgdr::open(0, NONE)?;
    let before = Live::now();
    let of_handle = memory(&gpu)?;
    let of_current = {
        let _primary = PrimaryContext::retain_and_push(0);
        memory(&plain)?
    };
    assert_eq!(current(), null_mut());
    logs::capture();
    of_current.free()?;
    of_handle.free()?;
    assert_eq!((Live::now(), logs::captured().len()), (before, 0));
    Ok(())
}

#[test]
fn a_handle_whose_primary_context_was_reset_says_so_and_frees_the_rest() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    let mut raw = RawMemory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
    let memory = memory(&gpu)?;
    reset_primary();
    assert_orphan(memory);
    // SAFETY: nothing uses the memory.
    unsafe { raw.free() }?;
    assert_eq!(Live::now(), before);
    for error in [refused(Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)), refused(gpu.prepare_copies())] {
        assert!(error.to_string().contains("CUDA_ERROR_CONTEXT_IS_DESTROYED"), "{error}");
    }
    Ok(())
}

#[test]
fn a_copy_engine_goes_with_its_context() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let _context = PrimaryContext::retain_and_push(0);
    let memory = memory(&gpu)?;
    memory.write_with(CopyPolicy::Dma, 0, &[1_u8; SIZE])?;
    // Only the engine's stream is left in the context.
    memory.free()?;
    reset_primary();
    gpu.collect();
    let _other = PrimaryContext::retain_and_push(0);
    let memory = self::memory(&gpu)?;
    memory.write_with(CopyPolicy::Dma, 0, &[2_u8; SIZE])?;
    host_write(&memory, 0, &[3; SIZE])?;
    memory.free()?;
    Ok(())
}

#[test]
fn a_bound_stream_that_went_with_its_context_is_not_touched() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let _context = PrimaryContext::retain_and_push(0);
    let memory = memory(&gpu)?;
    let stream = Stream::create();
    // SAFETY: the memory is dropped as an orphan, which leaves the stream alone.
    unsafe { memory.bind_raw_stream(stream.raw()) }?;
    let stream = std::mem::ManuallyDrop::new(stream);
    reset_primary();
    let calls = ["cuStreamSynchronize", "cuEventRecord", "cuEventCreate"].map(Calls::of);
    drop(memory);
    for calls in calls {
        calls.assert(0, "the stream is gone");
    }
    let _ = stream;
    Ok(())
}

#[test]
fn a_pools_bound_memory_is_freed_after_its_context_without_an_error() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let _context = PrimaryContext::retain_and_push(0);
    let pool = Pool::new(&gpu, PoolOptions::default())?;
    let memory = pool.allocate(SIZE)?;
    let _address = memory.device_ptr();
    let stream = Stream::create();
    // SAFETY: the memory is freed as an orphan, which leaves the stream alone.
    unsafe { memory.bind_raw_stream(stream.raw()) }?;
    let stream = std::mem::ManuallyDrop::new(stream);
    reset_primary();
    let calls = ["cuStreamSynchronize", "cuEventRecord", "cuEventCreate"].map(Calls::of);
    memory.free()?;
    for calls in calls {
        calls.assert(0, "the stream is gone");
    }
    assert_eq!((pool.used_chunks(), pool.free_chunks() > 0), (0, true));
    let _ = stream;
    Ok(())
}

#[test]
fn an_allocation_after_a_reset_does_not_speak_of_the_context_of_memory() -> Result {
    if simcuda().is_none() {
        return skip("a reset of the primary context affects every user of a real GPU");
    }
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    reset_primary();
    let text = refused(Memory::allocate(&gpu, 4096, MemoryKind::Mapped)).to_string();
    assert!(text.contains("CUDA_ERROR_CONTEXT_IS_DESTROYED"), "{text}");
    assert!(!text.contains("the memory's"), "there is no memory: {text}");
    assert!(text.contains("reset") || text.contains("destroyed"), "the remedy: {text}");
    Ok(())
}

#[test]
fn a_handle_of_the_new_context_allocates_where_the_old_one_is_still_current() -> Result {
    if simcuda().is_none() {
        return skip("a reset of the primary context affects every user of a real GPU");
    }
    let _current = PrimaryContext::retain_and_push(0);
    let old = Vkgdr::open_primary_context(0, NONE)?;
    reset_primary();
    assert!(old.context_is_destroyed());
    let new = Vkgdr::open_primary_context(0, NONE)?;
    assert!(!new.context_is_destroyed());
    Memory::allocate(&new, 4096, MemoryKind::Mapped)?.free()?;
    assert!(old.context_is_destroyed());
    Ok(())
}
