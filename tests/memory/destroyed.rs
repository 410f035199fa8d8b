//! Contexts that were destroyed: memory finds out without naming one to the driver.
//!
//! The simulated driver ends a test that names a destroyed context, or a stream or an event of one
//! (`SIMCUDA_STALE_CONTEXT=abort`), and gives its address to the next context.
#![expect(unsafe_code, reason = "resets the primary context")]

use std::ptr::null_mut;
use std::thread;

use support::child;
use support::cuda::{Context, PrimaryContext, Stream, current, no_context};
use support::ledger::{Calls, Live};
use support::{Result, assert_says, host_write, logs, refused, simcuda, skip};
use vkgdr::cudarc::driver::sys;
use vkgdr::{CopyPolicy, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, RawMemory, StreamRef, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const SIZE: usize = 4097;
const ONLY_SIMULATED: &str = "only the simulated driver says what becomes of a destroyed context";

fn memory(gpu: &Vkgdr) -> vkgdr::Result<Memory> {
    Memory::allocate(gpu, SIZE, MemoryKind::Mapped)
}

fn reset_primary() {
    // SAFETY: nothing uses the context at this time.
    let code = unsafe { sys::cuDevicePrimaryCtxReset_v2(0) };
    assert_eq!(code as i32, 0);
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

/// Runs this test again, in a process in which the driver knows no address of imported memory. Does nothing there.
fn again_without_attributes(test: &str) -> Result {
    if child::role().is_some() {
        child::say("done");
        return Ok(());
    }
    let mut command = child::command(test, "without attributes")?;
    command.env("SIMCUDA_IMPORT_ATTRIBUTES", "none");
    child::run(command).map(drop)
}

#[test]
fn the_end_of_a_context_is_known_by_its_memory_on_any_thread() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let context = Context::create(0);
    let before = Live::now();
    let (here, there) = (memory(&gpu)?, memory(&gpu)?);
    context.destroy();
    thread::spawn(move || assert_orphan(there)).join().map_err(|_| "the thread panicked")?;
    assert_orphan(here);
    assert_eq!(Live::now(), before);
    Ok(())
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
fn a_new_context_at_the_same_address_shows_that_the_old_one_is_gone() -> Result {
    const TEST: &str = "destroyed::a_new_context_at_the_same_address_shows_that_the_old_one_is_gone";
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let old = Context::create(0);
    let address = old.raw();
    let before = Live::now();
    let (first, second) = (memory(&gpu)?, memory(&gpu)?);
    old.destroy();
    let new = Context::create(0);
    assert_eq!(new.raw(), address, "the simulated driver gives addresses out again");
    assert_orphan(first);
    // Once seen, it is known where the new one is not current.
    no_context(|| assert_orphan(second));
    assert_eq!(Live::now(), before);
    again_without_attributes(TEST)
}

#[test]
fn a_context_that_is_destroyed_while_it_is_current_is_known_to_be_gone() -> Result {
    const TEST: &str = "destroyed::a_context_that_is_destroyed_while_it_is_current_is_known_to_be_gone";
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let context = Context::create(0);
    let address = context.raw();
    let before = Live::now();
    let memory = memory(&gpu)?;
    thread::spawn(|| context.destroy()).join().map_err(|_| "the thread panicked")?;
    assert_eq!(current(), address, "it stays on the stacks of other threads");
    assert_orphan(memory);
    assert_eq!(Live::now(), before);
    again_without_attributes(TEST)
}

#[test]
fn the_end_of_a_primary_context_is_known_by_the_device() -> Result {
    const TEST: &str = "destroyed::the_end_of_a_primary_context_is_known_by_the_device";
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
    again_without_attributes(TEST)
}

#[test]
fn a_primary_context_that_lives_is_entered_without_attributes() -> Result {
    const TEST: &str = "destroyed::a_primary_context_that_lives_is_entered_without_attributes";
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
    again_without_attributes(TEST)
}

#[test]
fn a_context_of_which_nothing_is_known_counts_as_alive() -> Result {
    const TEST: &str = "destroyed::a_context_of_which_nothing_is_known_counts_as_alive";
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let _context = Context::create(0);
    let before = Live::now();
    let memory = memory(&gpu)?;
    logs::capture();
    thread::scope(|scope| scope.spawn(|| memory.free()).join()).map_err(|_| "the thread panicked")??;
    assert_eq!((Live::now(), logs::captured().len()), (before, 0));
    again_without_attributes(TEST)
}

#[test]
fn the_end_of_a_context_without_memory_is_known_to_its_pools_and_events() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let of_pool = Context::create(0);
    let pool = Pool::new(&gpu, PoolOptions::default())?;
    of_pool.destroy();
    assert_says(&refused(no_context(|| pool.allocate(SIZE))), &["CUDA_ERROR_CONTEXT_IS_DESTROYED"]);

    let of_event = Context::create(0);
    // SAFETY: the default stream lives as long as its context, whose end is the subject.
    let stream = unsafe { StreamRef::in_current_context(null_mut()) }?;
    let event = stream.record()?;
    of_event.destroy();
    assert_says(&refused(no_context(|| event.is_complete())), &["CUDA_ERROR_CONTEXT_IS_DESTROYED"]);
    no_context(|| drop(event));
    Ok(())
}

/// Undefined on a GPU: the best that can be done with a driver that tells, as CUDA's does sometimes.
#[test]
fn a_driver_that_refuses_a_destroyed_context_is_believed() -> Result {
    const TEST: &str = "destroyed::a_driver_that_refuses_a_destroyed_context_is_believed";
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    if child::role().is_none() {
        let mut command = child::command(TEST, "told by an error")?;
        command.env("SIMCUDA_IMPORT_ATTRIBUTES", "none").env("SIMCUDA_STALE_CONTEXT", "error");
        return child::run(command).map(drop);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let context = Context::create(0);
    let before = Live::now();
    let memory = memory(&gpu)?;
    context.destroy();
    logs::capture();
    drop(memory);
    let lines = logs::captured();
    assert!(lines.len() == 1 && lines[0].contains("destroyed"), "{lines:?}");
    assert_eq!(Live::now(), before);
    child::say("done");
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
    let context = Context::create(0);
    let memory = memory(&gpu)?;
    memory.write_with(CopyPolicy::Dma, 0, &[1_u8; SIZE])?;
    // The engine's pages are the only memory of the context.
    memory.free()?;
    context.destroy();
    gpu.collect();
    let other = Context::create(0);
    let memory = self::memory(&gpu)?;
    memory.write_with(CopyPolicy::Dma, 0, &[2_u8; SIZE])?;
    host_write(&memory, 0, &[3; SIZE])?;
    memory.free()?;
    other.destroy();
    Ok(())
}

#[test]
fn a_bound_stream_that_went_with_its_context_is_not_touched() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    let context = Context::create(0);
    let memory = memory(&gpu)?;
    let stream = Stream::create();
    // SAFETY: the memory is dropped as an orphan, which leaves the stream alone.
    unsafe { memory.bind_raw_stream(stream.raw()) }?;
    let stream = std::mem::ManuallyDrop::new(stream);
    context.destroy();
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
    let context = Context::create(0);
    let pool = Pool::new(&gpu, PoolOptions::default())?;
    let memory = pool.allocate(SIZE)?;
    let _address = memory.device_ptr();
    let stream = Stream::create();
    // SAFETY: the memory is freed as an orphan, which leaves the stream alone.
    unsafe { memory.bind_raw_stream(stream.raw()) }?;
    let stream = std::mem::ManuallyDrop::new(stream);
    context.destroy();
    let calls = ["cuStreamSynchronize", "cuEventRecord", "cuEventCreate"].map(Calls::of);
    no_context(|| memory.free())?;
    for calls in calls {
        calls.assert(0, "the stream is gone");
    }
    assert_eq!((pool.used_chunks(), pool.free_chunks() > 0), (0, true));
    let _ = stream;
    Ok(())
}
