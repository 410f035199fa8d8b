//! Pools: whichever call fails while a block is made, used or released, nothing stays behind and no chunk has two
//! users.
#![expect(unsafe_code, reason = "raw streams are bound")]

use support::codes;
use support::cuda::Stream;
use support::simcuda;
use vkgdr::cudarc::driver::CudaContext;
use vkgdr::{Memory, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::Result;
use crate::place::{Place, SomeMemory, is_of};
use crate::sweep::{Sweep, dropped};

const LEN: usize = 4097;
const BLOCK: usize = 64 << 10;
/// The calls of entering and leaving a context, whose results may not be needed.
const VISIT: [&str; 5] = ["cuCtxPushCurrent", "cuCtxGetId", "cuCtxPopCurrent", "cuCtxGetCurrent", "cuCtxSetCurrent"];

fn pool(place: &Place) -> Result<Pool> {
    let options = PoolOptions::new(SomeMemory::of(&place.gpu).kind).block_len(BLOCK).largest_chunk(BLOCK);
    Ok(Pool::new(&place.gpu, options)?)
}

/// A pool with one block, and `count` chunks of it with their device addresses requested.
fn with_chunks(place: &Place, count: usize) -> Result<(Pool, Vec<Memory>)> {
    let pool = pool(place)?;
    let chunks: Vec<_> = (0..count).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    chunks.iter().for_each(|chunk| assert_ne!(chunk.device_ptr(), 0));
    Ok((pool, chunks))
}

fn all(lists: &[&[&'static str]]) -> Vec<&'static str> {
    lists.concat()
}

#[test]
fn a_pool_that_cannot_make_a_block_names_the_call_and_leaves_nothing() -> Result {
    Place::each(OpenFlags::empty(), |place| {
        let some = SomeMemory::of(&place.gpu);
        for len in [LEN, 2 * BLOCK] {
            let what = format!("Pool::allocate of {len} bytes, {}", place.name);
            // Out of memory is survived by a smaller block. Buffers are made for dedicated allocations.
            let incidental = all(&[some.stages, &VISIT, some.release, &["vkMapMemory", "vkCreateBuffer"]]);
            let sweep = Sweep {
                what: &what,
                named: some.stages,
                incidental: &incidental,
                collects: Some(&place.gpu),
                ..Sweep::default()
            };
            let allocate = |pool: Pool| Ok((pool.allocate(len)?, pool));
            sweep.run(|| pool(place), allocate, dropped)?;
        }
        Ok(())
    })
}

#[test]
fn dropping_a_pool_survives_every_failure() -> Result {
    Place::each(OpenFlags::empty(), |place| {
        let some = SomeMemory::of(&place.gpu);
        let what = format!("drop of a pool, {}", place.name);
        let incidental = all(&[&VISIT, &["cuCtxSynchronize"]]);
        let sweep = Sweep {
            what: &what,
            survived: some.release,
            incidental: &incidental,
            collects: Some(&place.gpu),
            ..Sweep::default()
        };
        sweep.run(|| with_chunks(place, 3), dropped, |()| Ok(()))
    })
}

#[test]
fn freeing_a_chunk_and_allocating_another_survives_every_failure() -> Result {
    let place = Place::plain(OpenFlags::empty())?;
    let some = SomeMemory::of(&place.gpu);
    let stream = Stream::create();
    let settle = || {
        stream.synchronize();
        place.gpu.collect();
    };
    let incidental = all(&[
        &VISIT,
        some.stages,
        some.release,
        &["vkMapMemory", "cuCtxSynchronize", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventDestroy"],
        &["cuStreamGetCtx"],
    ]);
    // Where work is late, the chunks may be busy until `settle`, which then releases the block.
    let survived: &[_] = if is_of("late") { &[] } else { &["cuCtxSynchronize"] };
    let sweep = Sweep {
        what: "free of chunks, free_held and the next allocation",
        named: &["cuEventCreate", "cuEventRecord"],
        survived,
        incidental: &incidental,
        settle: Some(&settle),
        ..Sweep::default()
    };
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
    let place = Place::plain(OpenFlags::empty())?;
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
    let plain = Place::plain(OpenFlags::empty())?;
    let kind = SomeMemory::of(&plain.gpu).kind;
    // A fresh handle, which queries the current context; a used one caches the context of its last use.
    let make = |()| {
        let gpu = Vkgdr::open(0, OpenFlags::empty())?;
        Pool::new(&gpu, PoolOptions::new(kind))
    };
    let named = &["cuCtxGetCurrent", "cuCtxGetId", "cuCtxGetDevice"];
    let incidental = &["cuInit", "cuDeviceGetUuid"];
    let sweep = Sweep { what: "Pool::new", named, incidental, ..Sweep::default() };
    sweep.run(|| Ok(()), make, |_| Ok(()))?;
    drop(plain);
    let primary = Place::primary(OpenFlags::empty())?;
    let sweep = Sweep { what: "Pool::new, primary context", ..Sweep::default() };
    sweep.run(|| Ok(()), |()| Pool::new(&primary.gpu, PoolOptions::new(kind)), |_| Ok(()))
}

#[test]
fn an_allocation_on_a_stream_names_the_call_that_failed_and_leaves_nothing() -> Result {
    let place = Place::plain(OpenFlags::empty())?;
    let some = SomeMemory::of(&place.gpu);
    let stream = Stream::create();
    let settle = || {
        stream.synchronize();
        place.gpu.collect();
    };
    let stages = all(&[some.stages, &VISIT, some.release, &["vkMapMemory", "vkCreateBuffer", "cuCtxSynchronize"]]);
    let events = ["cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventDestroy", "cuStreamWaitEvent"];
    // Without free chunks, and with chunks that were bound to the stream.
    for earlier in [0, 3] {
        let incidental = all(&[&stages, &events, &["cuStreamGetCtx"]]);
        let what = format!("Pool::allocate_on_raw after {earlier} chunks");
        let sweep = Sweep {
            what: &what,
            named: &["cuStreamGetCtx"],
            incidental: &incidental,
            settle: Some(&settle),
            ..Sweep::default()
        };
        let prepare = || {
            let (pool, chunks) = with_chunks(&place, earlier)?;
            for chunk in &chunks {
                support::bind(chunk, &stream)?;
            }
            Ok(pool)
        };
        // SAFETY: the stream outlives the memory.
        let operate = |pool: Pool| Ok((unsafe { pool.allocate_on_raw(LEN, stream.raw()) }?, pool));
        sweep.run(prepare, operate, dropped)?;
    }
    Ok(())
}

#[test]
fn an_allocation_on_cudarcs_stream_names_the_call_that_failed_and_leaves_nothing() -> Result {
    let cudarc_stream = CudaContext::new(0)?.new_stream()?;
    let place = Place::primary(OpenFlags::empty())?;
    let some = SomeMemory::of(&place.gpu);
    let incidental = all(&[some.stages, &VISIT, some.release, &["vkMapMemory", "vkCreateBuffer", "cuCtxSynchronize"]]);
    let sweep = Sweep {
        what: "Pool::allocate_on",
        named: some.stages,
        incidental: &incidental,
        collects: Some(&place.gpu),
        ..Sweep::default()
    };
    let operate = |pool: Pool| Ok((pool.allocate_on(LEN, &cudarc_stream)?, pool));
    sweep.run(|| pool(&place), operate, dropped)
}

/// Operations of a pool on its free chunks.
type Way = fn(&Pool);

#[test]
fn trimming_freeing_and_no_longer_holding_survive_every_failure() -> Result {
    Place::each(OpenFlags::empty(), |place| {
        let some = SomeMemory::of(&place.gpu);
        let trim: Way = |pool| {
            pool.trim(0);
        };
        let ways =
            [("trim", trim), ("release_unused", Pool::release_unused), ("disable_caching", Pool::disable_caching)];
        for (name, way) in ways {
            let what = format!("Pool::{name}, {}", place.name);
            let incidental = all(&[&VISIT, some.release, &["cuCtxSynchronize", "cuEventQuery", "cuEventDestroy"]]);
            let sweep = Sweep { what: &what, incidental: &incidental, collects: Some(&place.gpu), ..Sweep::default() };
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
