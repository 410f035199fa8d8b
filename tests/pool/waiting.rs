//! Free chunks keep no stream alive for long: the number of streams and events of a pool is bounded, and
//! [`Vkgdr::collect`] and [`Pool::trim`] release the streams.

use std::sync::Arc;

use support::blocking::waits;
use support::cuda::{PrimaryContext, hold};
use support::{Controls, Result, assert_says, refused, simcuda, skip};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

const LEN: usize = 4096;
const BLOCK: usize = 256 << 10;
/// The number of streams that a program makes, one for each request.
const REQUESTS: usize = 2000;
/// The largest number of streams that a pool may keep: 32, and what is in use.
const MOST_STREAMS: usize = 64;
/// The largest number of events: 1,024, and what is in use. Seldom reached, since each new event polls two earlier ones.
const MOST_EVENTS: usize = 1100;

fn open(block: usize) -> Result<(PrimaryContext, Arc<CudaContext>, Vkgdr, Pool)> {
    let (primary, gpu) = support::open(OpenFlags::empty())?;
    let options = PoolOptions::new(MemoryKind::Mapped).block_len(block).largest_chunk(64 << 10);
    let pool = Pool::new(&gpu, options)?;
    Ok((primary, CudaContext::new(0)?, gpu, pool))
}

/// A new stream, which uses memory of the pool. Returns the address of the memory.
fn request(context: &Arc<CudaContext>, pool: &Pool) -> Result<(Arc<CudaStream>, u64)> {
    let stream = context.new_stream()?;
    let mut chunk = pool.allocate_on(LEN, &stream)?;
    stream.memset_zeros(&mut chunk.view_mut::<u8>(&stream)?)?;
    Ok((stream, chunk.device_ptr()))
}

fn streams(simcuda: &Controls) -> usize {
    simcuda.live_objects_of("stream")
}

#[test]
fn a_stream_for_each_request_does_not_pile_up() -> Result {
    let Some(simcuda) = simcuda() else { return skip("only the simulated driver counts streams") };
    // One block has room for a chunk of every stream.
    let block = REQUESTS * LEN;
    let (_primary, context, _gpu, pool) = open(block.next_power_of_two())?;
    let (before, events) = (streams(simcuda), simcuda.live_objects_of("event"));
    for number in 0..REQUESTS {
        drop(request(&context, &pool)?);
        let alive = streams(simcuda) - before;
        assert!(alive <= MOST_STREAMS, "{alive} streams are alive after {} requests", number + 1);
        let alive = simcuda.live_objects_of("event") - events;
        assert!(alive <= MOST_EVENTS, "{alive} events are alive after {} requests", number + 1);
    }
    Ok(())
}

#[test]
fn collect_releases_the_streams_of_free_chunks() -> Result {
    let Some(simcuda) = simcuda() else { return skip("only the simulated driver counts streams") };
    let (_primary, context, gpu, pool) = open(BLOCK)?;
    let before = streams(simcuda);
    for _ in 0..10 {
        drop(request(&context, &pool)?);
    }
    gpu.collect();
    assert_eq!(streams(simcuda), before);
    Ok(())
}

#[test]
fn collect_releases_the_stream_of_a_chunk_that_was_lent_again_on_it() -> Result {
    let Some(simcuda) = simcuda() else { return skip("only the simulated driver counts streams") };
    let (_primary, context, gpu, pool) = open(BLOCK)?;
    let before = streams(simcuda);
    let (stream, address) = request(&context, &pool)?;
    let again = pool.allocate_on(LEN, &stream)?;
    assert_eq!(again.device_ptr(), address);
    drop((again, stream));
    gpu.collect();
    assert_eq!(streams(simcuda), before);
    Ok(())
}

#[test]
fn trim_releases_the_streams_of_free_chunks() -> Result {
    let Some(simcuda) = simcuda() else { return skip("only the simulated driver counts streams") };
    let (_primary, context, _gpu, pool) = open(BLOCK)?;
    let before = streams(simcuda);
    for keep in [usize::MAX, 0] {
        for _ in 0..10 {
            drop(request(&context, &pool)?);
        }
        context.synchronize()?;
        pool.trim(keep);
        assert_eq!(streams(simcuda), before, "trim({keep})");
    }
    Ok(())
}

