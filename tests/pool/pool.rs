//! Pools: chunks never overlap; driver calls of warm allocations; counts, trimming and the pool's end.

use std::cell::RefCell;
use std::thread;

use support::cuda::{self, Context, PrimaryContext};
use support::ledger::{Live, all_calls};
use support::{Random, Result, assert_says, device_read, host_read, host_write, pattern, refused};
use vkgdr::{Error, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;
const MIB: usize = 1 << 20;

fn open(options: PoolOptions) -> Result<(PrimaryContext, Vkgdr, Pool)> {
    let (context, gpu) = support::open(NONE)?;
    let pool = Pool::new(&gpu, options)?;
    Ok((context, gpu, pool))
}

/// Small blocks, so that several can be filled with little memory.
fn small() -> PoolOptions {
    PoolOptions::new(MAPPED).block_len(256 << 10).largest_chunk(64 << 10)
}

/// Checks the pool's counts of live chunks and their bytes.
#[track_caller]
fn assert_active(pool: &Pool, chunks: usize, bytes: usize) {
    assert_eq!((pool.used_chunks(), pool.active_bytes()), (chunks, bytes), "active chunks and bytes");
}

#[test]
fn a_pool_and_its_memory_go_to_other_threads() {
    fn moves_and_is_shared<T: Send + Sync>() {}
    moves_and_is_shared::<Pool>();
    moves_and_is_shared::<Memory>();
}

#[test]
fn try_allocate_finds_what_is_free_and_makes_nothing() -> Result {
    let (_context, _gpu, pool) = open(small())?;
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
fn warm_pairs_call_no_driver() -> Result {
    let (_context, _gpu, pool) = open(PoolOptions::default())?;
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
fn a_hundred_thousand_small_chunks_need_at_most_sixteen_allocations() -> Result {
    let (_context, gpu, pool) = open(PoolOptions::default())?;
    let before = gpu.live_allocations();
    let chunks: Vec<_> = (0..100_000).map(|_| pool.allocate(256)).collect::<vkgdr::Result<_>>()?;
    let made = gpu.live_allocations() - before;
    assert!(made <= 16, "{made} allocations");
    assert_active(&pool, 100_000, 25_600_000);
    let mut addresses: Vec<_> = chunks.iter().map(|chunk| chunk.device_ptr()).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[0] + 256 <= pair[1]), "chunks overlap");
    Ok(())
}

#[test]
fn chunks_are_aligned_as_the_options_say() -> Result {
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
    Ok(())
}

#[test]
fn what_cannot_be_is_refused() -> Result {
    let (_context, gpu, pool) = open(PoolOptions::default())?;
    assert!(matches!(refused(pool.allocate(0)), Error::ZeroSize { kind: MAPPED }));
    let error = refused(pool.allocate(1_000_000_000_000_000));
    assert_says(&error, &["requested 909.4 TiB of mapped memory; the heap has ", "(VK_ERROR_OUT_OF_DEVICE_MEMORY)"]);
    let error = refused(Pool::new(&gpu, PoolOptions::default().classes_per_doubling(9)));
    assert_says(&error, &["classes_per_doubling of 9", "a power of two from 1 to 64"]);
    let error = refused(pool.allocate(100)?.export_fd());
    assert_says(&error, &["export_fd", "pool"]);
    assert_active(&pool, 0, 0);
    Ok(())
}

#[test]
fn without_a_context_a_pool_is_refused_but_for_a_primary_one() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let error = refused(Pool::new(&gpu, PoolOptions::default()));
    assert_says(&error, &["CUDA_ERROR_INVALID_CONTEXT"]);
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let chunk = Pool::new(&gpu, PoolOptions::default())?.allocate(100)?;
    assert_eq!(cuda::current(), std::ptr::null_mut());
    drop(chunk);
    Ok(())
}

#[test]
fn blocks_are_made_in_the_context_of_the_pool() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let pool = Pool::new(&gpu, small())?;
    let other = Context::create(0);
    let chunk = pool.allocate(1000)?;
    assert_eq!((chunk.context(), pool.context()), (owner.raw(), owner.raw()));
    thread::scope(|scope| scope.spawn(|| pool.allocate(60_000).map(drop)).join()).map_err(|_| "panicked")??;
    assert_eq!(cuda::current(), other.raw());
    drop((chunk, pool));
    Ok(())
}

#[test]
fn free_and_used_chunks_are_counted() -> Result {
    let (_context, _gpu, pool) = open(small())?;
    assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
    let chunks: Vec<_> = (0..10).map(|_| pool.allocate(1000)).collect::<vkgdr::Result<_>>()?;
    assert_active(&pool, 10, 10_000);
    assert_eq!(pool.managed_bytes(), 256 << 10);
    let held = pool.free_chunks();
    drop(chunks);
    assert_active(&pool, 0, 0);
    assert_eq!(pool.free_chunks(), held + 10);
    // A dedicated allocation counts as managed while it is in use.
    let large = pool.allocate(65_537)?;
    assert_eq!(pool.managed_bytes(), (256 << 10) + 65_537);
    assert_active(&pool, 1, 65_537);
    drop(large);
    assert_eq!(pool.managed_bytes(), 256 << 10);
    assert_active(&pool, 0, 0);
    pool.release_unused();
    assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
    Ok(())
}

