//! The state of the 32 threads of a warp, its lanes, and the trouble that ends one.

use super::budget::Budget;
use crate::arithmetic::lanewise::{LANES, Lanes};
use crate::fault::FaultKind;
use crate::lanes::members;
use crate::link::{Linked, LinkedFunction};
use crate::op::{LOCAL_BASE, Slot};
use std::time::Instant;

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

/// The trouble of a lane.
pub(super) type LaneTrouble = (usize, Trouble);

/// An active call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The caller's.
    pub(super) function: u32,
    pub(super) pc: u32,
    pub(super) base: u32,
    /// The index of the call in the caller.
    pub(super) call: usize,
    /// The size of the thread's local memory at the call.
    pub(super) local_len: usize,
}

/// The lanes that are in one state; each is in one of these, or has exited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct States {
    pub(super) ready: u32,
    pub(super) sleeping: u32,
    /// The program counter is at the barrier's instruction.
    pub(super) at_barrier: u32,
    /// Waits at a collective instruction of the warp, at which the program counter is.
    pub(super) at_warp: u32,
}

impl States {
    /// The lanes that have not exited.
    pub(super) fn live(&self) -> u32 {
        self.ready | self.sleeping | self.at_barrier | self.at_warp
    }
}

/// Values of one kind for each lane.
type PerLane<T> = [T; LANES];

pub(super) struct Warp {
    pub(super) states: States,
    /// The lanes that the block has.
    pub(super) exist: u32,
    /// The index of the first lane in the block.
    pub(super) first: u32,
    /// The index in the block by axis.
    pub(super) index: [PerLane<u32>; 3],
    pub(super) function: PerLane<u32>,
    /// The next operation.
    pub(super) pc: PerLane<u32>,
    /// The start of the current frame in `registers`.
    pub(super) base: PerLane<u32>,
    /// What is left of the turn.
    pub(super) fuel: PerLane<u32>,
    /// The frames of all active calls, each a column; empty before the warp starts.
    pub(super) registers: Vec<Lanes>,
    /// The local memory of all active calls.
    pub(super) local: PerLane<Vec<u8>>,
    pub(super) callers: PerLane<Vec<Frame>>,
    pub(super) wakes: PerLane<Option<Instant>>,
    /// The barrier at which a lane waits.
    pub(super) barrier: PerLane<u8>,
    /// A bit for each barrier at which lanes wait.
    pub(super) barriers: u32,
    /// The lanes that wait at a `bar.red`.
    pub(super) reducing: u32,
    /// A bit for each barrier at which a lane arrived without waiting.
    pub(super) arrived: PerLane<u32>,
    /// The mask of the collective instruction at which a lane waits; `None` for the lanes that happen to meet.
    pub(super) meets: PerLane<Option<u32>>,
    /// The number of turns spent waiting for the warp in vain.
    pub(super) patience: PerLane<u32>,
    /// Whether a lane yielded the rest of its turn to the other lanes.
    pub(super) yielded: bool,
    /// The bytes of local memory for calls, from the launch's budget.
    pub(super) borrowed: u64,
}

/// Registers of ended warps of one launch, reused by new ones. Their first frame has its constants.
#[derive(Debug, Default)]
pub(super) struct Frames {
    spare: Vec<Vec<Lanes>>,
}

impl Warp {
    /// The warp of a block's threads from `first` on.
    pub(super) fn new(entry: usize, first: u32, size: [u32; 3]) -> Warp {
        let threads: u32 = size.iter().product();
        let count = (threads - first).min(32);
        let exist = u32::MAX >> (32 - count);
        let mut index = [[0; LANES]; 3];
        for (number, lane) in (first..).zip(0..count as usize) {
            index[0][lane] = number % size[0];
            index[1][lane] = number / size[0] % size[1];
            index[2][lane] = number / size[0] / size[1];
        }
        Warp {
            states: States { ready: exist, ..States::default() },
            exist,
            first,
            index,
            function: [u32::try_from(entry).unwrap_or(u32::MAX); LANES],
            pc: [0; LANES],
            base: [0; LANES],
            fuel: [0; LANES],
            registers: Vec::new(),
            local: Default::default(),
            callers: Default::default(),
            wakes: [None; LANES],
            barrier: [0; LANES],
            barriers: 0,
            reducing: 0,
            arrived: [0; LANES],
            meets: [None; LANES],
            patience: [0; LANES],
            yielded: false,
            borrowed: 0,
        }
    }

