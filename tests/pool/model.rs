//! Pools against a naive model: random traces, several threads, and fill patterns that show any overlap.

use std::sync::Mutex;
use std::thread;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use support::{Random, Result};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

const BLOCK: usize = 256 << 10;

fn options() -> PoolOptions {
    PoolOptions::new(MemoryKind::Host).block_len(BLOCK).largest_chunk(64 << 10)
}

/// A live chunk filled with its own number, and optionally a region of it, which may outlive it.
#[derive(Debug)]
struct Filled {
    memory: Option<Memory>,
    region: Option<Memory>,
    number: u32,
    len: usize,
}

impl Filled {
    fn new(pool: &Pool, len: usize, number: u32) -> vkgdr::Result<Self> {
        let memory = pool.allocate(len)?;
        memory.fill(.., number)?;
        Ok(Self { memory: Some(memory), region: None, number, len })
    }

    /// Whether every byte that it can still access is unchanged.
    fn is_intact(&self) -> vkgdr::Result<bool> {
        let Some(region) = self.memory.as_ref().or(self.region.as_ref()) else { return Ok(true) };
        let mut words = vec![0_u32; region.len() / 4];
        region.read(0, &mut words)?;
        Ok(words.iter().all(|&word| word == self.number))
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Allocates this number of words.
    Allocate(usize),
    /// Frees a chunk, with its device address requested before if `exposed`.
    Free {
        which: usize,
        exposed: bool,
    },
    /// Makes a region of a chunk's second half.
    Memory(usize),
    Trim(usize),
    FreeHeld,
}

fn step() -> impl Strategy<Value = Step> {
    let words = prop_oneof![3 => 1..200_usize, 2 => 1..5000_usize, 1 => 1..40_000_usize];
    prop_oneof![
        12 => words.prop_map(Step::Allocate),
        9 => (any::<usize>(), any::<bool>()).prop_map(|(which, exposed)| Step::Free { which, exposed }),
        2 => any::<usize>().prop_map(Step::Memory),
        1 => (0..4 * BLOCK).prop_map(Step::Trim),
        1 => Just(Step::FreeHeld),
    ]
}

fn run(gpu: &Vkgdr, trace: Vec<Step>) -> std::result::Result<(), TestCaseError> {
    let failed = |error: vkgdr::Error| TestCaseError::fail(error.to_string());
    let pool = Pool::new(gpu, options()).map_err(failed)?;
    let mut live: Vec<Filled> = Vec::new();
    for (number, step) in (1..).zip(trace) {
        let pick = |which: usize, live: &[Filled]| (!live.is_empty()).then(|| which % live.len());
        match step {
            Step::Allocate(words) => live.push(Filled::new(&pool, words * 4, number).map_err(failed)?),
            Step::Free { which, exposed } => {
                let Some(place) = pick(which, &live) else { continue };
                prop_assert!(live[place].is_intact().map_err(failed)?, "{:?}", live[place]);
                if let Some(memory) = live[place].memory.take() {
                    if exposed {
                        prop_assert_ne!(memory.device_ptr(), 0);
                    }
                    memory.free().map_err(failed)?;
                } else {
                    live[place].region = None;
                }
                if live[place].region.is_none() {
                    live.swap_remove(place);
                }
            }
            Step::Memory(which) => {
                let Some(place) = pick(which, &live) else { continue };
                if let Some(memory) = &live[place].memory {
                    let middle = memory.len() / 8 * 4;
                    live[place].region = Some(memory.slice(middle..).map_err(failed)?);
                }
            }
            Step::Trim(keep) => {
                let managed = pool.managed_bytes();
                prop_assert_eq!(pool.trim(keep), managed - pool.managed_bytes());
            }
            Step::FreeHeld => pool.release_unused(),
        }
        let bytes: usize = live.iter().map(|filled| filled.len).sum();
        prop_assert_eq!((pool.used_chunks(), pool.active_bytes()), (live.len(), bytes));
        prop_assert!(pool.managed_bytes() >= bytes);
    }
    for filled in &live {
        prop_assert!(filled.is_intact().map_err(failed)?, "{filled:?}");
    }
    live.clear();
    pool.release_unused();
    prop_assert_eq!((pool.free_chunks(), pool.managed_bytes()), (0, 0));
    Ok(())
}

#[test]
fn random_traces_agree_with_the_model() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let before = gpu.live_allocations();
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(trace in prop::collection::vec(step(), 1..250))| run(&gpu, trace)?);
    assert_eq!(gpu.live_allocations(), before);
    Ok(())
}

/// Chunks passed between the threads of the next test.
type Exchange = Mutex<Vec<Filled>>;

fn work(pool: &Pool, exchange: &Exchange, seed: u32) -> vkgdr::Result<usize> {
    const STEPS: u32 = 4000;
    let mut random = Random::new(seed.into());
    let mut live: Vec<Filled> = Vec::new();
    let mut damaged = 0;
    let lock = || exchange.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for step in 0..STEPS {
        if random.below(50) < 26 && live.len() < 100 {
            let most = [64, 500, 4000, 20_000][random.below(4)];
            let words = 1 + random.below(most);
            live.push(Filled::new(pool, words * 4, seed * STEPS + step)?);
        } else if !live.is_empty() {
            let mut filled = live.swap_remove(random.below(live.len()));
            damaged += usize::from(!filled.is_intact()?);
            match random.below(4) {
                // For another thread to free.
                0 => lock().push(filled),
                1 => {
                    filled.region = filled.memory.as_ref().map(|memory| memory.slice(..4)).transpose()?;
                    // The memory is freed here and its region by another thread, in either order.
                    let region = Filled { memory: None, region: filled.region.take(), ..filled };
                    lock().push(region);
                }
                2 => assert_ne!(filled.memory.as_ref().map(|memory| memory.device_ptr()), Some(0)),
                _ => {}
            }
        }
        if random.below(3) == 0 {
            let other = lock().pop();
            damaged += usize::from(other.is_some_and(|filled| !filled.is_intact().unwrap_or(false)));
        }
        match random.below(1000) {
            0 => assert!(pool.trim(random.below(8) * BLOCK).is_multiple_of(BLOCK)),
            1 => pool.release_unused(),
            2 => assert!(pool.free_chunks() < 1 << 20 && pool.active_bytes() < 1 << 30),
            _ => {}
        }
    }
    for filled in live {
        damaged += usize::from(!filled.is_intact()?);
    }
    Ok(damaged)
}

#[test]
fn eight_threads_never_see_each_others_bytes() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let before = gpu.live_allocations();
    let pool = Pool::new(&gpu, options())?;
    let exchange = Exchange::default();
    let damaged: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=8)
            .map(|seed| {
                scope.spawn({
                    let (pool, exchange) = (&pool, &exchange);
                    move || work(pool, exchange, seed)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for result in damaged {
        assert_eq!(result.map_err(|_| "a thread panicked")??, 0, "chunks overwritten by others");
    }
    drop(exchange);
    assert_eq!((pool.used_chunks(), pool.active_bytes()), (0, 0));
    pool.release_unused();
    assert_eq!((pool.free_chunks(), pool.managed_bytes(), gpu.live_allocations()), (0, 0, before));
    Ok(())
}
