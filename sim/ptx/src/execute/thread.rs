//! The state of one thread of a kernel, and the trouble that ends it.

use crate::fault::FaultKind;
use crate::link::Linked;
use crate::op::{LOCAL_BASE, Slot};
use std::time::Instant;

/// The scheduling state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// Sleeps until then.
    Sleeping(Instant),
    /// Waits at the barrier with this number; the program counter is at the barrier's instruction.
    AtBarrier(u32),
    /// Waits at a collective instruction of the warp, for the lanes of the mask or those present. The program counter
    /// is at the instruction.
    AtWarp(Option<u32>),
    Exited,
}

/// The reason why a thread cannot continue.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) kind: FaultKind,
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) detail: String,
}

impl From<FaultKind> for Trouble {
    fn from(kind: FaultKind) -> Trouble {
        Trouble { kind, address: 0, bytes: 0, detail: String::new() }
    }
}

/// An active call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The caller's.
    pub(super) function: usize,
    pub(super) pc: usize,
    pub(super) base: usize,
    /// The index of the call in the caller.
    pub(super) call: usize,
    /// The size of the thread's local memory at the call.
    pub(super) local_len: usize,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) state: State,
    pub(super) index: [u32; 3],
    /// The index in the block.
    pub(super) number: u32,
    pub(super) function: usize,
    /// The next operation.
    pub(super) pc: usize,
    /// The start of the current frame in `registers`.
    pub(super) base: usize,
    /// The frames of all active calls; empty before the thread starts.
    pub(super) registers: Vec<u64>,
    /// The local memory of all active calls.
    pub(super) local: Vec<u8>,
    pub(super) callers: Vec<Frame>,
    /// A bit for each barrier at which it arrived without waiting.
    pub(super) arrived: u32,
    /// Whether the cluster's barrier was complete after it arrived there, before it waits.
    pub(super) passed: bool,
    /// The number of turns spent waiting for its warp in vain.
    pub(super) patience: u32,
    /// Whether it yielded the rest of its turn to the other lanes of its warp.
    pub(super) yielded: bool,
}

/// Buffers of ended threads, reused by new ones.
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
            passed: false,
            patience: 0,
            yielded: false,
        }
    }

    pub(super) fn lane(&self) -> u32 {
        self.number % 32
    }

    /// Creates the first frame of a new thread.
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

    /// The start of the current frame's local memory.
    pub(super) fn local_base(&self) -> u64 {
        self.slot(LOCAL_BASE)
    }
}