#[test]
fn a_chunk_whose_stream_was_released_still_waits_for_its_work() -> Result {
    let Some(simcuda) = simcuda() else { return skip("only the simulated driver counts streams") };
    let (_primary, context, gpu, pool) = open(BLOCK)?;
    let before = streams(simcuda);
    let stream = context.new_stream()?;
    let chunk = pool.allocate_on(LEN, &stream)?;
    let address = chunk.device_ptr();
    let gate = hold(&stream);
    drop((chunk, stream));
    gpu.collect();
    pool.trim(usize::MAX);
    assert_eq!(streams(simcuda), before, "the stream is kept");
    let all: Vec<_> = (0..BLOCK / LEN).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    assert!(all.iter().all(|chunk| chunk.device_ptr() != address), "lent while its stream may use it");
    gate.open();
    context.synchronize()?;
    let more: Vec<_> = (0..BLOCK / LEN).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    assert!(more.iter().any(|chunk| chunk.device_ptr() == address), "lost");
    Ok(())
}

#[test]
fn a_stream_that_the_program_holds_keeps_its_chunks() -> Result {
    let (_primary, context, gpu, pool) = open(BLOCK)?;
    let (stream, address) = request(&context, &pool)?;
    for _ in 0..10 {
        drop(request(&context, &pool)?);
    }
    let gate = hold(&stream);
    gpu.collect();
    // The order of the stream's work keeps the holders apart.
    assert_eq!(pool.allocate_on(LEN, &stream)?.device_ptr(), address);
    gate.open();
    context.synchronize()?;
    Ok(())
}

/// Why the pool waits all the same.
const TWO_MEMORIES: &str = "what exceeds Vulkan's heap may fit CUDA's memory once that is free";

/// A length beyond the heap is refused before a driver is asked: to free others would not help.
#[test]
fn an_impossible_length_costs_no_free_chunk_and_no_wait() -> Result {
    let (_primary, context, gpu, pool) = open(BLOCK)?;
    if gpu.supports_existing()? {
        return skip(TWO_MEMORIES);
    }
    drop(pool.allocate(LEN)?);
    let used = pool.allocate(LEN)?;
    let _ = used.device_ptr();
    drop(used);
    let (managed, stream) = (pool.managed_bytes(), context.new_stream()?);
    let (waited, refusal) = waits(hold(&stream), "cuCtxSynchronize", || Ok(pool.allocate(1 << 60)))?;
    assert_says(&refused(refusal), &["requested 1 EiB"]);
    assert!(!waited, "waited for the context");
    assert_eq!(pool.managed_bytes(), managed);
    context.synchronize()?;
    Ok(())
}

/// The pool makes a smaller block instead.
#[test]
fn blocks_that_exceed_the_heap_cost_no_wait() -> Result {
    // The largest that a pool takes.
    const BLOCK: usize = 128 << 30;
    let (_primary, context, gpu, pool) = open(BLOCK)?;
    if gpu.supports_existing()? {
        return skip(TWO_MEMORIES);
    }
    if gpu.memory_info(MemoryKind::Mapped)?.total > BLOCK as u64 {
        return skip("the heap has room for the largest block of a pool");
    }
    let used = pool.allocate(LEN)?;
    let _ = used.device_ptr();
    drop(used);
    let stream = context.new_stream()?;
    let allocate = || Ok(pool.allocate(60 << 10)?);
    let (waited, larger) = waits(hold(&stream), "cuCtxSynchronize", allocate)?;
    assert!(!waited, "waited for the context");
    context.synchronize()?;
    drop(larger);
    Ok(())
}

/// The device never saw the memory: its end does not wait for work of others.
#[test]
fn dropping_a_pool_whose_memory_nobody_used_does_not_wait() -> Result {
    if support::simcuda().is_none() {
        return support::skip("NVIDIA's cuMemFree itself waits for the device");
    }
    let (_primary, context, _gpu, pool) = open(BLOCK)?;
    drop(pool.allocate(64)?);
    let stream = context.new_stream()?;
    let (waited, ()) = waits(hold(&stream), "cuCtxSynchronize", || {
        drop(pool);
        Ok(())
    })?;
    assert!(!waited, "waited for the context");
    context.synchronize()?;
    Ok(())
}
