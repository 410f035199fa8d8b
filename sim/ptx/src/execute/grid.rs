//! What all blocks of a launch share: the program, the memory, and the launch's shape.

use super::budget::Budget;
use super::warp::Warp;
use crate::arithmetic::lanewise::Lanes;
use crate::fault::{Fault, FaultKind};
use crate::link::Linked;
use crate::memory::Memory;
use crate::program::{Kernel, Launch};
use crate::window::RESERVED_SHARED;
use std::time::Instant;

/// The same on every GPU.
const MOST_THREADS: u64 = 1024;
/// More than the limit of any GPU.
const MOST_SHARED: u64 = 1 << 20;
/// Enough for any type of PTX.
const RESERVED_SHARED_ALIGN: u64 = 16;

/// The state that all blocks of a launch share.
pub(super) struct Grid<'l> {
    pub(super) program: &'l Linked,
    pub(super) memory: &'l dyn Memory,
    pub(super) kernel: &'l str,
    /// The kernel's index among the functions.
    pub(super) entry: usize,
    pub(super) size: [u32; 3],
    pub(super) block_size: [u32; 3],
    pub(super) parameters: Vec<u8>,
    pub(super) dynamic_shared: u32,
    pub(super) dynamic_shared_base: u64,
    pub(super) shared_bytes: u64,
    pub(super) reserved_shared_base: u64,
    has_reserved_shared: bool,
    pub(super) workspace: u64,
    pub(super) start: Instant,
    /// For the calls of all blocks.
    pub(super) budget: Budget,
}

impl<'l> Grid<'l> {
    /// The grid of a launch, whose parameters are checked.
    pub(super) fn new(launch: &'l Launch, memory: &'l dyn Memory) -> Result<Self, Fault> {
        let kernel = &launch.kernel;
        let threads = launch.block.iter().map(|&length| u64::from(length)).try_fold(1u64, u64::checked_mul);
        let most = kernel.max_threads().map_or(MOST_THREADS, |most| u64::from(most).min(MOST_THREADS));
        let dynamic_shared_base = dynamic_shared_base(kernel);
        let shared_bytes = dynamic_shared_base + u64::from(launch.dynamic_shared);
        let problem = if let Some(error) = kernel.unsupported() {
            error.to_string()
        } else if launch.grid.contains(&0) || launch.block.contains(&0) {
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
        Ok(Self {
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
            reserved_shared_base: shared_bytes.next_multiple_of(RESERVED_SHARED_ALIGN),
            has_reserved_shared: kernel.linked().reserved_shared,
            workspace: launch.workspace,
            start: Instant::now(),
            budget: Budget::default(),
        })
    }

    /// The number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.size.iter().map(|&length| u64::from(length)).product()
    }

    /// The shared memory of a block. The reserved part is last and only there for kernels that ask for its address: for the
    /// others, an access past the end of their own is a fault.
    pub(super) fn allocated_shared(&self) -> u64 {
        if self.has_reserved_shared {
            self.reserved_shared_base + u64::from(RESERVED_SHARED)
        } else {
            self.shared_bytes
        }
    }
}

/// The start of dynamic shared memory, after the kernel's variables.
fn dynamic_shared_base(kernel: &Kernel) -> u64 {
    kernel.shared_bytes().next_multiple_of(kernel.program.dynamic_align)
}

/// The memory of a block of that many threads, while all of them are active, in bytes.
pub(super) fn block_bytes(kernel: &Kernel, threads: u64, dynamic_shared: u32) -> u64 {
    let entry = &kernel.program.functions[kernel.linked().head.function];
    let warp = (entry.slots * size_of::<Lanes>() + size_of::<Warp>()) as u64;
    let shared = dynamic_shared_base(kernel) + u64::from(dynamic_shared) + u64::from(RESERVED_SHARED);
    entry.function.local_bytes * threads + warp * threads.div_ceil(32) + shared
}
