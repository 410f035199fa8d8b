//! Pools: driver calls of warm allocations, alignment, counts, trimming and the pool's end.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use support::cuda::{self, Context};
use support::ledger::{Live, all_calls};
use support::{Random, Result, assert_says, device_read, host_read, host_write, pattern, refused};
use vkgdr::{MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::{BLOCK, LARGEST, assert_active, assert_empties, many, open, small};

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;

#[test]
fn try_allocate_finds_what_is_free_and_makes_nothing() -> Result {
    let (_context, _gpu, pool) = open()?;
    assert!(pool.try_allocate(1000).is_none() && pool.managed_bytes() == 0);
    let chunk = pool.allocate(1000)?;
    let address = chunk.host_ptr();
    drop(chunk);
    let again = pool.try_allocate(900).ok_or("the chunk is not at hand")?;
    assert_eq!((again.len(), again.host_ptr()), (900, address));
    assert_active(&pool, 1, 900);
    for impossible in [0, 1 << 20] {
        assert!(pool.try_allocate(impossible).is_none(), "{impossible} bytes");
    }
    Ok(())
}

#[test]
fn threads_that_run_out_together_share_a_block_also_without_a_timeout() -> Result {
    let (_context, gpu, _) = open()?;
    gpu.set_shortage_timeout(Duration::ZERO);
    for _ in 0..10 {
        let pool = Pool::new(&gpu, PoolOptions::default())?;
        let begin = Barrier::new(8);
        let allocate = || begin.wait().is_leader() || pool.allocate(4096).is_ok();
        thread::scope(|scope| (0..8).for_each(|_| _ = scope.spawn(allocate)));
        assert_eq!(pool.managed_bytes(), 32 << 20);
    }
    gpu.set_shortage_timeout(Duration::from_secs(1));
    Ok(())
}

#[test]
fn warm_pairs_call_no_driver() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let pool = Pool::new(&gpu, PoolOptions::default())?;
    let lengths = [1, 256, 257, 1000, 4096, 10_000, 64 << 10, 300 << 10, 4 << 20];
    let mut kept: Vec<_> = lengths.iter().map(|&len| pool.allocate(len)).collect::<vkgdr::Result<_>>()?;
    for &len in &lengths {
        drop(pool.allocate(len)?);
    }
    let before = (all_calls(), Live::now());
    let mut random = Random::new(1);
    for _ in 0..10_000 {
        let place = random.below(lengths.len());
        let chunk = pool.allocate(lengths[place])?;
        chunk.write(0, &[1_u8])?;
        kept[place] = chunk;
    }
    assert_eq!((all_calls(), Live::now()), before, "driver calls and live objects");
    Ok(())
}

#[test]
fn chunks_are_aligned_as_the_options_say_and_impossible_options_are_refused() -> Result {
    let (_context, gpu) = support::open(OpenFlags::FORCE_NON_COHERENT)?;
    for alignment in [64, 256, 4096] {
        let pool = Pool::new(&gpu, PoolOptions::new(MAPPED).alignment(alignment).classes_per_doubling(16))?;
        let lengths = [1, 64, 257, 320, 1000, 1025, 5000, 70_000];
        let chunks: Vec<_> = lengths.iter().map(|&len| pool.allocate(len)).collect::<vkgdr::Result<_>>()?;
        for chunk in &chunks {
            assert!(chunk.device_ptr().is_multiple_of(alignment as u64), "{chunk:?}, {alignment}");
            assert!(chunk.host_ptr().is_some_and(|p| p.addr().get().is_multiple_of(alignment)), "{chunk:?}");
            assert!(pool.chunk_len(chunk.len()).is_some_and(|len| len >= chunk.len() && len.is_multiple_of(alignment)));
        }
    }
    let error = refused(Pool::new(&gpu, PoolOptions::default().classes_per_doubling(9)));
    assert_says(&error, &["classes_per_doubling of 9", "a power of two from 1 to 64"]);
    Ok(())
}

#[test]
fn blocks_are_made_in_the_context_of_the_pool() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let pool = Pool::new(&gpu, small())?;
    let other = Context::create(0);
    let chunk = pool.allocate(1000)?;
    assert_eq!(chunk.context(), owner.raw());
    thread::scope(|scope| scope.spawn(|| pool.allocate(60_000).map(drop)).join()).map_err(|_| "panicked")??;
    assert_eq!(cuda::current(), other.raw());
    drop((chunk, pool));
    Ok(())
}

