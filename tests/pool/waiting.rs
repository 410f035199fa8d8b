//! Free chunks keep no stream alive and few events, and a pool does not wait for more than it must.

use std::sync::Arc;

use support::blocking::waits;
use support::cuda::{PrimaryContext, hold};
use support::{Result, assert_says, refused, simcuda, skip};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::{BLOCK, LARGEST, LEN, exposed, many};

/// The number of streams that a program makes, one for each request.
const REQUESTS: usize = 2000;
/// The largest number of events that a pool keeps here: each new one polls two earlier ones.
const MOST: usize = 64;
const ONLY_COUNTED: &str = "only the simulated driver counts streams";
/// Why the pool waits all the same.
const TWO_MEMORIES: &str = "what exceeds Vulkan's heap may fit CUDA's memory once that is free";

fn open(block: usize) -> Result<(PrimaryContext, Arc<CudaContext>, Vkgdr, Pool)> {
    let (primary, gpu) = support::open(OpenFlags::empty())?;
    let options = PoolOptions::new(MemoryKind::Mapped).block_len(block).largest_chunk(LARGEST);
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

#[test]
fn a_stream_for_each_request_does_not_pile_up() -> Result {
    let Some(simcuda) = simcuda() else { return skip(ONLY_COUNTED) };
    // One block has room for a chunk of every stream.
    let block = REQUESTS * LEN;
    let (_primary, context, _gpu, pool) = open(block.next_power_of_two())?;
    let before = ["stream", "event"].map(|noun| simcuda.live_objects_of(noun));
    for number in 1..=REQUESTS {
        drop(request(&context, &pool)?);
        let streams = simcuda.live_objects_of("stream") - before[0];
        assert_eq!(streams, 0, "after {number} requests");
        let events = simcuda.live_objects_of("event") - before[1];
        assert!(events <= MOST, "{events} events are alive after {number} requests");
    }
    Ok(())
}

#[test]
fn a_free_takes_back_two_chunks_that_waited_for_its_stream_and_asks_for_its_own_event_once() -> Result {
    let Some(simcuda) = simcuda() else { return skip(ONLY_COUNTED) };
    let (_primary, context, _gpu, pool) = open(BLOCK)?;
    let stream = context.new_stream()?;
    let before = simcuda.live_objects_of("event");
    let free_while_held = |count: usize| -> Result<u64> {
        let memories: Vec<_> = (0..count).map(|_| exposed(&pool)).collect::<vkgdr::Result<_>>()?;
        memories.iter().try_for_each(|(memory, _)| memory.bind_stream(&stream))?;
        let gate = hold(&stream);
        let asked = simcuda.calls(Some("cuEventQuery"));
        drop(memories);
        let asked = simcuda.calls(Some("cuEventQuery")) - asked;
        gate.open();
        stream.synchronize()?;
        Ok(asked)
    };
    free_while_held(20)?;
    for left in (10..20).rev() {
        assert_eq!(free_while_held(1)?, 3);
        assert_eq!(simcuda.live_objects_of("event") - before, left);
    }
    Ok(())
}

#[test]
fn a_chunk_whose_stream_was_released_still_waits_for_its_work() -> Result {
    let Some(simcuda) = simcuda() else { return skip(ONLY_COUNTED) };
    let (_primary, context, gpu, pool) = open(BLOCK)?;
    let before = simcuda.live_objects_of("stream");
    let stream = context.new_stream()?;
    let chunk = pool.allocate_on(LEN, &stream)?;
    let address = chunk.device_ptr();
    let gate = hold(&stream);
    drop((chunk, stream));
    gpu.collect();
    pool.trim(usize::MAX);
    assert_eq!(simcuda.live_objects_of("stream"), before, "the stream is kept");
    let all = many(&pool, BLOCK / LEN, LEN)?;
    assert!(all.iter().all(|chunk| chunk.device_ptr() != address), "lent while its stream may use it");
    gate.open();
    context.synchronize()?;
    let more = many(&pool, BLOCK / LEN, LEN)?;
    assert!(more.iter().any(|chunk| chunk.device_ptr() == address), "lost");
    Ok(())
}

/// Does `work` while a stream is blocked, and fails if that waits for the context.
#[track_caller]
fn without_a_wait<T>(context: &Arc<CudaContext>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let stream = context.new_stream()?;
    let (waited, result) = waits(hold(&stream), "cuCtxSynchronize", work)?;
    assert!(!waited, "waited for the context");
    context.synchronize()?;
    Ok(result)
}

/// A length beyond the heap is refused before a driver is asked: to free others would not help.
#[test]
fn an_impossible_length_costs_no_free_chunk_and_no_wait() -> Result {
    let (_primary, context, gpu, pool) = open(BLOCK)?;
    if gpu.supports_existing()? {
        return skip(TWO_MEMORIES);
    }
    drop(pool.allocate(LEN)?);
    let _ = pool.allocate(LEN)?.device_ptr();
    let managed = pool.managed_bytes();
    let refusal = without_a_wait(&context, || Ok(pool.allocate(1 << 60)))?;
    assert_says(&refused(refusal), &["requested 1 EiB"]);
    assert_eq!(pool.managed_bytes(), managed);
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
    let _ = pool.allocate(LEN)?.device_ptr();
    drop(without_a_wait(&context, || Ok(pool.allocate(60 << 10)?))?);
    Ok(())
}

/// The device never saw the memory: its end does not wait for work of others.
#[test]
fn dropping_a_pool_whose_memory_nobody_used_does_not_wait() -> Result {
    if simcuda().is_none() {
        return skip("NVIDIA's cuMemFree itself waits for the device");
    }
    let (_primary, context, _gpu, pool) = open(BLOCK)?;
    drop(pool.allocate(64)?);
    without_a_wait(&context, move || {
        drop(pool);
        Ok(())
    })
}
