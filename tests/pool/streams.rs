//! When a pool reuses memory: at once, on the same stream, after an event, or after the whole context. Shown by gates
//! and the drivers' call counts, never by time.
#![expect(unsafe_code, reason = "binds streams that the tests keep alive")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use support::blocking::was_open_on_return;
use support::codes;
use support::cuda::{self, Context, Gate, Stream};
use support::ledger::{Calls, Live};
use support::{Result, Shortage, refused};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{DropPolicy, Error, MapMode, MemoryKind, OpenFlags, Pool, PoolOptions, StreamRef, Vkgdr};

use crate::{BLOCK, LARGEST, LEN, addresses, assert_empties, exposed, host_address, make_block, many, open};

/// A cudarc stream that waits, through an event of another stream, for the returned gate.
fn held_stream(other: &Stream) -> Result<(Arc<CudaStream>, Gate)> {
    let stream = CudaContext::new(0)?.new_stream()?;
    let gate = other.hold();
    // SAFETY: both streams outlive the references.
    let event = unsafe { StreamRef::in_current_context(other.raw()) }?.record()?;
    // SAFETY: as above.
    unsafe { StreamRef::in_current_context(stream.cu_stream()) }?.wait(&event)?;
    Ok((stream, gate))
}

#[test]
fn a_block_is_freed_once_a_stream_has_finished_with_it_by_collect_or_trim() -> Result {
    for keeps_nothing in [true, false] {
        let (_context, gpu, pool) = open()?;
        let stream = Stream::create();
        let (chunk, _) = exposed(&pool)?;
        if keeps_nothing {
            pool.disable_caching();
        }
        let gate = stream.hold();
        support::bind(&chunk, &stream)?;
        drop(chunk);
        assert_eq!((pool.managed_bytes(), pool.trim(0)), (BLOCK, 0), "the stream still uses the chunk");
        gate.open();
        stream.synchronize();
        let live = gpu.live_allocations();
        let freed = if keeps_nothing { gpu.collect() * BLOCK } else { pool.trim(0) };
        assert_eq!((freed, pool.managed_bytes(), gpu.live_allocations()), (BLOCK, 0, live - 1));
    }
    Ok(())
}

/// Another thread drops the last clone of the pool meanwhile.
#[test]
fn memory_that_goes_with_its_pool_is_not_freed_under_a_stream() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let stream = Stream::create();
    for round in 0..300 {
        let pool = Pool::new(&gpu, PoolOptions::default().block_len(64 << 10).largest_chunk(64 << 10))?;
        let (chunk, _) = exposed(&pool)?;
        support::bind(&chunk, &stream)?;
        let gate = stream.hold();
        let before = gpu.live_allocations();
        let start = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.store(true, Ordering::Release);
                drop(chunk);
            });
            while !start.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            // Over the rounds, before, during and after the other drop.
            (0..round % 40 * 50).for_each(|_| std::hint::spin_loop());
            drop(pool);
        });
        let after = gpu.live_allocations();
        gate.open();
        stream.synchronize();
        assert_eq!(after, before, "freed under the stream");
        gpu.collect();
    }
    Ok(())
}

#[test]
fn the_end_of_a_pool_releases_what_earlier_pools_left_behind_streams() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let stream = Stream::create();
    let before = gpu.live_allocations();
    for _ in 0..3 {
        let pool = Pool::new(&gpu, PoolOptions::default())?;
        let chunks = [exposed(&pool)?.0, exposed(&pool)?.0];
        chunks.iter().try_for_each(|chunk| support::bind(chunk, &stream))?;
        let gate = stream.hold();
        drop(chunks);
        drop(pool);
        assert_eq!((gpu.deferred_frees(), gpu.live_allocations()), (1, before + 1), "those of this round");
        gate.open();
        stream.synchronize();
    }
    assert_eq!((gpu.collect(), gpu.live_allocations()), (1, before));
    Ok(())
}

#[test]
fn a_pool_reuses_what_an_idle_device_does_not_use_whatever_the_timeout() -> Result {
    let (_context, gpu) =
        (cuda::PrimaryContext::retain_and_push(0), Vkgdr::open_primary_context(0, OpenFlags::empty())?);
    gpu.set_shortage_timeout(Duration::ZERO);
    let pool = Pool::new(&gpu, PoolOptions::default().block_len(64 << 10).largest_chunk(64 << 10))?;
    // A busy machine may answer too late now and then.
    const ROUNDS: usize = 1000;
    for _ in 0..ROUNDS {
        drop(exposed(&pool)?);
    }
    assert!(pool.managed_bytes() <= ROUNDS * LEN / 4, "{} bytes are managed", pool.managed_bytes());
    Ok(())
}

