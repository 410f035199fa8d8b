//! The bookkeeping of a pool's chunks on the program's heap, counted by the allocator of this test binary.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use support::Result;
use vkgdr::{MemoryKind, OpenFlags, Pool, PoolOptions};

/// The system's allocator with a count of live bytes.
struct Counting;

static BYTES: AtomicIsize = AtomicIsize::new(0);

/// The bytes of an allocation in glibc's malloc: with a header of 8, rounded up to 16, and at least 32.
fn cost(bytes: usize) -> isize {
    (bytes + 8).next_multiple_of(16).max(32).cast_signed()
}

// SAFETY: every method forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(cost(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller fulfils the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(cost(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller fulfils the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        BYTES.fetch_add(cost(new_size) - cost(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller fulfils the same contract.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_free_slot_of_64_bytes_takes_64_bytes_of_bookkeeping_at_most_and_trim_returns_them() -> Result {
    const COUNT: usize = 200_000;
    const BLOCK: usize = 32 << 20;
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped).block_len(BLOCK))?;
    let mut held = Vec::with_capacity(COUNT);
    // The first block is allocated before counting.
    drop(pool.allocate(64)?);
    let before = BYTES.load(Ordering::Relaxed);
    for _ in 0..COUNT {
        held.push(pool.allocate(64)?);
    }
    let used = BYTES.load(Ordering::Relaxed) - before;
    let blocks = pool.managed_bytes();
    // 64 bytes, or an atom of memory that is not coherent.
    let size = pool.chunk_len(64).unwrap_or_default();
    assert!(blocks <= COUNT * size + BLOCK, "{blocks} bytes for {COUNT} chunks of {size}");
    held.clear();
    let free = BYTES.load(Ordering::Relaxed) - before;
    assert_eq!((pool.used_chunks(), pool.managed_bytes()), (0, blocks));
    assert!(pool.trim(0) >= blocks, "everything is free");
    let trimmed = BYTES.load(Ordering::Relaxed) - before;
    println!("{COUNT} chunks of 64 bytes: {used} bytes of the heap in use, {free} free, {trimmed} after a trim");
    let most = (COUNT * 64).cast_signed();
    // In use, each is a `Memory` with what its references share.
    assert!(used <= 5 * most && free <= most, "{used} and {free} bytes, at most {most} allowed");
    assert!(trimmed < 64 << 10, "{trimmed} bytes are left");
    Ok(())
}
