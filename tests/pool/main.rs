//! Pools: allocation, reuse by stream, bookkeeping. Random traces are among `sequences`.

mod bookkeeping;
mod pool;
mod streams;
mod waiting;

use support::Result;
use support::cuda::PrimaryContext;
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

const LEN: usize = 4096;
const BLOCK: usize = 256 << 10;
const LARGEST: usize = 64 << 10;

/// A pool of mapped memory whose blocks are small, so that several can be filled with little memory.
fn open() -> Result<(PrimaryContext, Vkgdr, Pool)> {
    let (context, gpu) = support::open(OpenFlags::empty())?;
    let pool = Pool::new(&gpu, small())?;
    Ok((context, gpu, pool))
}

fn small() -> PoolOptions {
    PoolOptions::new(MemoryKind::Mapped).block_len(BLOCK).largest_chunk(LARGEST)
}

fn many(pool: &Pool, count: usize, len: usize) -> vkgdr::Result<Vec<Memory>> {
    (0..count).map(|_| pool.allocate(len)).collect()
}

/// Makes the pool's first block, before a gate is shut: a driver may wait for running work to make memory.
fn make_block(pool: &Pool) -> vkgdr::Result<()> {
    pool.allocate(LEN).map(drop)
}

/// A chunk with its device address requested, and that address.
fn exposed(pool: &Pool) -> vkgdr::Result<(Memory, u64)> {
    let chunk = pool.allocate(LEN)?;
    let address = chunk.device_ptr();
    Ok((chunk, address))
}

/// Host addresses of `count` chunks that are live at the same time.
fn addresses(pool: &Pool, count: usize) -> vkgdr::Result<Vec<u64>> {
    Ok(many(pool, count, LEN)?.iter().map(host_address).collect())
}

fn host_address(chunk: &Memory) -> u64 {
    chunk.host_ptr().map_or(0, |pointer| pointer.addr().get() as u64)
}

/// Checks the pool's counts of live chunks and their bytes.
#[track_caller]
fn assert_active(pool: &Pool, chunks: usize, bytes: usize) {
    assert_eq!((pool.used_chunks(), pool.active_bytes()), (chunks, bytes), "active chunks and bytes");
}

/// Checks that the pool gives back all that it has.
#[track_caller]
fn assert_empties(pool: &Pool) {
    pool.release_unused();
    assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0), "free chunks and managed bytes");
}
