//! Pools: whichever call fails while a block is made, used or released, nothing stays behind and no chunk has two
//! users.
#![expect(unsafe_code, reason = "raw streams are bound")]

use support::codes;
use support::cuda::Stream;
use support::simcuda;
use vkgdr::cudarc::driver::CudaContext;
use vkgdr::{Memory, Pool, PoolOptions};

use crate::place::{Place, SomeMemory, is_of};
use crate::sweep::Sweep;
use crate::{LEN, NONE, Result};

const BLOCK: usize = 64 << 10;
/// The calls of entering and leaving a context, whose results may not be needed.
const VISIT: [&str; 5] = ["cuCtxPushCurrent", "cuCtxGetId", "cuCtxPopCurrent", "cuCtxGetCurrent", "cuCtxSetCurrent"];
/// The calls of events, and of the check of a stream.
const EVENTS: [&str; 6] =
    ["cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventDestroy", "cuStreamWaitEvent", "cuStreamGetCtx"];

fn pool(place: &Place) -> Result<Pool> {
    let options = PoolOptions::new(SomeMemory::of(&place.gpu).kind).block_len(BLOCK).largest_chunk(BLOCK);
    Ok(Pool::new(&place.gpu, options)?)
}

/// A sweep of what may make or release a block: out of memory is survived by a smaller one.
fn sweep<'a>(what: &str, place: &'a Place) -> Sweep<'a> {
    let SomeMemory { stages, release, .. } = SomeMemory::of(&place.gpu);
    let sweep = Sweep::of(format!("{what}, {}", place.name)).collecting(&place.gpu).incidental(&VISIT);
    sweep.incidental(stages).incidental(release).incidental(&["vkMapMemory", "vkCreateBuffer", "cuCtxSynchronize"])
}

/// A pool with one block, and `count` chunks of it with their device addresses requested.
fn with_chunks(place: &Place, count: usize) -> Result<(Pool, Vec<Memory>)> {
    let pool = pool(place)?;
    let chunks: Vec<_> = (0..count).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    chunks.iter().for_each(|chunk| assert_ne!(chunk.device_ptr(), 0));
    Ok((pool, chunks))
}

#[test]
fn a_pool_that_cannot_make_a_block_names_the_call_and_leaves_nothing() -> Result {
    let stream = CudaContext::new(0)?.new_stream()?;
    Place::each(NONE, |place| {
        let made = |what: &str| sweep(what, place).named(SomeMemory::of(&place.gpu).stages);
        for len in [LEN, 2 * BLOCK] {
            let allocate = |pool: Pool| Ok((pool.allocate(len)?, pool));
            made(&format!("Pool::allocate of {len} bytes")).run(|| pool(place), allocate, |_| Ok(()))?;
        }
        if place.is_plain() {
            return Ok(());
        }
        let allocate = |pool: Pool| Ok((pool.allocate_on(LEN, &stream)?, pool));
        made("Pool::allocate_on").run(|| pool(place), allocate, |_| Ok(()))
    })
}

#[test]
fn dropping_a_pool_survives_every_failure() -> Result {
    Place::each(NONE, |place| {
        let release = SomeMemory::of(&place.gpu).release;
        sweep("drop of a pool", place).survived(release).drop(|| with_chunks(place, 3))
    })
}

#[test]
fn freeing_a_chunk_and_allocating_another_survives_every_failure() -> Result {
    let place = Place::plain(NONE)?;
    let stream = Stream::create();
    // Where work is late, the chunks may be busy until it is settled, which then releases the block.
    let survived: &[_] = if is_of("late") { &[] } else { &["cuCtxSynchronize"] };
    let sweep = sweep("free of chunks and the next allocation", &place).named(&["cuEventCreate", "cuEventRecord"]);
    let sweep = sweep.survived(survived).incidental(&EVENTS).settling(|| {
        stream.synchronize();
        place.gpu.collect();
    });
    // Half of the chunks are unbound, the rest are bound to a stream.
    let prepare = || {
        let (pool, chunks) = with_chunks(&place, 12)?;
        for chunk in &chunks[..6] {
            support::bind(chunk, &stream)?;
        }
        Ok((pool, chunks))
    };
    let operate = |(pool, chunks): (Pool, Vec<Memory>)| {
        // All of them, also after an error.
        let results: Vec<_> = chunks.into_iter().map(Memory::free).collect();
        let freed: vkgdr::Result<()> = results.into_iter().collect();
        let again: vkgdr::Result<Vec<_>> = (0..12).map(|_| pool.allocate(LEN)).collect();
        // No chunk is lost after a failure: all of the block can be allocated again.
        pool.release_unused();
        freed?;
        drop(again?);
        pool.release_unused();
        Ok(pool)
    };
    let finish = |pool: Pool| {
        assert_eq!(pool.used_chunks(), 0);
        pool.release_unused();
        assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
        Ok(())
    };
    sweep.run(prepare, operate, finish)
}

