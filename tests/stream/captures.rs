//! Streams: releases while a stream is captured. What CUDA forbids then is done later or again, and nothing is leaked.
#![expect(unsafe_code, reason = "captures streams of the driver")]

use std::ptr;

use support::blocking::was_open_on_return;
use support::cuda::{PrimaryContext, Stream};
use support::state::State;
use support::{Result, logs, simcuda, skip};
use vkgdr::cudarc::driver::sys::{self, CUresult, CUstream, CUstreamCaptureMode};
use vkgdr::{Memory, MemoryKind, Pool, PoolOptions, Vkgdr};

use crate::{MAPPED, NONE};

const SIZE: usize = 4096;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const THREAD_LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

/// Device 0, for which nothing waits that another test of this process has left.
fn open() -> Result<(PrimaryContext, Vkgdr)> {
    let (context, gpu) = support::open(NONE)?;
    gpu.finish_deferred_frees();
    Ok((context, gpu))
}

/// Runs `work` while a new stream is captured. Returns whether the capture was still valid afterwards.
fn captured(mode: CUstreamCaptureMode, work: impl FnOnce()) -> bool {
    captured_on(Stream::create().raw(), mode, work)
}

/// [`captured`] on a stream.
fn captured_on(stream: CUstream, mode: CUstreamCaptureMode, work: impl FnOnce()) -> bool {
    // SAFETY: the stream is live.
    let begun = unsafe { sys::cuStreamBeginCapture_v2(stream, mode) };
    assert_eq!(begun, CUresult::CUDA_SUCCESS);
    work();
    let mut graph = ptr::null_mut();
    // SAFETY: the stream is live, and `graph` a local.
    let ended = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
    if !graph.is_null() {
        // SAFETY: the graph was just made.
        assert_eq!(unsafe { sys::cuGraphDestroy(graph) }, CUresult::CUDA_SUCCESS);
    }
    ended == CUresult::CUDA_SUCCESS
}

/// Leaves one deferred free that has no event: memory whose drop could not wait for its context.
fn defer(gpu: &Vkgdr) -> Result {
    let memory = Memory::allocate(gpu, SIZE, MAPPED)?;
    assert_ne!(memory.device_ptr(), 0);
    let valid = captured(RELAXED, || drop(memory));
    assert!(!valid, "CUDA forbids to wait for a context with a capture");
    assert_eq!(gpu.deferred_frees(), 1);
    Ok(())
}

#[test]
fn what_a_capture_forbids_to_free_is_freed_all_the_same() -> Result {
    let (_context, gpu) = open()?;
    let trim = || -> Result {
        let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
        drop(pool.allocate(SIZE)?);
        captured(THREAD_LOCAL, || assert_ne!(pool.trim(0), 0));
        Ok(())
    };
    let free_idle = |kind| -> Result {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        // SAFETY: the device never had it.
        captured(THREAD_LOCAL, || drop(unsafe { memory.free_unsynchronized() }));
        Ok(())
    };
    let releases: [(&str, &dyn Fn() -> Result); 3] = [
        ("a pool's block", &trim),
        ("idle mapped memory", &|| free_idle(MAPPED)),
        ("idle device memory", &|| free_idle(MemoryKind::Device)),
    ];
    for (what, release) in releases {
        // The drivers create lasting objects in the first round.
        release()?;
        let before = State::take();
        release()?;
        State::assert_unchanged(&before, what);
        assert_eq!(gpu.deferred_frees(), 0, "{what}");
    }
    Ok(())
}

#[test]
fn a_free_in_a_capture_survives_an_error_of_earlier_work() -> Result {
    let Some(sim) = simcuda() else { return skip("fault injection needs the simulated driver") };
    let (_context, gpu) = open()?;
    let release = |fault: bool| -> Result {
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        captured(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL, || {
            if fault {
                sim.fail("cuThreadExchangeStreamCaptureMode", 1, support::codes::UNKNOWN);
            }
            // SAFETY: the device never had it.
            drop(unsafe { memory.free_unsynchronized() });
        });
        sim.clear_faults();
        Ok(())
    };
    release(false)?;
    let before = State::take();
    release(true)?;
    State::assert_unchanged(&before, "the mapping");
    Ok(())
}

#[test]
fn a_wait_that_a_capture_forbids_is_tried_once() -> Result {
    let (_context, gpu) = open()?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    assert_ne!(memory.device_ptr(), 0);
    logs::capture();
    captured(RELAXED, || {
        drop(memory);
        gpu.finish_deferred_frees();
    });
    let tries = logs::captured().into_iter().filter(|line| line.contains("a deferred free: cuCtxSynchronize")).count();
    assert_eq!(tries, 1);
    gpu.finish_deferred_frees();
    assert_eq!(gpu.deferred_frees(), 0);
    Ok(())
}

