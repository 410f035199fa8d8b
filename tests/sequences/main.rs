//! Random sequences of all public operations, checked against a model of every byte as the CPU and the device must see
//! it. At the end no object is left in either driver.
//!
//! `VKGDR_STEPS` sets the number of steps; `VKGDR_SEED` repeats a run. The sequences run unchanged on every device
//! profile (`VKGDR_TEST_PROFILE`): a kind of memory that the GPU lacks or has no room for must be refused. A run prints
//! what it did. The steps are those of `support::step`.

mod soak;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use support::driver::rounds;
use support::ledger::Live;
use support::state::State;
use support::step::{Code, Engine, Step, What};
use support::{Result, amount, number};
use vkgdr::{Error, OpenFlags, Vkgdr};
use world::{Shared, World};

/// Steps when run with the other tests, with `VKGDR_TEST_ALL=1`, and on a real driver, where steps take milliseconds.
const STEPS: u64 = 500;
const MORE_STEPS: u64 = 3000;
const STEPS_ON_A_GPU: u64 = 600;
/// Steps of the longest sequence. Long sequences keep many objects alive, short ones start from nothing.
const LONGEST: usize = 400;
const THREADS: u64 = 16;
/// Each thread has a context, which takes a GPU hundreds of megabytes.
const THREADS_ON_A_GPU: u64 = 4;

/// The number of steps of a test.
fn goal() -> u64 {
    number("VKGDR_STEPS").unwrap_or_else(|| rounds(amount(STEPS, MORE_STEPS), STEPS_ON_A_GPU))
}

/// The number of threads that run sequences at once.
fn threads() -> u64 {
    rounds(THREADS, THREADS_ON_A_GPU)
}

fn seed() -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    number("VKGDR_SEED").unwrap_or_else(now)
}

fn profile() -> String {
    std::env::var("VKGDR_TEST_PROFILE").unwrap_or_else(|_| "none".to_owned())
}

/// Counts of steps.
#[derive(Clone, Debug, Default)]
struct Tally {
    steps: BTreeMap<What, u64>,
    /// Allocations refused for lack of memory.
    refused: u64,
}

impl Tally {
    /// All steps that did something.
    fn total(&self) -> u64 {
        self.steps.values().sum()
    }

    fn add(&mut self, other: &Self) {
        for (what, count) in &other.steps {
            *self.steps.entry(*what).or_default() += count;
        }
        self.refused += other.refused;
    }
}

/// Draws a sequence.
fn steps(engine: Engine) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<Code>().prop_map(move |code| Step::decode(engine, code)), 1..LONGEST)
}

/// Whether an allocation may exceed the device's memory. Without a device profile it cannot.
fn has_little_room() -> bool {
    profile() != "none" || support::driver::has_gpu()
}

/// Whether the process runs under Vulkan's validation layer.
fn is_validated() -> bool {
    std::env::var_os("VKGDR_TEST_LAYERS").is_some_and(|layers| layers == "validation")
}

/// Whether an error says that the GPU lacks a kind of memory, by itself or for want of Vulkan.
fn is_lack(error: &Error) -> bool {
    matches!(error, Error::NoSuitableMemoryType { .. } | Error::NoVulkan { .. } | Error::Extension { .. })
}

/// A handle, which keeps the primary context.
fn open() -> Result<Vkgdr> {
    Ok(Vkgdr::open_primary_context(0, OpenFlags::empty())?)
}

