//! Memory of a pool as raw pointers, as the C library has it.
#![expect(unsafe_code, reason = "makes memory of raw pointers")]

use support::Result;
use support::cuda::Stream;
use vkgdr::{Error, MemoryKind, OpenFlags, Pool, PoolMemory, PoolOptions, Region, memory_of};

use crate::chunks::{exposed, open};

const LEN: usize = 4096;

/// Uses memory, and gives what outlives it.
type Use = fn(&PoolMemory) -> vkgdr::Result<Option<Region>>;

#[test]
fn memory_of_a_raw_pointer_is_not_allocated_again_while_a_region_or_the_device_has_it() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
    let uses: [Use; 2] = [
        |memory| memory.region(..1).map(Some),
        |memory| {
            assert_ne!(memory.device_ptr(), 0);
            Ok(None)
        },
    ];
    for used in uses {
        for borrowed in [false, true] {
            let memory = pool.allocate(LEN)?;
            let address = memory.host_ptr();
            let earlier = if borrowed { None } else { used(&memory)? };
            let raw = memory.into_raw();
            // SAFETY: the pointer stands for the memory until the next line, and the borrow is not dropped.
            let borrow = unsafe { PoolMemory::borrow_raw(raw) }.ok_or("free")?;
            let later = if borrowed { used(&borrow)? } else { None };
            // SAFETY: the pointer is used up.
            drop(unsafe { PoolMemory::from_raw(raw) }.ok_or("free")?);
            let others: Vec<_> = (0..8).map(|_| pool.allocate(LEN)).collect::<vkgdr::Result<_>>()?;
            assert!(others.iter().all(|other| other.host_ptr() != address), "borrowed: {borrowed}");
            drop((earlier, later, others));
            pool.free_held();
        }
    }
    assert_eq!((pool.used_chunks(), pool.active_bytes(), pool.managed_bytes()), (0, 0, 0));
    Ok(())
}

#[test]
fn memory_freed_by_its_raw_pointer_is_allocated_next_unless_a_region_has_it() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
    drop(pool.allocate(LEN)?);
    for shared in [false, true] {
        let memory = pool.allocate(LEN)?;
        let address = memory.host_ptr().ok_or("no host pointer")?;
        let region = if shared { Some(memory.region(..1)?) } else { None };
        let raw = memory.into_raw();
        assert_eq!((pool.used_chunks(), pool.active_bytes()), (1, LEN));
        // SAFETY: the pointer is used up, and the device has not used the memory.
        unsafe { PoolMemory::free_raw(raw) }?;
        assert_eq!(memory_of(address.addr().get() as u64).is_some(), shared);
        let next = pool.allocate(LEN)?;
        assert_eq!(next.host_ptr() == Some(address), !shared);
        drop((next, region));
        assert_eq!((pool.used_chunks(), pool.active_bytes()), (0, 0));
    }
    Ok(())
}

#[test]
fn memory_of_a_raw_pointer_is_freed_once_and_after_its_stream_has_passed() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
    // SAFETY: the legacy default stream lives as long as the context.
    let memories = [pool.allocate(LEN)?, unsafe { pool.allocate_on_raw(LEN, std::ptr::null_mut()) }?];
    for memory in memories {
        let raw = memory.into_raw();
        // SAFETY: the pointer is used up, and the device has not used the memory.
        unsafe { PoolMemory::free_raw(raw) }?;
        // SAFETY: a pointer that was used up is noticed until the pool gives the memory out again.
        let again = unsafe { PoolMemory::free_raw(raw) };
        assert!(matches!(again, Err(Error::Freed)), "{again:?}");
    }
    pool.free_held();
    assert_eq!((pool.used_chunks(), pool.managed_bytes()), (0, 0));
    Ok(())
}

#[test]
fn a_holder_that_found_the_memory_by_its_address_is_waited_for_after_the_pointer_was_freed() -> Result {
    let (_context, _gpu, pool) = open()?;
    let (chunk, address) = exposed(&pool)?;
    let found = memory_of(address).map(|(found, _)| found).ok_or("the memory was not found")?;
    // SAFETY: the device has not used the memory.
    unsafe { PoolMemory::free_raw(chunk.into_raw()) }?;
    let stream = Stream::create();
    let gate = stream.hold();
    found.record_use(stream.raw());
    found.free_found()?;
    assert_ne!(exposed(&pool)?.1, address, "lent while the stream may use it");
    gate.open();
    Ok(())
}
