//! Primary contexts that were reset: memory finds out without naming one to the driver.
//!
//! The simulated driver ends a test that names a destroyed context, or a stream or an event of one
//! (`SIMCUDA_STALE_CONTEXT=abort`), and gives its address to the next context.

use std::mem::ManuallyDrop;
use std::thread;

use support::cuda::{PrimaryContext, Stream, reset_primary};
use support::ledger::{Calls, Live};
use support::{Result, bind, free, logs, refused, simcuda, skip};
use vkgdr::{Memory, Pool, PoolOptions, RawMemory, Vkgdr};

use crate::{MAPPED, NONE, SIZE};

const ONLY_SIMULATED: &str = "only the simulated driver says what becomes of a destroyed context";

fn memory(gpu: &Vkgdr) -> vkgdr::Result<Memory> {
    Memory::allocate(gpu, SIZE, MAPPED)
}

/// Runs `work`, which must not call these functions.
#[track_caller]
fn without_calls<const N: usize>(functions: [&'static str; N], work: impl FnOnce()) {
    let calls = functions.map(Calls::of);
    work();
    for calls in calls {
        calls.assert(0, "the context is gone");
    }
}

/// Drops memory of a destroyed context, of which CUDA's side is gone; with no call for a context, and one line logged.
#[track_caller]
fn assert_orphan(memory: Memory) {
    logs::capture();
    without_calls(["cuCtxPushCurrent", "cuCtxSetCurrent", "cuMemFree", "cuDestroyExternalMemory"], || drop(memory));
    let lines = logs::captured();
    assert!(lines.len() == 1 && lines[0].contains("destroyed"), "{lines:?}");
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
fn a_handle_whose_primary_context_was_reset_says_so_and_frees_the_rest() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    let (mut raw, memory) = (RawMemory::allocate(&gpu, SIZE, MAPPED)?, memory(&gpu)?);
    gpu.prepare_copies()?;
    reset_primary();
    assert_orphan(memory);
    without_calls(["cuMemFree", "cuDestroyExternalMemory"], || assert!(free(&mut raw).is_ok()));
    assert_eq!(Live::now(), before);
    for error in [refused(self::memory(&gpu)), refused(gpu.prepare_copies())] {
        let text = error.to_string();
        assert!(text.contains("CUDA_ERROR_CONTEXT_IS_DESTROYED"), "{text}");
        assert!(text.contains("reset") || text.contains("destroyed"), "the remedy: {text}");
        assert!(!text.contains("the memory's"), "there is no memory: {text}");
    }
    Ok(())
}

#[test]
fn a_bound_stream_that_went_with_its_context_is_not_touched() -> Result {
    if simcuda().is_none() {
        return skip(ONLY_SIMULATED);
    }
    let gpu = Vkgdr::open(0, NONE)?;
    for pooled in [false, true] {
        let _context = PrimaryContext::retain_and_push(0);
        let pool = Pool::new(&gpu, PoolOptions::default())?;
        let memory = if pooled { pool.allocate(SIZE)? } else { memory(&gpu)? };
        let (_address, stream) = (memory.device_ptr(), ManuallyDrop::new(Stream::create()));
        bind(&memory, &stream)?;
        reset_primary();
        without_calls(["cuStreamSynchronize", "cuEventRecord", "cuEventCreate"], || assert!(memory.free().is_ok()));
        assert_eq!((pool.used_chunks(), pool.free_chunks() > 0), (0, pooled));
    }
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
    memory(&new)?.free()?;
    assert!(old.context_is_destroyed());
    Ok(())
}