#[test]
fn memory_that_the_device_never_had_or_has_finished_with_is_reused_at_once_whatever_its_binding() -> Result {
    let (_context, _gpu, pool) = open()?;
    let stream = Stream::create();
    make_block(&pool)?;
    let gate = stream.hold();
    for (way, bound) in [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)] {
        let chunk = pool.allocate(LEN)?;
        let address = host_address(&chunk);
        // A lookup gives the device no address.
        assert!(support::memory_of(address).is_some());
        if bound {
            support::bind(&chunk, &stream)?;
        }
        // Its device address was never requested, or its release does not wait.
        if way > 0 {
            assert_ne!(chunk.device_ptr(), 0);
        }
        if way == 1 {
            // SAFETY: the device does not use it.
            unsafe { chunk.set_drop_policy(DropPolicy::Immediate) };
        }
        if way == 2 {
            // SAFETY: the device does not use it.
            unsafe { chunk.free_unsynchronized() }?;
        } else {
            drop(chunk);
        }
        assert_eq!(host_address(&pool.allocate(LEN)?), address, "way {way}, bound: {bound}");
    }
    gate.open();
    Ok(())
}

/// CUDA copies to and from page-locked memory by its host address, while the CPU goes on.
#[test]
fn host_memory_whose_host_address_was_asked_for_waits_for_the_device() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let options = PoolOptions::new(MemoryKind::Host).block_len(BLOCK).largest_chunk(LARGEST);
    let pool = Pool::new(&gpu, options)?;
    let stream = Stream::create();
    make_block(&pool)?;
    let gate = stream.hold();
    let mut chunk = pool.allocate(LEN)?;
    chunk.write(0, &[1_u8; LEN])?;
    let address = format!("{chunk:?}");
    drop(chunk);
    chunk = pool.allocate(LEN)?;
    assert_eq!(format!("{chunk:?}"), address, "nobody had an address");
    for way in 0..3 {
        let address = match way {
            0 => host_address(&chunk),
            // SAFETY: nothing else uses the memory.
            1 => unsafe { chunk.as_slice::<u8>() }?.as_ptr().addr() as u64,
            _ => chunk.map(MapMode::Read, ..)?.host_ptr().map_or(0, |first| first.addr().get() as u64),
        };
        drop(chunk);
        assert!(!addresses(&pool, 10)?.contains(&address), "way {way}: reused while a copy may use it");
        chunk = pool.allocate(LEN)?;
    }
    gate.open();
    Ok(())
}

#[test]
fn chunks_behind_a_stream_that_goes_on_hold_up_no_others() -> Result {
    let (_context, _gpu, pool) = open()?;
    let (own, stranger) = (Stream::create(), Stream::create());
    let chunks = many(&pool, BLOCK / LEN, LEN)?;
    chunks.iter().try_for_each(|chunk| support::bind(chunk, &own))?;
    support::record_use(&chunks[0], stranger.raw())?;
    let gate = stranger.hold();
    let before = own.hold();
    chunks.iter().for_each(|chunk| assert_ne!(chunk.device_ptr(), 0));
    drop(chunks);
    before.open();
    own.synchronize();
    let again = many(&pool, BLOCK / LEN - 1, LEN)?;
    assert_eq!(pool.managed_bytes(), BLOCK, "a chunk whose events have passed was not found");
    drop(again);
    gate.open();
    Ok(())
}

#[test]
fn chunks_of_streams_that_free_once_do_not_pile_up() -> Result {
    let (_context, _gpu, pool) = open()?;
    let free_once = || {
        let (stream, (chunk, _)) = (Stream::create(), exposed(&pool)?);
        support::bind(&chunk, &stream)?;
        let gate = stream.hold();
        drop(chunk);
        gate.open();
        stream.synchronize();
        Ok::<_, Box<dyn std::error::Error>>(stream)
    };
    let _streams = (0..30).map(|_| free_once()).collect::<Result<Vec<_>>>()?;
    assert!(pool.free_chunks() <= 3, "{} chunks were used in turn", pool.free_chunks());
    Ok(())
}

