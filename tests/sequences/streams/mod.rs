//! Random sequences on several of cudarc's streams, in two contexts, through safe functions alone.
//!
//! Each use of memory waits for the earlier uses that it must not overtake, on whatever streams. So the model is one
//! without streams: each step changes the expected bytes at once, and a later check finds these bytes. Streams are
//! delayed by microseconds, which lets the CPU get ahead of them and a stream without order ahead of another; they come and
//! go while memory stays. Free memory must keep no stream, and be lent to nobody before its uses have ended.
//!
//! A sequence alone in its process also makes the driver fail while a logger uses the library, blocks or panics.

mod item;
mod life;
mod logger;
mod step;
mod uses;

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use support::ledger::Live;
use support::{HOST_VIEWS, Result, simcuda, supported};
use vkgdr::cudarc::driver::{CudaContext, CudaFunction, CudaStream};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, Vkgdr};

use crate::tally::Tally;
use crate::{LONGEST, goal, open, report, runner, seed, threads};
use item::{Item, Site};
use step::{Step, What, step};

/// What the worlds of a process share.
struct Shared {
    gpu: Vkgdr,
    context: Arc<CudaContext>,
    kernel: CudaFunction,
    /// Kinds of memory with a host view.
    kinds: Vec<MemoryKind>,
    /// Whether no other thread uses the drivers: calls and objects can be counted, and calls fail.
    is_alone: bool,
    /// Keeps cudarc's tracking on.
    _kept: Option<Arc<CudaStream>>,
}

impl Shared {
    fn open(gpu: Vkgdr, is_alone: bool) -> Result<Self> {
        let context = CudaContext::new(0)?;
        let module = context.load_module(Ptx::from_src(include_str!("successor.ptx")))?;
        let (kernel, kinds) = (module.load_function("successor")?, supported(&gpu, &HOST_VIEWS));
        // cudarc tracks no uses while a context has no stream but the default one: other threads drop theirs at any time.
        let kept = if is_alone { None } else { Some(context.new_stream()?) };
        Ok(Self { gpu, context, kernel, kinds, is_alone: is_alone && simcuda().is_some(), _kept: kept })
    }
}

/// A stream, with the context that it belongs to.
#[derive(Clone, Debug)]
struct SiteStream {
    stream: Arc<CudaStream>,
    site: Site,
}

/// The contexts, streams, memory and pools of a sequence. It belongs to one thread.
struct World {
    // Drop order: memory before the objects that it depends on.
    items: Vec<Item>,
    pools: Vec<(Pool, Site)>,
    /// The default streams of both contexts, then others.
    streams: Vec<SiteStream>,
    /// Streams of the process when the world was made.
    foreign_streams: usize,
    tally: Tally<What>,
    /// Opened in the world's own context.
    plain_gpu: Vkgdr,
    shared: Arc<Shared>,
    plain: PlainContext,
}

/// A context of the world's own, in cudarc's types.
struct PlainContext {
    // Drop order: the memory for which cudarc's value was made, then the context.
    cudarc: Arc<CudaContext>,
    _memory: Memory,
    context: support::cuda::Context,
}

impl World {
    fn new(shared: &Arc<Shared>) -> Result<Self> {
        let plain_gpu = Vkgdr::open(0, OpenFlags::empty())?;
        let plain = PlainContext::new(&plain_gpu, shared.kinds[0])?;
        let of = |context: &Arc<CudaContext>, site| SiteStream { stream: context.default_stream(), site };
        let streams = vec![of(&shared.context, Site::Primary), of(&plain.cudarc, Site::Plain)];
        let foreign_streams = simcuda().map_or(0, |sim| sim.live_objects_of("stream"));
        let (items, pools, tally) = (Vec::new(), Vec::new(), Tally::default());
        let shared = Arc::clone(shared);
        let mut world = Self { items, pools, streams, foreign_streams, tally, plain_gpu, shared, plain };
        for site in [Site::Primary, Site::Plain] {
            let pool = world.pool(site, 0)?;
            world.pools.push((pool, site));
        }
        Ok(world)
    }

    /// Carries out a step if its operands exist.
    fn apply(&mut self, step: Step) -> Result {
        let done = match step.what {
            What::NewStream => self.new_stream(step),
            What::DropStream => Ok(self.drop_stream(step)),
            What::Delay => Ok(self.delay(step)),
            What::Allocate => self.allocate(step),
            What::PoolAllocate => self.pool_allocate(step),
            What::PoolAllocateOn => self.pool_allocate_on(step),
            What::AllocateFailing => self.allocate_failing(step),
            What::Orphan => self.orphan(step),
            What::Collect => Ok(self.collect()),
            What::Trim | What::FreeHeld => Ok(self.trim(step)),
            What::NewPool => self.new_pool(step),
            What::Wait => self.wait(step),
            What::Settle => self.settle().map(|()| true),
            What::Launch => self.launch(step),
            _ if self.items.is_empty() => Ok(false),
            _ => self.apply_to_item(step, usize::from(step.first) % self.items.len()),
        };
        if done.map_err(|error| format!("{:?}: {error}", step.what))? {
            self.tally.count(step.what);
        }
        Ok(())
    }