#[test]
fn free_blocks_are_released_and_used_ones_stay() -> Result {
    let (_context, _gpu, pool) = open(small())?;
    let before = Live::now();
    let mut chunks: Vec<_> = (0..16).map(|_| pool.allocate(64 << 10)).collect::<vkgdr::Result<_>>()?;
    assert_eq!(pool.managed_bytes(), MIB);
    host_write(&chunks[0], 0, &pattern(64 << 10, 3))?;
    chunks.truncate(1);
    assert_eq!(pool.trim(512 << 10), 512 << 10);
    assert_eq!(pool.managed_bytes(), 512 << 10);
    assert_eq!(pool.trim(0), 256 << 10);
    assert_eq!((pool.managed_bytes(), Live::now()), (256 << 10, before.plus_one(MAPPED)));
    assert!(host_read(&chunks[0], 0, 64 << 10)? == pattern(64 << 10, 3));
    chunks.clear();
    pool.release_unused();
    assert_eq!((pool.managed_bytes(), Live::now()), (0, before));
    Ok(())
}

#[test]
fn memory_moves_between_classes_without_a_new_block() -> Result {
    let (_context, _gpu, pool) = open(small())?;
    for len in [300, 64 << 10, 5000, 256, 40_000] {
        let size = pool.chunk_len(len).unwrap_or(1);
        // Spans may leave a rest of the block unused.
        let count = (192 << 10) / size;
        let chunks: Vec<_> = (0..count).map(|_| pool.allocate(len)).collect::<vkgdr::Result<_>>()?;
        assert_eq!(pool.managed_bytes(), 256 << 10, "{} chunks of {len} bytes", chunks.len());
        drop(chunks);
        // Chunks in the thread's cache would keep their span.
        pool.trim(usize::MAX);
    }
    Ok(())
}

#[test]
fn a_pool_that_stopped_holding_releases_everything_at_once() -> Result {
    let (_context, _gpu, pool) = open(small())?;
    let before = Live::now();
    let chunks: Vec<_> = (0..1000).map(|_| pool.allocate(1000)).collect::<vkgdr::Result<_>>()?;
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
    let (_context, gpu, pool) = open(small())?;
    let before = Live::now();
    let chunk = pool.allocate(1000)?;
    let other = pool.allocate(1000)?;
    let region = chunk.slice(10..20)?;
    let large = pool.allocate(MIB)?;
    host_write(&chunk, 0, &pattern(1000, 1))?;
    let (clone, empty) = (pool.clone(), Pool::new(&gpu, small())?);
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

#[test]
fn a_region_keeps_its_chunk() -> Result {
    let (_context, _gpu, pool) = open(small())?;
    let chunk = pool.allocate(256)?;
    let address = chunk.device_ptr();
    let region: Memory = chunk.slice(1..2)?;
    chunk.free()?;
    assert_active(&pool, 1, 256);
    let others: Vec<_> = (0..100).map(|_| pool.allocate(256)).collect::<vkgdr::Result<_>>()?;
    assert!(others.iter().all(|other| other.device_ptr() != address), "the chunk was reused while a region was alive");
    region.free()?;
    assert_active(&pool, 100, 25_600);
    Ok(())
}

#[test]
fn a_thread_that_ends_leaves_its_chunks_to_the_others() -> Result {
    let (_context, _gpu, pool) = open(small())?;
    for _ in 0..20 {
        let work = || {
            let chunks: Vec<_> = (0..40).map(|_| pool.allocate(4096)).collect::<vkgdr::Result<_>>()?;
            drop(chunks);
            pool.allocate(4096)
        };
        let chunk = thread::scope(|scope| scope.spawn(work).join()).map_err(|_| "panicked")??;
        assert_active(&pool, 1, 4096);
        drop(chunk);
        assert_active(&pool, 0, 0);
    }
    assert_eq!(pool.managed_bytes(), 256 << 10);
    pool.release_unused();
    assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
    Ok(())
}

/// Thread-local destructors run in reverse order of first use: of the two here, one before and one after the destructor
/// of the thread's cache.
#[test]
fn memory_dropped_by_thread_local_destructors_is_freed() -> Result {
    thread_local! {
        static FIRST: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
        static LAST: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
    }
    let (_context, _gpu, pool) = open(small())?;
    let work = || -> vkgdr::Result<()> {
        FIRST.with_borrow(Vec::len);
        let chunks = [pool.allocate(1000)?, pool.allocate(1000)?];
        let later = [pool.allocate(1000)?, pool.allocate(1000)?];
        for chunk in [&chunks[0], &later[0]] {
            assert_ne!(chunk.device_ptr(), 0);
        }
        FIRST.with_borrow_mut(|kept| kept.extend(chunks));
        LAST.with_borrow_mut(|kept| kept.extend(later));
        Ok(())
    };
    for _ in 0..3 {
        thread::scope(|scope| scope.spawn(work).join()).map_err(|_| "panicked")??;
        assert_active(&pool, 0, 0);
    }
    assert_eq!(pool.managed_bytes(), 256 << 10);
    pool.release_unused();
    assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
    Ok(())
}

#[test]
fn two_pools_have_nothing_in_common() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let pools = [Pool::new(&gpu, small())?, Pool::new(&gpu, PoolOptions::new(MemoryKind::Host))?];
    let before = Live::now();
    let chunks = [pools[0].allocate(500)?, pools[1].allocate(500)?];
    assert_eq!((chunks[0].kind(), chunks[1].kind()), (MAPPED, MemoryKind::Host));
    drop(chunks);
    pools[0].release_unused();
    assert_eq!((pools[0].managed_bytes(), pools[1].managed_bytes()), (0, 32 * MIB));
    pools[1].release_unused();
    assert_eq!(Live::now(), before);
    Ok(())
}
