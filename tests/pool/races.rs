//! Two threads at one chunk, or at chunks of one block, at the same time.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::ledger::Calls;
use support::{Result, amount};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

/// How long threads run against each other. Before each race was closed, it was lost within a second.
fn time() -> Duration {
    Duration::from_millis(amount(200, 1000))
}

fn pool(gpu: &Vkgdr) -> vkgdr::Result<Pool> {
    Pool::new(gpu, PoolOptions::new(MemoryKind::Mapped).block_len(1 << 20).largest_chunk(64 << 10))
}

fn many(pool: &Pool, count: usize, len: usize) -> vkgdr::Result<Vec<Memory>> {
    (0..count).map(|_| pool.allocate(len)).collect()
}

fn address(memory: &Memory) -> u64 {
    memory.host_ptr().map_or(0, |pointer| pointer.addr().get() as u64)
}

/// Asks for the address of each, so that lookups find it.
fn ask_for_addresses(memories: &[Memory]) {
    memories.iter().for_each(|memory| {
        hint::black_box(address(memory));
    });
}

/// Whether a lookup of its first address finds the memory.
fn is_found(memory: &Memory) -> bool {
    support::memory_of(address(memory))
        .is_some_and(|(found, offset)| (found.host_ptr(), found.len(), offset) == (memory.host_ptr(), memory.len(), 0))
}

/// Waits until `count` threads have come here, of which this is one.
fn meet(arrived: &AtomicUsize, count: usize) {
    arrived.fetch_add(1, Ordering::SeqCst);
    for spins in 0_u32.. {
        if arrived.load(Ordering::SeqCst) >= count {
            break;
        }
        if spins > 20_000 { thread::yield_now() } else { hint::spin_loop() }
    }
}

#[test]
fn memory_whose_address_two_threads_ask_for_first_is_listed_once() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let pool = pool(&gpu)?;
    let _keeps_the_block = pool.allocate(60_000)?;
    let (start, time) = (Instant::now(), time());
    while start.elapsed() < time {
        let fresh = many(&pool, 64, 64)?;
        let arrived = AtomicUsize::new(0);
        let ask = || {
            fresh.iter().enumerate().for_each(|(index, memory)| {
                meet(&arrived, 2 * (index + 1));
                hint::black_box(memory.host_ptr());
            });
        };
        thread::scope(|scope| {
            scope.spawn(ask);
            ask();
        });
        let addresses: Vec<u64> = fresh.iter().map(address).collect();
        drop(fresh);
        pool.trim(0);
        assert!(addresses.into_iter().all(|address| support::memory_of(address).is_none()), "free memory was found");
        let others = many(&pool, 64, 320)?;
        assert!(others.iter().all(is_found), "live memory of another size in its place was not found");
        drop(others);
        pool.trim(0);
    }
    Ok(())
}

#[test]
fn memory_in_the_place_of_memory_that_is_being_trimmed_is_found() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let pool = pool(&gpu)?;
    let _keeps_the_block = pool.allocate(60_000)?;
    let (start, time) = (Instant::now(), time());
    while start.elapsed() < time {
        let old = many(&pool, 4000, 64)?;
        ask_for_addresses(&old);
        drop(old);
        let new = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let new = many(&pool, 2000, 320)?;
                ask_for_addresses(&new);
                Ok::<_, vkgdr::Error>(new)
            });
            pool.trim(0);
            other.join()
        });
        let new = new.map_err(|_| "the other thread panicked")??;
        assert!(new.iter().all(is_found), "live memory was not found");
        drop(new);
        pool.trim(0);
    }
    Ok(())
}

#[test]
fn threads_that_trim_memory_which_the_device_never_had_wait_for_nothing() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let options = PoolOptions::new(MemoryKind::Mapped).block_len(256 << 10).largest_chunk(64 << 10);
    let pool = Pool::new(&gpu, options)?;
    let waits = Calls::of("cuCtxSynchronize");
    let is_over = AtomicBool::new(false);
    let work = || -> vkgdr::Result<()> {
        for len in [64, 128, 320, 1000].into_iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
            let memories = many(&pool, (400 << 10) / len, len)?;
            ask_for_addresses(&memories);
            drop(memories);
            pool.trim(0);
        }
        Ok(())
    };
    thread::scope(|scope| -> Result {
        let threads = [scope.spawn(work), scope.spawn(work)];
        thread::sleep(3 * time());
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    waits.assert(0, "the device has had none of it");
    Ok(())
}
