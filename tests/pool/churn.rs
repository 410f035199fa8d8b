//! Many threads that come and go, with pools that go before their memory: nothing is lost, lent twice or miscounted.
#![expect(unsafe_code, reason = "passes raw pointers, binds raw streams, and says what the device has finished with")]

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use support::{Random, Result};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolMemory, PoolOptions, Region, Vkgdr};

const BLOCK: usize = 128 << 10;
const LENGTHS: [usize; 6] = [4, 64, 1000, 4096, 20_000, 200_000];

/// One way to hold a chunk. A raw pointer is an address here, since it goes to other threads.
enum Held {
    Pooled(PoolMemory),
    Plain(Memory),
    Part(Region),
    Raw(usize),
}

/// Held memory that begins with a number, and the pool's place in the list.
struct Item {
    held: Held,
    number: u32,
}

impl Item {
    fn check(&self) {
        let mut first = [0_u32];
        let read = match &self.held {
            Held::Pooled(memory) => memory.read(0, &mut first),
            Held::Plain(memory) => memory.read(0, &mut first),
            Held::Part(region) => region.read(0, &mut first),
            // SAFETY: the pointer is that of an item, which has not given it up; the borrow is not dropped.
            Held::Raw(address) => match unsafe { PoolMemory::borrow_raw(*address as *mut _) } {
                Some(memory) => memory.read(0, &mut first),
                None => panic!("memory in use counts as free"),
            },
        };
        assert!(read.is_ok());
        assert_eq!(first[0], self.number, "memory that something else wrote to");
    }

    fn end(self, random: &mut Random) -> vkgdr::Result<()> {
        self.check();
        match (self.held, random.below(3)) {
            (Held::Pooled(memory), 0) => memory.free()?,
            // SAFETY: the device never uses it.
            (Held::Pooled(memory), 1) => unsafe { memory.free_idle() }?,
            // SAFETY: as above.
            (Held::Plain(memory), 1) => unsafe { memory.free_idle() }?,
            // SAFETY: the pointer is that of this item, which ends, and the device never uses it.
            (Held::Raw(address), 1) => unsafe { PoolMemory::free_raw(address as *mut _) }?,
            (Held::Raw(address), choice) => {
                // SAFETY: the pointer is that of this item, which ends.
                let memory = unsafe { PoolMemory::from_raw(address as *mut _) };
                let Some(memory) = memory else { panic!("memory in use counts as free") };
                if choice == 0 { drop(Memory::from(memory)) } else { drop(memory) }
            }
            (held, _) => drop(held),
        }
        Ok(())
    }
}