#[test]
fn the_promise_of_one_holder_covers_no_other() -> Result {
    let (_context, _gpu, pool) = open()?;
    let stream = Stream::create();
    make_block(&pool)?;
    let gate = stream.hold();
    for _ in 0..2 {
        let chunk = pool.allocate(LEN)?;
        let address = host_address(&chunk);
        let region = chunk.slice(..1)?;
        // SAFETY: the device does not use it by this reference.
        unsafe { chunk.free_unsynchronized() }?;
        assert_eq!(pool.used_chunks(), 1);
        assert!(!addresses(&pool, 10)?.contains(&address), "the region keeps it");
        assert_ne!(region.device_ptr(), 0);
        region.free()?;
        assert_eq!(pool.used_chunks(), 0);
        assert!(!addresses(&pool, 10)?.contains(&address), "reused while the stream may use it");
    }
    gate.open();
    Ok(())
}

#[test]
fn one_wait_for_the_context_serves_many_chunks() -> Result {
    const PAIRS: u64 = 1000;
    let (_context, _gpu, pool) = open()?;
    let (waits, events) = (Calls::of("cuCtxSynchronize"), Calls::of("cuEventRecord"));
    for _ in 0..PAIRS {
        drop(exposed(&pool)?);
    }
    assert_eq!(pool.managed_bytes(), BLOCK, "freed memory is reused");
    if let Some(count) = waits.count() {
        let quarter = (BLOCK / 4 / LEN) as u64;
        assert!((1..=PAIRS / quarter).contains(&count), "{count} waits for {PAIRS} chunks");
    }
    events.assert(0, "no stream, no event");
    // Small chunks count with the size of their class.
    let kept = pool.allocate(1)?;
    for _ in 0..20 * PAIRS {
        let _address = pool.allocate(1)?.device_ptr();
    }
    assert!(pool.managed_bytes() <= 3 * BLOCK, "{} bytes managed", pool.managed_bytes());
    drop(kept);
    Ok(())
}

#[test]
fn an_allocation_waits_for_the_context_before_it_reuses_exposed_memory() -> Result {
    let (_context, _gpu, pool) = open()?;
    let stream = Stream::create();
    let all: Vec<_> = (0..BLOCK / LEN).map(|_| exposed(&pool)).collect::<vkgdr::Result<_>>()?;
    let gate = stream.hold();
    drop(all);
    let (was_open, chunk) = was_open_on_return(gate, "cuCtxSynchronize", || Ok(pool.allocate(LEN)?))?;
    assert!(was_open, "memory was reused while the device may still use it");
    assert_eq!(pool.managed_bytes(), BLOCK);
    drop(chunk);
    Ok(())
}

#[test]
fn memory_of_a_stream_is_reused_by_that_stream_at_once_and_by_no_other() -> Result {
    let (_context, _gpu, pool) = open()?;
    let other = Stream::create();
    make_block(&pool)?;
    let (stream, gate) = held_stream(&other)?;
    let chunk = pool.allocate_on(LEN, &stream)?;
    assert_eq!(chunk.bound_stream(), Some(stream.cu_stream()));
    let address = chunk.device_ptr();
    drop(chunk);
    let calls = ["cuEventSynchronize", "cuCtxSynchronize", "cuStreamSynchronize"].map(Calls::of);
    let plain: Vec<_> = (0..8).map(|_| exposed(&pool)).collect::<vkgdr::Result<_>>()?;
    assert!(plain.iter().all(|(_, other)| *other != address));
    assert_ne!(pool.allocate_on(LEN, &stream.context().new_stream()?)?.device_ptr(), address);
    for _ in 0..10 {
        let again = pool.allocate_on(LEN - 1, &stream)?;
        assert_eq!((again.device_ptr(), again.len()), (address, LEN - 1));
    }
    // Even without a request for its address: the stream's earlier work on it has not finished.
    drop(pool.allocate_on(LEN, &stream)?);
    assert!(!addresses(&pool, 8)?.contains(&host_address(&pool.allocate_on(LEN, &stream)?)));
    for call in calls {
        call.assert(0, "no wait of the CPU");
    }
    gate.open();
    Ok(())
}

