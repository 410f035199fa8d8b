//! A pool, and the addresses of its chunks.

use support::Result;
use support::cuda::PrimaryContext;
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

pub(crate) const LEN: usize = 4096;
pub(crate) const BLOCK: usize = 256 << 10;

pub(crate) fn open() -> Result<(PrimaryContext, Vkgdr, Pool)> {
    let (context, gpu) = support::open(OpenFlags::empty())?;
    let options = PoolOptions::new(MemoryKind::Mapped).block_len(BLOCK).largest_chunk(64 << 10);
    let pool = Pool::new(&gpu, options)?;
    Ok((context, gpu, pool))
}

/// Makes the pool's first block, before a gate is shut: a driver may wait for running work to make memory.
pub(crate) fn make_block(pool: &Pool) -> vkgdr::Result<()> {
    pool.allocate(LEN).map(drop)
}

/// A chunk with its device address requested, and that address.
pub(crate) fn exposed(pool: &Pool) -> vkgdr::Result<(Memory, u64)> {
    let chunk = pool.allocate(LEN)?;
    let address = chunk.device_ptr();
    Ok((chunk, address))
}

/// Host addresses of `count` chunks that are live at the same time.
pub(crate) fn addresses(pool: &Pool, count: usize) -> vkgdr::Result<Vec<u64>> {
    let chunks: Vec<_> = (0..count).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
    Ok(chunks.iter().map(host_address).collect())
}

pub(crate) fn host_address(chunk: &Memory) -> u64 {
    chunk.host_ptr().map_or(0, |pointer| pointer.addr().get() as u64)
}
