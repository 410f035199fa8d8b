//! Executes launches: a few blocks at a time, on up to as many of the machine's threads as there are blocks.
//!
//! A block stays on one of them, so that only global memory is shared. Its warps take turns: each lane runs until it
//! waits, ends, or has jumped backwards a fixed number of times. Hence a thread may spin on a value that another thread,
//! another block or the CPU writes. Lanes of a warp at the same instruction execute it together. Blocks beyond
//! [`RESIDENT`] start when others end, as on a GPU; those of a cooperative launch, which wait for each other, run all at once.

mod access;
mod active;
mod arrive;
mod barrier;
mod block;
mod budget;
mod call;
mod collective;
mod grid;
mod matrix;
mod printf;
mod queue;
mod runtime;
mod special;
mod step;
mod turn;
mod update;
mod warp;

use crate::fault::{Fault, FaultKind};
use crate::memory::Memory;
use crate::program::{Kernel, Launch};
use block::Block;
use grid::Grid;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use warp::Frames;

/// The maximum number of blocks of a launch that run concurrently, unless it is cooperative.
pub const RESIDENT: usize = 32;
/// The limit on registers, local and shared memory of the resident blocks together, in bytes; one block always runs. What
/// calls add has a limit of its own, see [`budget`].
const RESIDENT_BYTES: u64 = 1 << 30;

/// The number of threads that the machine runs at once. Asking for it costs as much as a small kernel.
static PROCESSORS: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// A launch that runs: its blocks are handed out one by one.
struct Run<'l> {
    grid: Grid<'l>,
    next_block: AtomicU64,
    stop: AtomicBool,
    fault: Mutex<Option<Fault>>,
}

/// The maximum number of blocks of a cooperative launch, by the memory that blocks of that many threads need.
#[must_use]
pub fn max_cooperative_blocks(kernel: &Kernel, threads: u64, dynamic_shared: u32) -> u64 {
    RESIDENT_BYTES / grid::block_bytes(kernel, threads, dynamic_shared)
}

/// Executes every block of a launch. Returns when all have ended, or at the first fault.
///
/// # Errors
///
/// The first [`Fault`]; the work of other threads is abandoned.
pub fn run(launch: &Launch, memory: &dyn Memory) -> Result<(), Fault> {
    let grid = Grid::new(launch, memory)?;
    let blocks = grid.blocks();
    let threads = launch.block.iter().map(|&length| u64::from(length)).product();
    let fitting = blocks.min(max_cooperative_blocks(&launch.kernel, threads, launch.dynamic_shared));
    let resident = if launch.workspace == 0 { fitting.min(RESIDENT as u64) } else { fitting };
    let mut shares = shares(usize::try_from(resident).unwrap_or(usize::MAX), *PROCESSORS);
    let run = Run { grid, next_block: AtomicU64::new(0), stop: AtomicBool::new(false), fault: Mutex::new(None) };
    std::thread::scope(|scope| {
        let mut own = shares.next().unwrap_or(1);
        for share in shares {
            let run = &run;
            if std::thread::Builder::new().spawn_scoped(scope, move || run.work(share)).is_err() {
                // The machine has no more threads. Blocks of a cooperative launch wait for each other: this thread runs them.
                own += share;
            }
        }
        run.work(own);
    });
    match run.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}

/// The number of resident blocks of each thread of the machine: together all of them, and at least one.
fn shares(resident: usize, processors: usize) -> impl Iterator<Item = usize> {
    let resident = resident.max(1);
    let workers = processors.clamp(1, resident);
    (0..workers).map(move |worker| resident / workers + usize::from(worker < resident % workers))
}

impl Run<'_> {
    /// Runs blocks until none is left.
    fn work(&self, capacity: usize) {
        let mut resident: Vec<Block<'_>> = Vec::new();
        let mut frames = Frames::default();
        while !self.stop.load(Ordering::Relaxed) {
            while resident.len() < capacity
                && let Some(index) = self.next_index()
            {
                resident.push(Block::new(&self.grid, index));
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
            if self.grid.memory.interrupted() {
                return Err(Fault::new(FaultKind::Interrupted, self.grid.kernel));
            }
            block.turn(frames)?;
            ended |= block.has_ended();
            wake = wake.and_then(|wake| Some(wake.min(block.sleeps_for()?)));
        }
        if ended {
            resident.retain_mut(|block| !block.has_ended() || self.restart(block));
            return Ok(());
        }
        match wake {
            // A sleep is short, so that an interruption is noticed soon.
            Some(time) => std::thread::sleep(time.min(Duration::from_millis(1))),
            // A spinning kernel may wait for another thread of this machine.
            None => std::thread::yield_now(),
        }
        Ok(())
    }

    /// Makes an ended block one that has not started; whether there is one.
    fn restart(&self, block: &mut Block<'_>) -> bool {
        self.next_index().inspect(|index| block.restart(*index)).is_some()
    }

    /// The index of a block that has not started.
    fn next_index(&self) -> Option<[u32; 3]> {
        let blocks = self.grid.blocks();
        #[allow(deprecated, reason = "its new name, try_update, needs Rust 1.95")]
        let next = self
            .next_block
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < blocks).then_some(next + 1));
        let index = next.ok()?;
        let (width, height) = (u64::from(self.grid.size[0]), u64::from(self.grid.size[1]));
        let place = [index % width, index / width % height, index / width / height];
        // Each is smaller than the grid's length in its dimension.
        Some(place.map(|at| u32::try_from(at).unwrap_or(u32::MAX)))
    }

    fn report(&self, fault: Fault) {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::shares;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn threads_share_the_resident_blocks_evenly(resident in 0usize..100, processors in 0usize..200) {
            let shares: Vec<usize> = shares(resident, processors).collect();
            prop_assert_eq!(shares.iter().sum::<usize>(), resident.max(1));
            prop_assert!(shares.len() <= processors.max(1));
            let (least, most) = (shares.iter().min().copied(), shares.iter().max().copied());
            prop_assert!(least >= Some(1) && most <= least.map(|least| least + 1));
        }
    }
}