#[test]
fn memory_of_a_stream_is_reused_elsewhere_after_its_event() -> Result {
    let (_context, _gpu, pool) = open()?;
    let other = Stream::create();
    make_block(&pool)?;
    let (stream, gate) = held_stream(&other)?;
    let count = BLOCK / LEN;
    let bound: Vec<_> = (0..count).map(|_| pool.allocate_on(LEN, &stream)).collect::<vkgdr::Result<_>>()?;
    bound.iter().for_each(|chunk| assert_ne!(chunk.device_ptr(), 0));
    let block: Vec<_> = bound.iter().map(host_address).collect();
    drop(bound);
    assert_eq!(pool.managed_bytes(), BLOCK);
    let meanwhile = addresses(&pool, count)?;
    assert!(meanwhile.iter().all(|address| !block.contains(address)), "reused before the event");
    assert_eq!(pool.managed_bytes(), 2 * BLOCK);
    gate.open();
    stream.synchronize()?;
    let all = addresses(&pool, 2 * count)?;
    assert!(block.iter().all(|address| all.contains(address)), "not reused after the event");
    assert_eq!(pool.managed_bytes(), 2 * BLOCK);
    Ok(())
}

#[test]
fn memory_of_a_raw_stream_waits_for_an_event_of_its_own() -> Result {
    let (_context, _gpu, pool) = open()?;
    let stream = Stream::create();
    let allocate = || {
        // SAFETY: the stream outlives the memory.
        unsafe { pool.allocate_on_raw(LEN, stream.raw()) }
    };
    make_block(&pool)?;
    let gate = stream.hold();
    let chunk = allocate()?;
    let (address, host) = (chunk.device_ptr(), host_address(&chunk));
    let recorded = Calls::of("cuEventRecord");
    chunk.free()?;
    recorded.assert(1, "recorded by the free");
    assert_ne!(exposed(&pool)?.1, address);
    let waits = Calls::of("cuStreamWaitEvent");
    let again = allocate()?;
    assert_eq!(again.device_ptr(), address, "reused on the same stream at once");
    waits.assert(1, "the stream handle may belong to a new stream by now");
    drop(again);
    gate.open();
    stream.synchronize();
    // Except the exposed chunk, which waits for the context.
    assert!(addresses(&pool, BLOCK / LEN - 1)?.contains(&host), "reused by any stream after the event");
    assert_eq!(pool.managed_bytes(), BLOCK);
    assert_empties(&pool);
    Ok(())
}

#[test]
fn both_handles_of_the_legacy_default_stream_are_one_stream_and_those_of_threads_none() -> Result {
    let (_context, _gpu, pool) = open()?;
    // SAFETY: default streams live as long as their context.
    let allocate = |handle: usize| unsafe { pool.allocate_on_raw(LEN, std::ptr::without_provenance_mut(handle)) };
    assert!(matches!(allocate(2), Err(Error::PerThreadStream)));
    assert_eq!(pool.managed_bytes(), 0, "a block for nothing");
    make_block(&pool)?;
    let legacy = CudaContext::new(0)?.default_stream();
    let gate = cuda::hold(&legacy);
    let chunk = allocate(1)?;
    let address = chunk.device_ptr();
    drop(chunk);
    assert_eq!(allocate(0)?.device_ptr(), address);
    gate.open();
    Ok(())
}

#[test]
fn memory_used_by_a_recorded_stream_is_reused_after_that() -> Result {
    let (_context, _gpu, pool) = open()?;
    let (stream, stranger) = (Stream::create(), Stream::create());
    let (chunk, _) = exposed(&pool)?;
    support::bind(&chunk, &stream)?;
    support::record_use(&chunk, stranger.raw())?;
    let host = host_address(&chunk);
    let gate = stranger.hold();
    gate.wait_until_reached();
    drop(chunk);
    stream.synchronize();
    assert!(!addresses(&pool, 8)?.contains(&host));
    gate.open();
    stranger.synchronize();
    pool.trim(usize::MAX);
    assert!(addresses(&pool, 8)?.contains(&host));
    Ok(())
}

