//! Executes launches: a few blocks at a time, on up to as many of the machine's threads as there are blocks.
//!
//! A block stays on one of them, so that only global memory is shared. Its threads take turns: each runs until it
//! waits, ends, or has jumped backwards a fixed number of times. Hence a thread may spin on a value that another thread,
//! another block or the CPU writes. Blocks beyond [`RESIDENT`] start when others end, as on a GPU.

mod access;
mod barrier;
mod block;
mod call;
mod runtime;
mod special;
mod step;
mod thread;
mod warp;

pub(crate) use access::window_base;

use crate::link::Linked;
use crate::{Fault, FaultKind, Launch, Memory};
use block::Block;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use thread::{Frames, Thread};

/// The maximum number of blocks of a launch that run concurrently.
pub const RESIDENT: usize = 32;
/// The limit on registers and local memory of the resident blocks together, in bytes; one block always runs.
const RESIDENT_BYTES: u64 = 1 << 30;
/// The same on every GPU.
const MOST_THREADS: u64 = 1024;
/// More than the limit of any GPU.
const MOST_SHARED: u64 = 1 << 20;

/// The state that all blocks of a launch share.
pub(crate) struct Grid<'l> {
    pub(crate) program: &'l Linked,
    pub(crate) memory: &'l dyn Memory,
    pub(crate) kernel: &'l str,
    /// The kernel's index among the functions.
    pub(crate) entry: usize,
    pub(crate) size: [u32; 3],
    pub(crate) block_size: [u32; 3],
    pub(crate) parameters: Vec<u8>,
    pub(crate) dynamic_shared: u32,
    pub(crate) dynamic_shared_base: u64,
    pub(crate) shared_bytes: u64,
    pub(crate) start: Instant,
    next_block: AtomicU64,
    stop: AtomicBool,
    fault: Mutex<Option<Fault>>,
}

/// Executes every block of a launch. Returns when all have ended, or at the first fault.
///
/// # Errors
///
/// The first [`Fault`]; the work of other threads is abandoned.
pub fn run(launch: &Launch, memory: &dyn Memory) -> Result<(), Fault> {
    let grid = grid(launch, memory)?;
    let blocks = grid.blocks();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = usize::try_from(blocks).unwrap_or(usize::MAX).min(processors).max(1);
    let share = usize::try_from(blocks.div_ceil(workers as u64)).unwrap_or(usize::MAX);
    let fitting = usize::try_from(RESIDENT_BYTES / grid.block_bytes()).unwrap_or(usize::MAX);
    let capacity = share.min(RESIDENT.min(fitting).div_ceil(workers)).max(1);
    std::thread::scope(|scope| {
        for _ in 1..workers {
            // If the machine cannot start a thread, fewer run.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || grid.work(capacity));
        }
        grid.work(capacity);
    });
    match grid.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}

/// Checks the launch's parameters.
fn grid<'l>(launch: &'l Launch, memory: &'l dyn Memory) -> Result<Grid<'l>, Fault> {
    let kernel = &launch.kernel;
    let threads = launch.block.iter().map(|&length| u64::from(length)).try_fold(1u64, u64::checked_mul);
    let most = kernel.max_threads().map_or(MOST_THREADS, |most| u64::from(most).min(MOST_THREADS));
    let dynamic_shared_base = kernel.shared_bytes().next_multiple_of(kernel.program.dynamic_align);
    let shared_bytes = dynamic_shared_base + u64::from(launch.dynamic_shared);
    let problem = if launch.grid.contains(&0) || launch.block.contains(&0) {
        "the grid or the block is empty".to_owned()
    } else if launch.grid.iter().map(|&length| u64::from(length)).try_fold(1u64, u64::checked_mul).is_none() {
        "the grid has too many blocks".to_owned()
    } else if threads.is_none_or(|threads| threads > most) {
        format!("the block {:?} has more than {most} threads", launch.block)
    } else if kernel.required_block().is_some_and(|required| required != launch.block) {
        format!("the block {:?} is not the one that .reqntid demands", launch.block)
    } else if shared_bytes > MOST_SHARED {
        format!("{shared_bytes} bytes of shared memory are more than {MOST_SHARED}")
    } else {
        String::new()
    };
    if !problem.is_empty() {
        return Err(Fault { detail: problem, ..Fault::new(FaultKind::InvalidLaunch, kernel.name()) });
    }
    let mut parameters = launch.parameters.clone();
    parameters.resize(kernel.parameter_bytes(), 0);
    Ok(Grid {
        program: &kernel.program,
        memory,
        kernel: kernel.name(),
        entry: kernel.linked().head.function,
        size: launch.grid,
        block_size: launch.block,
        parameters,
        dynamic_shared: launch.dynamic_shared,
        dynamic_shared_base,
        shared_bytes,
        start: Instant::now(),
        next_block: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        fault: Mutex::new(None),
    })
}

impl Grid<'_> {
    fn blocks(&self) -> u64 {
        self.size.iter().map(|&length| u64::from(length)).product()
    }

    /// The memory of a block while all of its threads are active, in bytes.
    fn block_bytes(&self) -> u64 {
        let entry = &self.program.functions[self.entry];
        let thread = entry.function.local_bytes + 8 * entry.frame.len() as u64 + size_of::<Thread>() as u64;
        let threads: u64 = self.block_size.iter().map(|&length| u64::from(length)).product();
        thread * threads + self.shared_bytes
    }

    /// Runs blocks until none is left.
    fn work(&self, capacity: usize) {
        let mut resident: Vec<Block<'_>> = Vec::new();
        let mut frames = Frames::default();
        while !self.stop.load(Ordering::Relaxed) {
            while resident.len() < capacity
                && let Some(block) = self.start_block()
            {
                resident.push(block);
            }
            if resident.is_empty() {
                return;
            }
            if let Err(fault) = self.turn(&mut resident, &mut frames) {
                self.report(fault);
            }
        }
    }

    /// Gives every resident block one turn.
    fn turn(&self, resident: &mut Vec<Block<'_>>, frames: &mut Frames) -> Result<(), Fault> {
        let (mut ended, mut wake) = (false, Some(Duration::MAX));
        for block in resident.iter_mut() {
            // A block's turn may take a tenth of a second.
            if self.memory.interrupted() {
                return Err(Fault::new(FaultKind::Interrupted, self.kernel));
            }
            block.turn(frames)?;
            ended |= block.has_ended();
            wake = wake.and_then(|wake| Some(wake.min(block.sleeps_for()?)));
        }
        resident.retain(|block| !block.has_ended());
        match wake {
            // A sleep is short, so that an interruption is noticed soon.
            Some(time) if !resident.is_empty() => std::thread::sleep(time.min(Duration::from_millis(1))),
            // A spinning kernel may wait for another thread of this machine.
            _ if !ended => std::thread::yield_now(),
            _ => {}
        }
        Ok(())
    }

    fn start_block(&self) -> Option<Block<'_>> {
        let blocks = self.blocks();
        let next = self
            .next_block
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < blocks).then_some(next + 1));
        let index = next.ok()?;
        let (width, height) = (u64::from(self.size[0]), u64::from(self.size[1]));
        let place = [index % width, index / width % height, index / width / height];
        // Each is smaller than the grid's length in its dimension.
        Some(Block::new(self, place.map(|at| u32::try_from(at).unwrap_or(u32::MAX))))
    }

    fn report(&self, fault: Fault) {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
        self.stop.store(true, Ordering::Relaxed);
    }
}