    /// Makes an ended warp one that has not begun: that of the same threads of another block.
    pub(super) fn restart(&mut self, entry: usize) {
        self.states = States { ready: self.exist, ..States::default() };
        for lane in members(self.exist) {
            // A thread may end with calls open.
            self.function[lane] = u32::try_from(entry).unwrap_or(u32::MAX);
            self.callers[lane].clear();
            (self.pc[lane], self.base[lane]) = (0, 0);
            (self.arrived[lane], self.patience[lane]) = (0, 0);
        }
        (self.barriers, self.reducing) = (0, 0);
        self.yielded = false;
    }

    /// Creates the first frame of a new warp.
    pub(super) fn begin(&mut self, entry: &LinkedFunction, frames: &mut Frames) {
        if !self.registers.is_empty() {
            return;
        }
        match frames.spare.pop() {
            Some(registers) => {
                self.registers = registers;
                entry.zeros.iter().for_each(|&slot| self.registers[slot as usize] = [0; LANES]);
            }
            None => {
                self.registers = vec![[0; LANES]; entry.slots];
                entry.constants.iter().for_each(|&(slot, value)| self.registers[slot as usize] = [value; LANES]);
            }
        }
        let local = usize::try_from(entry.function.local_bytes).unwrap_or(0);
        members(self.exist).for_each(|lane| self.local[lane].resize(local, 0));
    }

    /// Ends lanes.
    pub(super) fn exit(&mut self, set: u32, frames: &mut Frames, budget: &Budget) {
        self.states.ready &= !set;
        for lane in members(set) {
            self.local[lane] = Vec::new();
        }
        if self.states.live() == 0 {
            frames.spare.push(std::mem::take(&mut self.registers));
            budget.give_back(std::mem::take(&mut self.borrowed));
        }
    }

    /// The function that a lane executes.
    pub(super) fn function_of<'p>(&self, program: &'p Linked, lane: usize) -> &'p LinkedFunction {
        &program.functions[self.function[lane] as usize]
    }

    pub(super) fn slot(&self, lane: usize, slot: Slot) -> u64 {
        self.registers[(self.base[lane] + slot) as usize][lane]
    }

    pub(super) fn set_slot(&mut self, lane: usize, slot: Slot, value: u64) {
        self.registers[(self.base[lane] + slot) as usize][lane] = value;
    }

    /// The start of the current frame's local memory.
    pub(super) fn local_base(&self, lane: usize) -> u64 {
        self.slot(lane, LOCAL_BASE)
    }

    /// The place of a lane's thread in its block.
    pub(super) fn place(&self, lane: usize) -> [u32; 3] {
        self.index.map(|axis| axis[lane])
    }

    /// Those of some lanes that are in the same frame of the same function: the frame of the deepest call.
    pub(super) fn together(&self, set: u32) -> u32 {
        if set.is_power_of_two() {
            return set;
        }
        let first = set.trailing_zeros() as usize % LANES;
        let frame = |lane: usize| u64::from(self.function[lane]) << 32 | u64::from(self.base[lane]);
        if (0..LANES).fold(0, |differs, lane| differs | (frame(lane) ^ frame(first))) == 0 {
            return set;
        }
        let same = |leader: usize| {
            members(set).filter(|&lane| frame(lane) == frame(leader)).fold(0, |found, lane| found | 1 << lane)
        };
        let found = same(first);
        if found == set {
            return set;
        }
        let deepest = members(set).max_by_key(|&lane| (self.callers[lane].len(), LANES - lane));
        same(deepest.unwrap_or(first))
    }
}
