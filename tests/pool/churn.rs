//! Many threads that come and go, with pools that go before their memory: nothing is lost, lent twice or miscounted.
#![expect(unsafe_code, reason = "binds raw streams, and says what the device has finished with")]

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use support::{Random, Result};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::{assert_active, assert_empties};

const BLOCK: usize = 128 << 10;
const LENGTHS: [usize; 6] = [4, 64, 1000, 4096, 20_000, 200_000];

/// Memory that is filled with a number: all of it, or a slice.
struct Item {
    memory: Memory,
    number: u32,
}

impl Item {
    fn check(&self) {
        let mut words = vec![0_u32; self.memory.len() / 4];
        assert!(self.memory.read(0, &mut words).is_ok());
        assert!(words.iter().all(|word| *word == self.number), "memory that something else wrote to");
    }

    fn end(self, random: &mut Random) -> vkgdr::Result<()> {
        self.check();
        match random.below(3) {
            0 => self.memory.free(),
            // SAFETY: the device never uses it.
            1 => unsafe { self.memory.free_unsynchronized() },
            _ => {
                drop(self.memory);
                Ok(())
            }
        }
    }
}

thread_local! {
    /// Memory that goes with its thread.
    static KEPT: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
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
        Pool::new(&self.gpu, PoolOptions::new(MemoryKind::Host).block_len(BLOCK).largest_chunk(BLOCK / 4))
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
        memory.fill(.., number)?;
        let memory = if random.below(6) == 0 { memory.slice(..4)? } else { memory };
        Ok(Item { memory, number })
    }

    fn work(&self, seed: u32) -> vkgdr::Result<()> {
        const STEPS: u32 = 300;
        let mut random = Random::new(seed.into());
        let mut live = Vec::new();
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
                    1 => self.any_pool(&mut random).release_unused(),
                    2 => assert!(self.any_pool(&mut random).used_chunks() < 1 << 20),
                    3 if random.below(4) == 0 => self.any_pool(&mut random).disable_caching(),
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
                    KEPT.with_borrow_mut(|kept| kept.push(item.memory));
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
    let rounds = u32::try_from(support::number("VKGDR_STEPS").unwrap_or(3000) / 600)?;
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
        assert_active(pool, 0, 0);
        assert_empties(pool);
    }
    drop(pools);
    gpu.collect();
    assert_eq!(gpu.live_allocations(), before);
    Ok(())
}