fn runner(seed: u64, cases: u32) -> TestRunner {
    let rng_seed = RngSeed::Fixed(seed);
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

/// One sequence in a world of its own.
fn run(shared: &Arc<Shared>, steps: Vec<Step>) -> Result<Tally> {
    let mut world = World::new(shared)?;
    for (number, step) in steps.into_iter().enumerate() {
        world.apply(step).map_err(|error| format!("step {number}, {step:?}: {error}"))?;
    }
    world.end()
}

/// Runs one sequence and checks that it leaves no driver object behind.
fn run_alone(steps: Vec<Step>) -> Result<Tally> {
    let before = Live::now();
    let shared = Arc::new(Shared::open()?);
    let tally = run(&shared, steps)?;
    shared.clear();
    drop(shared);
    // The sequence may have closed its handles while streams used what it had freed.
    open()?.collect();
    let after = Live::now();
    if after == before { Ok(tally) } else { Err(format!("left behind: {before:?} became {after:?}").into()) }
}

fn report(what: &str, sequences: u64, seed: u64, tally: &Tally) {
    let (steps, refused, profile) = (tally.total(), tally.refused, profile());
    let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let (copies, layers) = (variable("VKGDR_COPY", "default"), variable("VKGDR_TEST_LAYERS", "none"));
    println!(
        "sequences what={what} profile={profile} copies={copies} layers={layers} sequences={sequences} \
         steps={steps} refused={refused} seed={seed}"
    );
    println!("steps: {:?}", tally.steps);
}

#[test]
fn random_sequences_agree_with_the_model() -> Result {
    let gpu = open()?;
    let batch = rounds(8, 2);
    let (goal, seed) = (goal(), seed());
    let mut all = Tally::default();
    let mut batches = 0;
    let mut before = None;
    while all.total() < goal {
        let tally = std::cell::RefCell::new(Tally::default());
        let result = runner(seed + batches, batch).run(&steps(Engine::Crate), |steps| {
            let done = run_alone(steps).map_err(|error| TestCaseError::fail(error.to_string()))?;
            tally.borrow_mut().add(&done);
            Ok(())
        });
        result.map_err(|error| format!("VKGDR_SEED={} repeats it: {error}", seed + batches))?;
        all.add(&tally.into_inner());
        batches += 1;
        gpu.collect();
        // The first batch created the objects that the drivers keep.
        before.get_or_insert_with(State::take);
    }
    if let Some(before) = before {
        State::assert_unchanged(&before, "all the sequences");
    }
    report("alone", batches * u64::from(batch), seed, &all);
    Ok(())
}

/// Runs sequences on one thread until the number of steps is reached.
fn work(shared: &Arc<Shared>, engine: Engine, seed: u64, goal: u64) -> Result<(Tally, u64)> {
    let mut runner = runner(seed, 1);
    let (mut tally, mut sequences) = (Tally::default(), 0);
    while tally.total() < goal {
        let tree = steps(engine).new_tree(&mut runner).map_err(|reason| reason.to_string())?;
        tally.add(&run(shared, tree.current())?);
        sequences += 1;
    }
    Ok((tally, sequences))
}

/// Runs sequences on many threads that share handles, pools and memory.
fn work_together(engine: Engine, seed: u64, goal: u64) -> Result<(Tally, u64)> {
    let shared = Arc::new(Shared::open()?);
    let results: Vec<_> = thread::scope(|scope| {
        let shared = &shared;
        let start = |number| {
            // Seeds far enough apart that no thread repeats another.
            let seed = seed.wrapping_add(number << 40);
            scope.spawn(move || work(shared, engine, seed, goal / threads()).map_err(|error| error.to_string()))
        };
        let threads: Vec<_> = (0..threads()).map(start).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let (mut all, mut sequences) = (Tally::default(), 0);
    for (number, result) in results.into_iter().enumerate() {
        let done = result.map_err(|_| format!("thread {number} panicked, see above"))?;
        let (tally, count) = done.map_err(|error| format!("thread {number}, VKGDR_SEED={seed}: {error}"))?;
        all.add(&tally);
        sequences += count;
    }
    shared.clear();
    Ok((all, sequences))
}

/// Threads leave nothing behind.
fn assert_threads_agree(engine: Engine, goal: u64) -> Result {
    let gpu = open()?;
    let (seed, before) = (seed(), Live::now());
    let (tally, sequences) = work_together(engine, seed, goal)?;
    gpu.collect();
    assert_eq!(Live::now(), before);
    report(&format!("threads of {engine:?}"), sequences, seed, &tally);
    Ok(())
}

#[test]
fn sixteen_threads_of_sequences_agree_with_their_models() -> Result {
    assert_threads_agree(Engine::Crate, goal())
}

#[test]
fn threads_and_pools_that_come_and_go_lose_nothing() -> Result {
    assert_threads_agree(Engine::Pools, (4 * goal()).max(rounds(10_000, 2400)))
}
