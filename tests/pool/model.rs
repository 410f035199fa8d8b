//! Pools against a naive model: random traces, and fill patterns that show any overlap.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use support::Result;
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
