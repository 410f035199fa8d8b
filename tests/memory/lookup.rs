//! `memory_of`: the memory that contains an address, of the host or the device, while threads free and reuse it.
#![expect(unsafe_code, reason = "frees raw memory by hand")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::fork::in_quiet_child;
use support::ledger::Live;
use support::{Random, Result, host_read, host_write, supported};
use vkgdr::{Error, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, RawMemory, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const LEN: usize = 4097;

fn host_address(region: &Memory) -> u64 {
    region.host_ptr().map_or(0, |pointer| pointer.addr().get() as u64)
}

/// The length of the memory at an address, and the offset of the address in it.
fn found(address: u64) -> Option<(usize, usize)> {
    support::memory_of(address).map(|(memory, offset)| (memory.len(), offset))
}

/// Checks what is found at the edges of memory.
fn assert_found(first: u64, len: usize) {
    for offset in [0, 1, len / 2, len - 1] {
        assert_eq!(found(first + offset as u64), Some((len, offset)), "{offset}");
    }
    assert_ne!(found(first + len as u64).map(|(_, offset)| offset), Some(len), "beyond the end");
    assert_ne!(found(first - 1), Some((len, usize::MAX)), "before the start");
}

fn pool(gpu: &Vkgdr) -> Result<Pool> {
    Ok(Pool::new(gpu, PoolOptions::new(MemoryKind::Mapped))?)
}

#[test]
fn every_kind_is_found_by_any_address_of_both_sides() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, LEN, kind)?;
        let (device, host) = (memory.device_ptr(), host_address(&memory));
        assert_found(device, LEN);
        assert_eq!(found(device + LEN as u64), None, "the padding is no memory of the program's");
        if kind.has_host_view() {
            assert_found(host, LEN);
        }
        let (same, _) = support::memory_of(device + 9).ok_or("not found")?;
        assert_eq!((same.device_ptr(), same.host_ptr(), same.kind()), (device, memory.host_ptr(), kind));
        memory.free()?;
        assert_eq!(found(device), Some((LEN, 0)), "the lookup's own reference keeps it");
        drop(same);
        assert_eq!((found(device), found(host)), (None, None), "{kind}");
    }
    Ok(())
}

#[test]
fn what_is_no_memory_of_this_library_is_not_found() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let mut raw = RawMemory::allocate(&gpu, LEN, MemoryKind::Host)?;
    let local = 0_u8;
    for address in [0, 1, u64::MAX, std::ptr::from_ref(&local).addr() as u64, raw.device_ptr()] {
        assert_eq!(found(address), None, "{address:#x}");
    }
    // SAFETY: nothing uses it.
    unsafe { raw.free() }?;
    Ok(())
}

#[test]
fn memory_of_a_pool_is_found_once_an_address_was_asked_for() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let pool = pool(&gpu)?;
    let whole = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    let chunks = [100, 5000, 64].map(|len| pool.allocate(len));
    for (chunk, len) in chunks.into_iter().zip([100, 5000, 64]) {
        let chunk = chunk?;
        assert_found(host_address(&chunk), len);
        assert_found(chunk.device_ptr(), len);
        let (found, _) = support::memory_of(chunk.device_ptr()).ok_or("not found")?;
        assert!(matches!(found.export_fd(), Err(Error::Pooled { .. })));
        assert_eq!(found.slice(1..2)?.len(), 1);
    }
    let large = pool.allocate(64 << 20)?;
    assert_found(large.device_ptr(), 64 << 20);
    assert_found(host_address(&whole), LEN);
    // Neither has a neighbour in its block that was asked for.
    let quiet = pool.allocate(300)?;
    quiet.write(0, &[1_u8; 300])?;
    let first = host_address(&quiet.slice(1..)?) - 1;
    assert_found(first, 300);
    Ok(())
}

