//! `memory_of`: the memory that contains an address, of the host or the device, while threads free and reuse it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::fork::in_quiet_child;
use support::ledger::Live;
use support::{Random, Result, free, host_read, host_write, supported};
use vkgdr::{Error, Memory, MemoryKind, Pool, PoolOptions, RawMemory, Vkgdr};

use crate::{MAPPED, NONE, SIZE};

fn host_address(memory: &Memory) -> u64 {
    memory.host_ptr().map_or(0, |pointer| pointer.addr().get() as u64)
}

/// The length of the memory at an address, and the offset of the address in it.
fn found(address: u64) -> Option<(usize, usize)> {
    support::memory_of(address).map(|(memory, offset)| (memory.len(), offset))
}

/// Checks what is found at the edges of memory.
#[track_caller]
fn assert_found(first: u64, len: usize) {
    for offset in [0, 1, len / 2, len - 1] {
        assert_eq!(found(first + offset as u64), Some((len, offset)), "{offset}");
    }
    assert_ne!(found(first + len as u64).map(|(_, offset)| offset), Some(len), "beyond the end");
}

fn pool(gpu: &Vkgdr) -> vkgdr::Result<Pool> {
    Pool::new(gpu, PoolOptions::new(MAPPED))
}

#[test]
fn every_kind_is_found_by_any_address_of_both_sides() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &MemoryKind::ALL) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let (device, host) = (memory.device_ptr(), host_address(&memory));
        assert_found(device, SIZE);
        assert_eq!(found(device + SIZE as u64), None, "the padding is no memory of the program's");
        if kind.has_host_view() {
            assert_found(host, SIZE);
        }
        let (same, _) = support::memory_of(device + 9).ok_or("not found")?;
        assert_eq!((same.device_ptr(), same.host_ptr(), same.kind()), (device, memory.host_ptr(), kind));
        memory.free()?;
        assert_eq!(found(device), Some((SIZE, 0)), "the lookup's own reference keeps it");
        drop(same);
        assert_eq!((found(device), found(host)), (None, None), "{kind}");
    }
    Ok(())
}

#[test]
fn what_is_no_memory_of_this_library_is_not_found_and_nothing_is_in_a_forked_child() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (mut raw, local) = (RawMemory::allocate(&gpu, SIZE, MemoryKind::Host)?, 0_u8);
    for address in [0, 1, u64::MAX, std::ptr::from_ref(&local).addr() as u64, raw.device_ptr()] {
        assert_eq!(found(address), None, "{address:#x}");
    }
    free(&mut raw)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let address = memory.device_ptr();
    in_quiet_child(|| {
        assert_eq!(found(address), None);
        Ok(())
    })?;
    assert_eq!(found(address), Some((SIZE, 0)));
    Ok(())
}

#[test]
fn memory_of_a_pool_is_found_kept_and_forgotten_with_its_last_reference() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let pool = pool(&gpu)?;
    for len in [100, 5000, 64, 64 << 20] {
        let chunk = pool.allocate(len)?;
        assert_found(host_address(&chunk), len);
        assert_found(chunk.device_ptr(), len);
        let (same, _) = support::memory_of(chunk.device_ptr()).ok_or("not found")?;
        assert!(matches!(same.export_fd(), Err(Error::Pooled)));
        assert_eq!(same.slice(1..2)?.len(), 1);
    }
    let chunk = pool.allocate(1024)?;
    let (device, host) = (chunk.device_ptr(), host_address(&chunk));
    // The lookup's reference keeps the place: no other memory gets it.
    let (kept, _) = support::memory_of(host).ok_or("not found")?;
    host_write(&kept, 0, &[7_u8; 1024])?;
    drop(chunk);
    let others = (0..200).map(|_| pool.allocate(1024)).collect::<vkgdr::Result<Vec<_>>>()?;
    for other in &others {
        assert_ne!(host_address(other), host);
        other.write(0, &[1_u8; 1024])?;
    }
    assert!(host_read(&kept, 0, 1024)? == [7; 1024]);
    drop((others, kept));
    assert_eq!((found(device), found(host), pool.used_chunks(), pool.active_bytes()), (None, None, 0, 0));
    pool.release_unused();
    assert_eq!((found(device), found(host)), (None, None));
    // Another class has the room, and the lookup's reference outlives the pool.
    let chunk = pool.allocate(128)?;
    assert_found(chunk.device_ptr(), 128);
    let (last, _) = support::memory_of(chunk.device_ptr()).ok_or("not found")?;
    drop((pool, chunk));
    last.write(0, &[1_u8; 128])?;
    drop(last);
    assert_eq!(Live::now(), before);
    Ok(())
}

/// One thread frees and allocates memory while others look it up: what is found stays as long as it is held.
#[test]
fn a_lookup_that_races_with_a_free_finds_live_memory_or_none() -> Result {
    const ROUNDS: usize = 3000;
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for pooled in [true, false] {
        let pool = pool(&gpu)?;
        let allocate = |len| if pooled { pool.allocate(len) } else { Memory::allocate(&gpu, len, MAPPED) };
        let address = host_address(&allocate(512)?);
        let done = AtomicBool::new(false);
        thread::scope(|scope| -> Result {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let Some((memory, offset)) = support::memory_of(address) else { continue };
                        assert!(offset < memory.len());
                        memory.write(0, &[9_u8]).unwrap_or_else(|error| panic!("{error}"));
                    }
                });
            }
            let mut random = Random::new(7);
            let churned = (0..if pooled { ROUNDS } else { ROUNDS / 20 }).try_for_each(|_| -> Result {
                let memory = allocate(random.below(512) + 1)?;
                let is_listed = found(host_address(&memory)) == Some((memory.len(), 0));
                assert!(is_listed && memory.device_ptr() != 0);
                if random.below(50) == 0 {
                    pool.release_unused();
                }
                Ok(())
            });
            done.store(true, Ordering::Relaxed);
            churned
        })?;
        assert_eq!(pool.used_chunks(), 0);
        drop(pool);
    }
    assert_eq!(Live::now(), before);
    Ok(())
}
