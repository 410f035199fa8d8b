//! One thread of a kernel: where it stands and what it holds.

use crate::link::Linked;
use crate::op::{LOCAL_BASE, Slot};
use std::time::Instant;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// Until then.
    Sleeping(Instant),
    /// At the barrier of this number; the program counter is at its instruction.
    AtBarrier(u32),
    /// At what the lanes of a warp do together: those of the mask, or those that are here. The program counter is
    /// at the instruction.
    AtWarp(Option<u32>),
    Exited,
}

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The caller's.
    pub(super) function: usize,
    pub(super) pc: usize,
    pub(super) base: usize,
    /// Which of the caller's calls.
    pub(super) call: usize,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) state: State,
    pub(super) index: [u32; 3],
    /// In the block.
    pub(super) number: u32,
    pub(super) function: usize,
    /// The next operation.
    pub(super) pc: usize,
    /// Where the current frame begins in `registers`.
    pub(super) base: usize,
    /// The frames of all calls; none before the thread has begun.
    pub(super) registers: Vec<u64>,
    /// The local memory of all calls.
    pub(super) local: Vec<u8>,
    pub(super) callers: Vec<Frame>,
    /// The barriers at which it arrived without waiting, a bit each.
    pub(super) arrived: u16,
    /// How often it has waited in vain for its warp to come together.
    pub(super) patience: u32,
    /// Whether it left the rest of its turn to the other lanes of its warp.
    pub(super) yielded: bool,
}

/// Frames of threads that have ended, for those that begin.
#[derive(Debug, Default)]
pub(super) struct Frames {
    spare: Vec<(Vec<u64>, Vec<u8>)>,
}

impl Thread {
    pub(super) fn new(entry: usize, index: [u32; 3], number: u32) -> Thread {
        Thread {
            state: State::Ready,
            index,
            number,
            function: entry,
            pc: 0,
            base: 0,
            registers: Vec::new(),
            local: Vec::new(),
            callers: Vec::new(),
            arrived: 0,
            patience: 0,
            yielded: false,
        }
    }

    pub(super) fn lane(&self) -> u32 {
        self.number % 32
    }

    /// Gives a thread that has not begun its first frame.
    pub(super) fn begin(&mut self, program: &Linked, frames: &mut Frames) {
        if !self.registers.is_empty() {
            return;
        }
        let entry = &program.functions[self.function];
        (self.registers, self.local) = frames.spare.pop().unwrap_or_default();
        self.registers.clear();
        self.registers.extend_from_slice(&entry.frame);
        self.local.clear();
        self.local.resize(usize::try_from(entry.function.local_bytes).unwrap_or(0), 0);
    }

    pub(super) fn end(&mut self, frames: &mut Frames) {
        self.state = State::Exited;
        frames.spare.push((std::mem::take(&mut self.registers), std::mem::take(&mut self.local)));
    }

    pub(super) fn slot(&self, slot: Slot) -> u64 {
        self.registers[self.base + slot as usize]
    }

    pub(super) fn set_slot(&mut self, slot: Slot, value: u64) {
        self.registers[self.base + slot as usize] = value;
    }

    /// Where the current frame's local memory begins.
    pub(super) fn local_base(&self) -> u64 {
        self.slot(LOCAL_BASE)
    }
}