#[test]
fn found_memory_of_a_pool_is_not_allocated_again() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let pool = pool(&gpu)?;
    let chunk = pool.allocate(1024)?;
    let address = host_address(&chunk);
    drop(chunk);
    assert_eq!(found(address), None, "it is free");
    let chunk = pool.allocate(1000)?;
    assert_eq!((host_address(&chunk), found(address)), (address, Some((1000, 0))), "the cache of the thread");
    let (kept, _) = support::memory_of(address).ok_or("not found")?;
    host_write(&kept, 0, &[7_u8; 1000])?;
    drop(chunk);
    assert_eq!(pool.used_chunks(), 1);
    let others: Vec<_> = (0..200).map(|_| pool.allocate(1024)).collect::<std::result::Result<_, _>>()?;
    for other in &others {
        assert_ne!(host_address(other), address);
        other.write(0, &[1_u8; 1024])?;
    }
    assert!(host_read(&kept, 0, 1000)? == [7; 1000]);
    drop((others, kept));
    assert_eq!((pool.used_chunks(), pool.active_bytes()), (0, 0));
    assert_eq!(found(address), None);
    Ok(())
}

#[test]
fn a_chunk_that_goes_takes_its_address_with_it() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let pool = pool(&gpu)?;
    let chunk = pool.allocate(1024)?;
    let (device, host) = (chunk.device_ptr(), host_address(&chunk));
    drop(chunk);
    pool.release_unused();
    assert_eq!((found(device), found(host)), (None, None));
    let chunk = pool.allocate(128)?;
    assert_eq!(found(chunk.device_ptr()), Some((128, 0)), "another class in the same room");
    let (found, _) = support::memory_of(chunk.device_ptr()).ok_or("not found")?;
    drop((pool, chunk));
    found.write(0, &[1_u8; 128])?;
    drop(found);
    assert_eq!(Live::now(), before);
    Ok(())
}

/// One thread frees and allocates memory while another looks it up: what is found stays as long as it is held.
#[test]
fn a_lookup_that_races_with_a_free_finds_live_memory_or_none() -> Result {
    const ROUNDS: usize = 3000;
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for pooled in [true, false] {
        let pool = pool(&gpu)?;
        let allocate = |len| {
            if pooled { pool.allocate(len) } else { Memory::allocate(&gpu, len, MemoryKind::Mapped) }
        };
        let first = allocate(512)?;
        let address = host_address(&first);
        drop(first);
        let done = AtomicBool::new(false);
        thread::scope(|scope| -> Result {
            let look_up = || {
                while !done.load(Ordering::Relaxed) {
                    let Some((memory, offset)) = support::memory_of(address) else { continue };
                    assert!(offset < memory.len());
                    memory.write(0, &[9_u8]).unwrap_or_else(|error| panic!("{error}"));
                }
            };
            let threads = [(); 2].map(|()| scope.spawn(look_up));
            let churn = || -> Result {
                let mut random = Random::new(7);
                for _ in 0..if pooled { ROUNDS } else { ROUNDS / 20 } {
                    let memory = allocate(random.below(512) + 1)?;
                    if random.below(2) == 0 {
                        assert_ne!(host_address(&memory), 0);
                    } else {
                        assert_ne!(memory.device_ptr(), 0);
                    }
                    if random.below(50) == 0 {
                        pool.release_unused();
                    }
                }
                Ok(())
            };
            let result = churn();
            done.store(true, Ordering::Relaxed);
            // The scope would not wait for the destructors of the threads' caches, which hold chunks.
            for thread in threads {
                thread.join().map_err(|_| "a lookup panicked")?;
            }
            result
        })?;
        assert_eq!(pool.used_chunks(), 0);
        drop(pool);
    }
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_forked_child_finds_nothing() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    let address = memory.device_ptr();
    in_quiet_child(|| {
        assert_eq!(found(address), None);
        Ok(())
    })?;
    assert_eq!(found(address), Some((LEN, 0)));
    Ok(())
}