#[test]
fn an_event_that_cannot_be_queried_is_replaced_by_a_wait_for_the_context() -> Result {
    let Some(simcuda) = simcuda() else {
        return support::skip("needs the simulated CUDA driver");
    };
    let calls = |function| simcuda.calls(Some(function));
    let place = Place::plain(NONE)?;
    let pool = pool(&place)?;
    let stream = Stream::create();
    // SAFETY: the stream outlives the memory.
    let chunk = unsafe { pool.allocate_on_raw(LEN, stream.raw()) }?;
    assert_ne!(chunk.device_ptr(), 0);
    let gate = stream.hold();
    // The question after the event was recorded.
    simcuda.fail("cuEventQuery", 1, codes::CAPTURED_EVENT);
    chunk.free()?;
    let asked = calls("cuEventQuery");
    pool.trim(usize::MAX);
    assert_eq!(calls("cuEventQuery"), asked, "asked again");
    gate.open();
    let waits = calls("cuCtxSynchronize");
    pool.release_unused();
    assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
    assert!(calls("cuCtxSynchronize") > waits, "the context was not waited for");
    Ok(())
}

#[test]
fn a_pool_that_cannot_be_made_names_the_call() -> Result {
    Place::each(NONE, |place| {
        let kind = SomeMemory::of(&place.gpu).kind;
        let named: &[_] = if place.is_plain() { place.entering() } else { &[] };
        let sweep = Sweep::of(format!("Pool::new, {}", place.name)).named(named);
        let sweep = sweep.incidental(&["cuInit", "cuDeviceGetUuid"]);
        sweep.call(|| Pool::new(&place.unused()?, PoolOptions::new(kind)))
    })
}

#[test]
fn an_allocation_on_a_stream_names_the_call_that_failed_and_leaves_nothing() -> Result {
    let place = Place::plain(NONE)?;
    let stream = Stream::create();
    // Without free chunks, and with chunks that were bound to the stream.
    for earlier in [0, 3] {
        let sweep = sweep(&format!("Pool::allocate_on_raw after {earlier} chunks"), &place).named(&["cuStreamGetCtx"]);
        let sweep = sweep.incidental(&EVENTS).settling(|| {
            stream.synchronize();
            place.gpu.collect();
        });
        let prepare = || {
            let (pool, chunks) = with_chunks(&place, earlier)?;
            for chunk in &chunks {
                support::bind(chunk, &stream)?;
            }
            Ok(pool)
        };
        // SAFETY: the stream outlives the memory.
        let operate = |pool: Pool| Ok((unsafe { pool.allocate_on_raw(LEN, stream.raw()) }?, pool));
        sweep.run(prepare, operate, |_| Ok(()))?;
    }
    Ok(())
}

/// Operations of a pool on its free chunks.
type Way = fn(&Pool);

#[test]
fn trimming_freeing_and_no_longer_holding_survive_every_failure() -> Result {
    Place::each(NONE, |place| {
        let trim: Way = |pool| _ = pool.trim(0);
        let ways =
            [("trim", trim), ("release_unused", Pool::release_unused), ("disable_caching", Pool::disable_caching)];
        for (name, way) in ways {
            let sweep = sweep(&format!("Pool::{name}"), place).incidental(&EVENTS);
            let prepare = || {
                let (pool, chunks) = with_chunks(place, 3)?;
                drop(chunks);
                // Free and known to be idle: trim waits for nothing.
                if name == "trim" {
                    drop(pool.allocate(64)?);
                }
                Ok(pool)
            };
            let operate = |pool: Pool| {
                way(&pool);
                Ok(pool)
            };
            sweep.run(prepare, operate, |pool| {
                pool.release_unused();
                assert_eq!((pool.used_chunks(), pool.free_chunks()), (0, 0));
                Ok(())
            })?;
        }
        Ok(())
    })
}