#[test]
fn what_waits_for_a_context_makes_no_other_call_wait() -> Result {
    if simcuda().is_none() {
        return skip("NVIDIA's cuMemFree may itself wait for the device");
    }
    let (_context, gpu) = open()?;
    let (idle, busy) = (Stream::create(), Stream::create());
    let (bound, unbound) = (Memory::allocate(&gpu, SIZE, MAPPED)?, Memory::allocate(&gpu, SIZE, MAPPED)?);
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
    assert!(bound.device_ptr() != 0 && unbound.device_ptr() != 0);
    support::bind(&bound, &idle)?;
    defer(&gpu)?;
    // Work that no call may wait for: the gate would time out, and `open` fail.
    let gate = busy.hold();
    gate.wait_until_reached();
    drop(bound);
    // An idle stream may pass an event later as well; the next free releases the memory then.
    idle.synchronize();
    drop(pool.allocate(SIZE)?);
    let another = Memory::allocate(&gpu, SIZE, MAPPED)?;
    // SAFETY: the device never had it.
    unsafe { another.free_unsynchronized() }?;
    assert_eq!(gpu.deferred_frees(), 1);
    gate.open();
    // A drop that waits for the same context anyway.
    drop(unbound);
    assert_eq!(gpu.deferred_frees(), 0);

    defer(&gpu)?;
    assert_eq!((gpu.collect(), gpu.deferred_frees()), (1, 0));
    Ok(())
}

#[test]
fn collecting_what_waits_for_a_context_waits_for_its_work() -> Result {
    let (_context, gpu) = open()?;
    let busy = Stream::create();
    defer(&gpu)?;
    let gate = busy.hold();
    let (was_open, collected) = was_open_on_return(gate, "cuCtxSynchronize", || Ok(gpu.collect()))?;
    assert!(was_open, "memory was freed while the context had work");
    assert_eq!((collected, gpu.deferred_frees()), (1, 0));
    Ok(())
}

#[test]
fn what_waits_for_a_context_ends_no_later_capture() -> Result {
    let (_context, gpu) = open()?;
    defer(&gpu)?;
    let mut memory = None;
    let valid = captured(RELAXED, || memory = Some(Memory::allocate(&gpu, SIZE, MAPPED)));
    assert!(valid, "an allocation waited for the context");
    drop(memory.transpose()?);
    assert_eq!(gpu.deferred_frees(), 0);
    Ok(())
}

#[test]
fn a_pool_allocates_on_a_stream_that_is_captured() -> Result {
    let (_context, gpu) = open()?;
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
    let stream = Stream::create();
    let memory = pool.allocate(SIZE)?;
    assert_ne!(memory.device_ptr(), 0);
    support::bind(&memory, &stream)?;
    let gate = stream.hold();
    drop(memory);
    let mut allocated = None;
    let valid = captured_on(stream.raw(), RELAXED, || {
        // SAFETY: the stream is declared earlier.
        allocated = Some(unsafe { pool.allocate_on_raw(SIZE, stream.raw()) });
    });
    assert!(valid, "the capture was ended");
    gate.open();
    allocated.transpose()?;
    Ok(())
}

#[test]
fn a_pool_allocates_on_the_legacy_stream_beside_a_capture_that_forbids_to_ask_for_it() -> Result {
    let (_context, gpu) = open()?;
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED))?;
    // One that waits for the legacy stream, unlike those of the tests' support.
    let (mut blocking, mut allocated) = (ptr::null_mut(), None);
    // SAFETY: a live local.
    assert_eq!(unsafe { sys::cuStreamCreate(&raw mut blocking, 0) }, CUresult::CUDA_SUCCESS);
    // SAFETY: the legacy stream lives as long as the context, here and below.
    let earlier = unsafe { pool.allocate_on_raw(SIZE, ptr::null_mut()) }?;
    assert_ne!(earlier.device_ptr(), 0);
    // SAFETY: as above.
    let gate = unsafe { Stream::hold_raw(ptr::null_mut()) };
    // First without freed memory that waits for the stream's work, and then beside such memory.
    let mut earlier = [None, Some(earlier)];
    for freed in &mut earlier {
        drop(freed.take());
        let valid = captured_on(blocking, RELAXED, || {
            // SAFETY: as above.
            allocated = Some(unsafe { pool.allocate_on_raw(SIZE, ptr::null_mut()) });
        });
        assert!(valid, "the capture was ended");
        allocated.take().transpose()?;
    }
    gate.open();
    // SAFETY: made above, and not used any more.
    assert_eq!(unsafe { sys::cuStreamDestroy_v2(blocking) }, CUresult::CUDA_SUCCESS);
    Ok(())
}

#[test]
fn a_pool_that_would_wait_for_the_context_makes_a_block_for_a_captured_stream() -> Result {
    const CHUNK: usize = 64 << 10;
    let (_context, gpu) = open()?;
    let pool = Pool::new(&gpu, PoolOptions::new(MAPPED).block_len(4 * CHUNK).largest_chunk(CHUNK))?;
    let stream = Stream::create();
    let unbound: Vec<_> = (0..4).map(|_| pool.allocate(CHUNK)).collect::<vkgdr::Result<_>>()?;
    assert!(unbound.iter().all(|memory| memory.device_ptr() != 0));
    drop(unbound);
    let mut allocated = None;
    let valid = captured_on(stream.raw(), RELAXED, || {
        // SAFETY: the stream is declared earlier.
        allocated = Some(unsafe { pool.allocate_on_raw(CHUNK, stream.raw()) });
    });
    assert!(valid, "the capture was ended");
    let _allocated = allocated.transpose()?;
    assert_eq!((pool.managed_bytes(), pool.free_chunks()), (8 * CHUNK, 4));
    // Three of the new block, and one of those that waited for the context.
    let held: Vec<_> = (0..4).map(|_| pool.allocate(CHUNK)).collect::<vkgdr::Result<_>>()?;
    assert_eq!((pool.managed_bytes(), held.len()), (8 * CHUNK, 4));
    Ok(())
}