#[test]
fn free_and_used_chunks_are_counted() -> Result {
    let (_context, _gpu, pool) = open()?;
    assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
    let chunks = many(&pool, 10, 1000)?;
    assert_active(&pool, 10, 10_000);
    assert_eq!(pool.managed_bytes(), BLOCK);
    let held = pool.free_chunks();
    drop(chunks);
    assert_active(&pool, 0, 0);
    assert_eq!(pool.free_chunks(), held + 10);
    // A dedicated allocation counts as managed while it is in use.
    let large = pool.allocate(LARGEST + 1)?;
    assert_eq!(pool.managed_bytes(), BLOCK + LARGEST + 1);
    assert_active(&pool, 1, LARGEST + 1);
    drop(large);
    assert_eq!(pool.managed_bytes(), BLOCK);
    assert_active(&pool, 0, 0);
    assert_empties(&pool);
    Ok(())
}

#[test]
fn free_blocks_are_released_and_used_ones_stay() -> Result {
    let (_context, _gpu, pool) = open()?;
    let before = Live::now();
    let mut chunks = many(&pool, 16, LARGEST)?;
    assert_eq!(pool.managed_bytes(), 4 * BLOCK);
    host_write(&chunks[0], 0, &pattern(LARGEST, 3))?;
    chunks.truncate(1);
    assert_eq!((pool.trim(2 * BLOCK), pool.managed_bytes()), (2 * BLOCK, 2 * BLOCK));
    assert_eq!((pool.trim(0), pool.managed_bytes()), (BLOCK, BLOCK));
    assert_eq!(Live::now(), before.plus_one(MAPPED));
    assert!(host_read(&chunks[0], 0, LARGEST)? == pattern(LARGEST, 3));
    chunks.clear();
    assert_empties(&pool);
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn memory_moves_between_classes_without_a_new_block() -> Result {
    let (_context, _gpu, pool) = open()?;
    for len in [300, LARGEST, 5000, 256, 40_000] {
        let size = pool.chunk_len(len).unwrap_or(1);
        // Spans may leave a rest of the block unused.
        let chunks = many(&pool, (192 << 10) / size, len)?;
        assert_eq!(pool.managed_bytes(), BLOCK, "{} chunks of {len} bytes", chunks.len());
    }
    Ok(())
}

#[test]
fn a_pool_that_stopped_holding_releases_everything_at_once() -> Result {
    let (_context, _gpu, pool) = open()?;
    let before = Live::now();
    let chunks = many(&pool, 1000, 1000)?;
    drop(pool.allocate(300)?);
    pool.disable_caching();
    assert_active(&pool, 1000, 1_000_000);
    drop(chunks);
    assert_eq!((pool.free_chunks(), pool.managed_bytes(), Live::now()), (0, 0, before));
    let chunk = pool.allocate(2000)?;
    // With a device address, so that the device may have used it.
    assert_ne!(chunk.device_ptr(), 0);
    drop(chunk);
    assert_eq!((pool.free_chunks(), pool.managed_bytes(), Live::now()), (0, 0, before));
    Ok(())
}

#[test]
fn the_blocks_of_live_chunks_outlive_their_pool() -> Result {
    let (_context, gpu, pool) = open()?;
    let before = Live::now();
    let (chunk, other, large) = (pool.allocate(1000)?, pool.allocate(1000)?, pool.allocate(1 << 20)?);
    let region = chunk.slice(10..20)?;
    host_write(&chunk, 0, &pattern(1000, 1))?;
    let (clone, empty) = (pool.clone(), Pool::new(&gpu, PoolOptions::new(MemoryKind::Host))?);
    drop((pool, empty));
    drop(clone.allocate(500)?);
    drop(clone);
    assert_eq!(Live::now(), before.plus_one(MAPPED).plus_one(MAPPED));
    assert!(device_read(chunk.device_ptr(), 1000) == pattern(1000, 1));
    drop((chunk, large));
    assert!(host_read(&region, 0, 10)? == pattern(1000, 1)[10..20]);
    drop(region);
    assert_eq!(Live::now(), before.plus_one(MAPPED));
    other.free()?;
    assert_eq!(Live::now(), before);
    Ok(())
}
