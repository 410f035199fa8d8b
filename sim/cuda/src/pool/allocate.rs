//! Allocate from pools and free, in a stream's order.

use std::sync::Arc;

use super::state::{Chunk, Pool};
use super::table as pools;
use crate::code::{Code, INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use crate::ffi::Out;
use crate::memory::table::{self, Kind};
use crate::memory::window::Backing;
use crate::owner::Owner;
use crate::queue::Placement;
use crate::stream::table as streams;

/// The granularity of a pool's blocks, in bytes.
const GRAIN: usize = 512;

pub(super) fn allocate(out: Out<usize>, size: usize, stream: usize) -> Outcome {
    out.required()?;
    let device = streams::outside_captures(stream)?.owner.device;
    allocate_from(out, size, &pools::current_of(device)?, stream)
}

pub(super) fn allocate_from_pool(out: Out<usize>, size: usize, pool: usize, stream: usize) -> Outcome {
    out.required()?;
    streams::outside_captures(stream)?;
    allocate_from(out, size, &pools::get(pool)?, stream)
}

fn allocate_from(out: Out<usize>, size: usize, pool: &Arc<Pool>, stream: usize) -> Outcome {
    let stream = streams::outside_captures(stream)?;
    // No memory, unlike from cuMemAlloc: cudarc allocates and frees its null slices in this way (`CudaStream::null`).
    if size == 0 {
        return out.set(0);
    }
    let chunk = lend(pool, size.checked_next_multiple_of(GRAIN).ok_or(OUT_OF_MEMORY)?)?;
    let owner = Owner { device: pool.device, ..stream.owner };
    let kind = Kind::Pooled { pool: pool.handle };
    out.set(table::insert(chunk.address(), size, kind, owner, Backing::block(chunk)))
}

/// Lends a block, and makes room for it if need be: by what the pools keep, then by waiting for frees that are queued, as
/// a GPU makes the stream wait.
fn lend(pool: &Arc<Pool>, size: usize) -> Result<Chunk, Code> {
    if let Ok(chunk) = pool.lend(size) {
        return Ok(chunk);
    }
    loop {
        // Asked first: a free that its stream reaches after a failed attempt is a reason for another one.
        let pending = pool.oldest_free();
        pools::all().iter().for_each(|pool| pool.trim(0));
        match (pool.lend(size), pending) {
            (Err(_), Some(free)) => free.wait(),
            (lent, _) => return lent,
        }
    }
}

/// Work that is submitted later cannot use the memory. What was submitted before keeps it.
pub(super) fn free(pointer: usize, stream: usize) -> Outcome {
    let stream = streams::outside_captures(stream)?;
    if pointer == 0 {
        return Ok(());
    }
    // Memory of cuMemAlloc, too: CUDA C++ Programming Guide, "Stream Ordered Memory Allocator".
    let (window, pages, kind) =
        table::take(pointer, |kind| matches!(kind, Kind::Pooled { .. } | Kind::Device)).ok_or(INVALID_VALUE)?;
    debug_assert!(window.address == pointer, "a window is freed by its start");
    let marker = stream.submit_after(Vec::new(), Placement::Anywhere, Box::new(move |_| drop(pages)))?;
    if let Kind::Pooled { pool } = kind
        && let Ok(pool) = pools::get(pool)
    {
        pool.note_free(marker);
    }
    Ok(())
}