thread_local! {
    /// Memory that goes with its thread, before or after the thread's caches.
    static KEPT: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

struct World {
    gpu: Vkgdr,
    pools: Mutex<Vec<Pool>>,
    exchange: Mutex<Vec<Item>>,
    stream: Arc<CudaStream>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn pool(&self) -> vkgdr::Result<Pool> {
        Pool::new(&self.gpu, PoolOptions::new(MemoryKind::Host).block_len(BLOCK).largest_piece(BLOCK / 4))
    }

    fn any_pool(&self, random: &mut Random) -> Pool {
        let pools = lock(&self.pools);
        pools[random.below(pools.len())].clone()
    }

    fn allocate(&self, random: &mut Random, number: u32) -> vkgdr::Result<Item> {
        let (pool, len) = (self.any_pool(random), LENGTHS[random.below(LENGTHS.len())]);
        let memory = match random.below(8) {
            0 => pool.allocate_on(len, &self.stream)?,
            // SAFETY: the world keeps the stream.
            1 => unsafe { pool.allocate_on_raw(len, self.stream.cu_stream()) }?,
            _ => pool.allocate(len)?,
        };
        if random.below(4) == 0 {
            assert_ne!(memory.device_ptr(), 0);
        }
        memory.write(0, &[number])?;
        let held = match random.below(6) {
            0 => Held::Plain(memory.into()),
            1 => Held::Part(memory.region(..)?),
            2 => Held::Raw(memory.into_raw() as usize),
            _ => Held::Pooled(memory),
        };
        Ok(Item { held, number })
    }

    fn work(&self, seed: u32) -> vkgdr::Result<()> {
        const STEPS: u32 = 300;
        let mut random = Random::new(seed.into());
        let mut live = Vec::new();
        if seed.is_multiple_of(2) {
            // First: its drop comes after that of the caches, which are registered later.
            KEPT.with_borrow_mut(|_| ());
        }
        for step in 0..STEPS {
            match random.below(40) {
                0..17 => live.push(self.allocate(&mut random, seed * STEPS + step)?),
                17..32 if !live.is_empty() => live.swap_remove(random.below(live.len())).end(&mut random)?,
                32..35 if !live.is_empty() => lock(&self.exchange).push(live.swap_remove(random.below(live.len()))),
                35..38 => {
                    let other = lock(&self.exchange).pop();
                    other.map_or(Ok(()), |item| item.end(&mut random))?;
                }
                38 => match random.below(6) {
                    0 => drop(self.any_pool(&mut random).trim(random.below(3) * BLOCK)),
                    1 => self.any_pool(&mut random).free_held(),
                    2 => assert!(self.any_pool(&mut random).used_chunks() < 1 << 20),
                    3 if random.below(4) == 0 => self.any_pool(&mut random).stop_holding(),
                    4 => {
                        // Another takes its place; it goes with its last clone.
                        let pool = self.pool()?;
                        let mut pools = lock(&self.pools);
                        let place = random.below(pools.len());
                        let old = std::mem::replace(&mut pools[place], pool);
                        drop(pools);
                        drop(old);
                    }
                    _ => assert!(self.any_pool(&mut random).free_chunks() < 1 << 20),
                },
                _ => {
                    let item = self.allocate(&mut random, seed * STEPS + step)?;
                    match item.held {
                        Held::Raw(_) => live.push(item),
                        held => KEPT.with_borrow_mut(|kept| kept.push(held)),
                    }
                }
            }
        }
        live.into_iter().try_for_each(|item| item.end(&mut random))
    }
}

#[test]
fn threads_and_pools_that_come_and_go_lose_nothing() -> Result {
    const THREADS: u32 = 8;
    // `VKGDR_STEPS` asks for more, as of the random sequences.
    let rounds = std::env::var("VKGDR_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(3000_u32) / 600;
    // Of which the threads make pools with no context of their own.
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let before = gpu.live_allocations();
    let stream = CudaContext::new(0)?.new_stream()?;
    let world = World { gpu: gpu.clone(), pools: Mutex::default(), exchange: Mutex::default(), stream };
    lock(&world.pools).extend([world.pool()?, world.pool()?, world.pool()?]);
    for round in 0..rounds.max(1) {
        let world = &world;
        let results: Vec<_> = thread::scope(|scope| {
            let start = |number| scope.spawn(move || world.work(1 + round * THREADS + number));
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        for result in results {
            result.map_err(|_| "a thread panicked")??;
        }
    }
    let mut random = Random::new(0);
    let left = std::mem::take(&mut *lock(&world.exchange));
    left.into_iter().try_for_each(|item| item.end(&mut random))?;
    let pools = std::mem::take(&mut *lock(&world.pools));
    for pool in &pools {
        assert_eq!((pool.used_chunks(), pool.active_bytes()), (0, 0));
        pool.free_held();
        assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
    }
    drop(pools);
    gpu.collect();
    assert_eq!(gpu.live_allocations(), before);
    Ok(())
}

/// The counts of a thread's cache move to the pool when the thread ends, which is after it has reported what it did.
#[test]
fn what_an_ending_thread_freed_is_not_counted_as_used() -> Result {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Host).block_len(BLOCK).largest_piece(BLOCK))?;
    for _ in 0..200 {
        let chunk = pool.allocate(64)?;
        let (report, reported) = mpsc::channel();
        let thread = thread::spawn({
            let pool = pool.clone();
            move || -> vkgdr::Result<()> {
                // The thread has a cache from here on, which counts what it frees.
                drop(pool.allocate(64)?);
                drop(chunk);
                drop(pool);
                let _ = report.send(());
                Ok(())
            }
        });
        reported.recv().map_err(|_| "the thread ended without a report")?;
        for _ in 0..100 {
            assert_eq!((pool.used_chunks(), pool.active_bytes()), (0, 0));
        }
        thread.join().map_err(|_| "panicked")??;
    }
    Ok(())
}
