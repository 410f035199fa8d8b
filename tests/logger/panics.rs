//! A logger that panics: no chunk of a pool is lost, none is lent twice, and no memory is released too early.
#![expect(unsafe_code, reason = "raw streams are bound")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use support::cuda::{PrimaryContext, Stream, reset_primary};
use support::ledger::{Calls, Live};
use support::{Result, codes, simcuda, skip};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::{lines, log_with};

const LEN: usize = 4096;
const BLOCK: usize = 64 << 10;
const COUNT: usize = BLOCK / LEN;

fn open() -> Result<(PrimaryContext, Vkgdr, Pool)> {
    let (context, gpu) = support::open(OpenFlags::empty())?;
    let options = PoolOptions::new(MemoryKind::Mapped).block_len(BLOCK).largest_chunk(LEN);
    let pool = Pool::new(&gpu, options)?;
    Ok((context, gpu, pool))
}

/// Does something that logs, with a logger that panics. The panic ends in the library.
#[track_caller]
fn with_a_panic(work: impl FnOnce()) {
    let logging = log_with(|| resume_unwind(Box::new("in the logger")));
    let panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
    drop(logging);
    crate::LOGGING.set(false);
    assert!(lines() > 0, "the logger was not asked");
    assert!(!panicked, "the logger's panic came out");
}

/// Nothing is in use, and everything can be given back.
#[track_caller]
fn assert_nothing_is_lost(pool: &Pool) {
    assert_eq!((pool.used_chunks(), pool.active_bytes()), (0, 0), "in use");
    pool.release_unused();
    assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0), "lost");
}

/// All chunks of a block, whose addresses the device has had.
fn whole_block(pool: &Pool) -> vkgdr::Result<Vec<Memory>> {
    let all: Vec<_> = (0..COUNT).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    all.iter().for_each(|memory| assert_ne!(memory.device_ptr(), 0));
    Ok(all)
}

/// All chunks of a block, bound to a stream that the pool keeps.
fn on_a_stream(pool: &Pool) -> Result<(Arc<CudaStream>, Vec<Memory>)> {
    let stream = CudaContext::new(0)?.new_stream()?;
    let all: Vec<_> = (0..COUNT).map(|_| pool.allocate_on(LEN, &stream)).collect::<vkgdr::Result<_>>()?;
    all.iter().for_each(|memory| assert_ne!(memory.device_ptr(), 0));
    Ok((stream, all))
}

#[test]
fn a_chunk_whose_event_cannot_be_asked_is_not_lost() -> Result {
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let (_context, _gpu, pool) = open()?;
    let stream = Stream::create();
    for (function, code) in [("cuEventQuery", codes::CAPTURED_EVENT), ("cuEventDestroy", codes::INVALID_HANDLE)] {
        // SAFETY: the stream outlives the memory.
        let memory = unsafe { pool.allocate_on_raw(LEN, stream.raw()) }?;
        assert_ne!(memory.device_ptr(), 0);
        simcuda.fail(function, 1, code);
        with_a_panic(|| {
            drop(memory);
            // Records the event, which the stream may not have passed yet, and asks for it.
            pool.trim(0);
            stream.synchronize();
            pool.trim(0);
        });
        simcuda.clear_faults();
        assert_nothing_is_lost(&pool);
    }
    Ok(())
}

#[test]
fn chunks_whose_streams_cannot_record_an_event_are_not_lost() -> Result {
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let (_context, _gpu, pool) = open()?;
    let (_stream, all) = on_a_stream(&pool)?;
    simcuda.fail("cuEventRecord", 1, codes::OUT_OF_MEMORY);
    with_a_panic(|| drop(all));
    simcuda.clear_faults();
    assert_eq!(pool.free_chunks(), COUNT);
    assert_nothing_is_lost(&pool);
    Ok(())
}

#[test]
fn chunks_that_could_not_be_waited_for_are_not_lost() -> Result {
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let (_context, _gpu, pool) = open()?;
    drop(whole_block(&pool)?);
    simcuda.fail("cuCtxSynchronize", 1, codes::OUT_OF_MEMORY);
    with_a_panic(|| pool.release_unused());
    simcuda.clear_faults();
    assert_eq!(pool.free_chunks(), COUNT);
    assert_nothing_is_lost(&pool);
    Ok(())
}

#[test]
fn a_pool_that_goes_gives_everything_up_although_a_release_is_logged() -> Result {
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let (_context, gpu, pool) = open()?;
    let before = (gpu.live_allocations(), Live::now());
    // One block is idle; the device may still use the chunks of the other.
    let idle: Vec<_> = (0..COUNT).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    let used = whole_block(&pool)?;
    drop((idle, used));
    assert_eq!(pool.managed_bytes(), 2 * BLOCK);
    simcuda.fail("cuMemFree", 1, codes::INVALID_HANDLE);
    with_a_panic(|| drop(pool));
    simcuda.clear_faults();
    assert_eq!(gpu.live_allocations(), before.0, "a block has stayed");
    Ok(())
}

#[test]
fn a_deferred_free_that_cannot_be_asked_for_stays() -> Result {
    let Some(simcuda) = simcuda() else { return skip("this needs the simulated CUDA driver") };
    let (_context, gpu, _pool) = open()?;
    let before = gpu.live_allocations();
    let stream = Stream::create();
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    assert_ne!(memory.device_ptr(), 0);
    support::bind(&memory, &stream)?;
    let gate = stream.hold();
    drop(memory);
    assert_eq!(gpu.live_allocations(), before + 1);
    simcuda.fail("cuEventQuery", 1, codes::CAPTURED_EVENT);
    with_a_panic(|| {
        gpu.collect();
    });
    simcuda.clear_faults();
    assert_eq!(gpu.live_allocations(), before + 1, "released while the stream may have used it");
    gate.open();
    stream.synchronize();
    gpu.collect();
    assert_eq!(gpu.live_allocations(), before);
    Ok(())
}

#[test]
fn an_event_that_went_with_its_context_is_not_destroyed_again() -> Result {
    if simcuda().is_none() {
        return skip("this needs the simulated CUDA driver");
    }
    let _context = PrimaryContext::retain_and_push(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let before = gpu.live_allocations();
    let stream = Stream::create();
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    // SAFETY: the stream outlives the memory, but for the deferred free, which has an event.
    unsafe { memory.bind_raw_stream(stream.raw()) }?;
    assert_ne!(memory.device_ptr(), 0);
    let gate = stream.hold();
    drop(memory);
    assert_eq!(gpu.live_allocations(), before + 1, "not deferred");
    gate.open();
    stream.synchronize();
    drop(stream);
    reset_primary();
    let destroyed = Calls::of("cuEventDestroy");
    with_a_panic(|| {
        gpu.collect();
    });
    destroyed.assert(0, "of an event that is gone");
    assert_eq!(gpu.live_allocations(), before);
    Ok(())
}