    fn apply_to_item(&mut self, step: Step, index: usize) -> Result<bool> {
        match step.what {
            What::Region => self.region(step, index),
            What::Bind => self.bind(step, index),
            What::Unbind => self.unbind(index),
            What::Fill => self.fill(step, index),
            What::Copy => self.copy(step, index),
            What::Race => self.race(step, index),
            What::Upload => self.upload(step, index),
            What::Download => self.download(step, index),
            What::HostWrite => self.host_write(step, index),
            What::HostRead => self.host_read(index),
            What::Free => self.free(step, index),
            What::FreeFailing => self.free_failing(step, index),
            other => Err(format!("{other:?} is not a step on memory").into()),
        }
    }

    /// Checks and frees everything. Returns the counts.
    fn end(mut self) -> Result<Tally<What>> {
        self.settle()?;
        if self.tally.total().is_multiple_of(2) {
            self.items.reverse();
        }
        self.items.clear();
        self.settle()?;
        self.streams.truncate(2);
        self.pools.clear();
        self.settle()?;
        // On top of the thread's contexts, so that its end removes it from there.
        self.plain.cudarc.bind_to_thread()?;
        Ok(std::mem::take(&mut self.tally))
    }
}

impl PlainContext {
    fn new(gpu: &Vkgdr, kind: MemoryKind) -> Result<Self> {
        use vkgdr::cudarc::driver::DeviceSlice;

        let context = support::cuda::Context::create(0);
        let memory = Memory::allocate(gpu, 1, kind)?;
        let cudarc = Arc::clone(DeviceSlice::<u8>::stream(&memory).context());
        Ok(Self { cudarc, _memory: memory, context })
    }
}

/// One sequence. An error names the last steps.
fn run(shared: &Arc<Shared>, steps: &[Step]) -> Result<Tally<What>> {
    /// Steps that an error names.
    const NAMED: usize = 30;
    let mut world = World::new(shared)?;
    for (number, step) in steps.iter().enumerate() {
        world.apply(*step).map_err(|error| {
            let last = steps[number.saturating_sub(NAMED)..=number].iter().map(|step| format!("\n{step:?}"));
            format!("step {number}, {error}; the last steps: {}", last.collect::<String>())
        })?;
    }
    world.end().map_err(|error| format!("at the end of {} steps, {error}", steps.len()).into())
}

/// Runs sequences on one thread until the number of steps is reached.
fn work(shared: &Arc<Shared>, seed: u64, goal: u64) -> Result<(Tally<What>, u64)> {
    let mut runner = runner(seed, 1);
    let steps = prop::collection::vec(step(), 1..LONGEST);
    let (mut tally, mut sequences) = (Tally::default(), 0);
    while tally.total() < goal {
        let tree = steps.new_tree(&mut runner).map_err(|reason| reason.to_string())?;
        let before = Live::now();
        let done = run(shared, &tree.current()).map_err(|error| format!("sequence {sequences}, {error}"))?;
        let after = Live::now();
        if shared.is_alone && after != before {
            return Err(format!("sequence {sequences} left behind: {before:?} became {after:?}").into());
        }
        tally.add(&done);
        sequences += 1;
    }
    Ok((tally, sequences))
}

#[test]
fn random_sequences_on_streams_agree_with_a_model_without_streams() -> Result {
    let gpu = open()?;
    let (goal, seed) = (goal(), seed());
    logger::install();
    let shared = Arc::new(Shared::open(gpu, true)?);
    let (tally, sequences) = work(&shared, seed, goal).map_err(|error| format!("VKGDR_SEED={seed}: {error}"))?;
    println!("log lines: {}", logger::lines());
    report("streams", sequences, seed, &tally);
    Ok(())
}

#[test]
fn sixteen_threads_of_sequences_on_streams_agree_with_their_models() -> Result {
    let gpu = open()?;
    let (goal, seed) = (goal(), seed());
    let shared = Arc::new(Shared::open(gpu, false)?);
    let (mut all, mut sequences) = (Tally::default(), 0);
    thread::scope(|scope| {
        let start = |number| {
            // Seeds far enough apart that no thread repeats another.
            let (shared, seed) = (&shared, seed.wrapping_add(number << 40));
            scope.spawn(move || work(shared, seed, goal / threads()).map_err(|error| error.to_string()))
        };
        let threads: Vec<_> = (0..threads()).map(start).collect();
        for (number, thread) in threads.into_iter().enumerate() {
            let done = thread.join().map_err(|_| format!("thread {number} panicked, see above"))?;
            let (tally, count) = done.map_err(|error| format!("thread {number}, VKGDR_SEED={seed}: {error}"))?;
            all.add(&tally);
            sequences += count;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    report("stream-threads", sequences, seed, &all);
    Ok(())
}