#[test]
fn a_dedicated_allocation_and_the_end_of_a_pool_wait_like_other_memory() -> Result {
    let (_context, _gpu, pool) = open()?;
    let stream = Stream::create();
    let before = Live::now();
    let (untouched, used) = (pool.allocate(BLOCK)?, pool.allocate(BLOCK)?);
    assert_ne!(used.device_ptr(), 0);
    let waits = Calls::of("cuCtxSynchronize");
    untouched.free()?;
    waits.assert(0, "the device cannot have used it");
    let gate = stream.hold();
    let (was_open, ()) = was_open_on_return(gate, "cuCtxSynchronize", || Ok(used.free()?))?;
    assert!(was_open, "freed while the device may have used it");
    assert_eq!((Live::now(), pool.managed_bytes()), (before, 0));
    // And so does the end of a pool, for the memory that is free in its blocks.
    drop(exposed(&pool)?);
    let (was_open, ()) = was_open_on_return(stream.hold(), "cuCtxSynchronize", move || {
        drop(pool);
        Ok(())
    })?;
    assert!(was_open, "the blocks were freed while the device may have used them");
    Ok(())
}

#[test]
fn the_stream_of_another_context_is_refused() -> Result {
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let _context = Context::create(0);
    let pool = Pool::new(&gpu, PoolOptions::default())?;
    let stream = CudaContext::new(0)?.new_stream()?;
    for _ in 0..2 {
        assert!(matches!(refused(pool.allocate_on(LEN, &stream)), Error::ForeignStream));
    }
    assert_eq!((pool.used_chunks(), pool.active_bytes()), (0, 0));
    Ok(())
}

#[test]
fn a_pool_without_memory_frees_its_free_chunks_and_tries_once_more() -> Result {
    let (_context, gpu, pool) = open()?;
    let stream = Stream::create();
    let before = Live::now();
    let shortage = |count| Shortage::of(&gpu, count, codes::vulkan::OUT_OF_DEVICE_MEMORY);
    let all: Vec<_> = (0..BLOCK / LEN).map(|_| exposed(&pool)).collect::<vkgdr::Result<_>>()?;
    let gate = stream.hold();
    // Too few bytes for the pool to wait for the context by itself.
    let mut all = all.into_iter().map(|(chunk, _)| chunk);
    all.by_ref().take(3).for_each(drop);
    let kept: Vec<_> = all.collect();
    let Some(first) = shortage(1)? else { return Ok(()) };
    let (was_open, chunk) = was_open_on_return(gate, "cuCtxSynchronize", || Ok(pool.allocate(LEN)?))?;
    drop(first);
    assert!(was_open, "the exposed memory was not waited for");
    assert_eq!((Live::now(), pool.managed_bytes()), (before.plus_one(MemoryKind::Mapped), BLOCK));
    // Nothing is left to free: the second attempt is a smaller block.
    let [another, third] = [pool.allocate(LEN)?, pool.allocate(LEN)?];
    let second = shortage(1)?;
    let small = pool.allocate(LEN)?;
    drop(second);
    assert_eq!(pool.managed_bytes(), BLOCK + (64 << 10));
    let extra = many(&pool, (64 << 10) / LEN - 1, LEN)?;
    let last = shortage(2)?;
    let error = refused(pool.allocate(LEN)).to_string();
    drop(last);
    assert!(
        error.contains("vkAllocateMemory failed (VK_ERROR_OUT_OF_DEVICE_MEMORY): requested 64 KiB of mapped"),
        "{error}"
    );
    drop((kept, chunk, another, third, small, extra));
    pool.release_unused();
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_block_that_another_contexts_stream_used_is_released_with_the_unused_ones() -> Result {
    let (_context, _gpu, pool) = open()?;
    let own = Stream::create();
    // SAFETY: the stream lives until the memory is released.
    let memory = unsafe { pool.allocate_on_raw(LEN, own.raw()) }?;
    let other = Context::create(0);
    let stream = Stream::create();
    // SAFETY: as above, and so does its context, the current one.
    memory.record_use(unsafe { StreamRef::in_current_context(stream.raw()) }?)?;
    let gate = stream.hold();
    drop(memory);
    gate.open();
    stream.synchronize();
    pool.release_unused();
    assert_eq!(pool.managed_bytes(), 0);
    drop(stream);
    other.destroy();
    Ok(())
}

#[test]
fn another_context_whose_stream_used_memory_may_end_once_that_was_dropped() -> Result {
    let (_context, _gpu, pool) = open()?;
    let (memory, _) = exposed(&pool)?;
    let other = Context::create(0);
    let stream = Stream::create();
    // SAFETY: the stream and its context, the current one, live until the memory was dropped.
    memory.record_use(unsafe { StreamRef::in_current_context(stream.raw()) }?)?;
    drop(memory);
    drop(stream);
    other.destroy();
    // Waits for what it was left with, and names no context that is gone.
    drop(pool);
    Ok(())
}
