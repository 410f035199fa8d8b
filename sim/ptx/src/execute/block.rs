//! Executes a block: its warps take turns.

use super::grid::Grid;
use super::step::Place;
use super::turn::turn;
use super::warp::{Frames, LaneTrouble, Trouble, Warp};
use super::{barrier, collective};
use crate::fault::{Fault, FaultKind};
use crate::lanes::members;
use std::time::{Duration, Instant};

/// The maximum number of turns of a warp in one turn of its block, while its lanes keep meeting.
const WARP_TURNS: u32 = 64;
/// The maximum number of times that every warp gets its turn in one turn of the block, while its barriers complete.
const ROUNDS: u32 = 16;

pub(super) struct Block<'g> {
    grid: &'g Grid<'g>,
    index: [u32; 3],
    warps: Vec<Warp>,
    shared: Vec<u8>,
}

impl<'g> Block<'g> {
    pub(super) fn new(grid: &'g Grid<'g>, index: [u32; 3]) -> Block<'g> {
        let threads: u32 = grid.block_size.iter().product();
        let warps = (0..threads).step_by(32).map(|first| Warp::new(grid.entry, first, grid.block_size)).collect();
        let shared = vec![0; usize::try_from(grid.allocated_shared()).unwrap_or(0)];
        Block { grid, index, warps, shared }
    }

    /// Makes an ended block another one of the launch, all of which have the same shape.
    pub(super) fn restart(&mut self, index: [u32; 3]) {
        self.index = index;
        self.warps.iter_mut().for_each(|warp| warp.restart(self.grid.entry));
        self.shared.fill(0);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.warps.iter().all(|warp| warp.states.live() == 0)
    }

    /// The time for which no thread can run; `None` if one can.
    pub(super) fn sleeps_for(&self) -> Option<Duration> {
        if self.warps.iter().any(|warp| warp.states.ready != 0) {
            return None;
        }
        let wakes = |warp: &Warp| members(warp.states.sleeping).filter_map(|lane| warp.wakes[lane]).min();
        match self.warps.iter().filter_map(wakes).min() {
            Some(until) => Some(until.saturating_duration_since(Instant::now())),
            None => self.has_ended().then_some(Duration::MAX),
        }
    }

    /// Gives every thread that can run one turn, and again while a barrier lets them.
    pub(super) fn turn(&mut self, frames: &mut Frames) -> Result<(), Fault> {
        let mut moved = false;
        for _ in 0..ROUNDS {
            for number in 0..self.warps.len() {
                moved |= self.turn_of_warp(number, frames)?;
            }
            if !barrier::resolve(&mut self.warps, self.grid.program) {
                break;
            }
            moved = true;
        }
        let waits_for_ever = |warp: &Warp| warp.states.ready | warp.states.sleeping == 0;
        if !moved && !self.has_ended() && self.warps.iter().all(waits_for_ever) {
            let stuck = self.warps.iter().zip(0..).find(|(warp, _)| warp.states.live() != 0);
            let (number, lane) =
                stuck.map_or((0, 0), |(warp, number)| (number, warp.states.live().trailing_zeros() as usize));
            return Err(self.fault(number, (lane, FaultKind::Deadlock.into())));
        }
        Ok(())
    }

    /// Returns whether any lane made progress.
    fn turn_of_warp(&mut self, number: usize, frames: &mut Frames) -> Result<bool, Fault> {
        let mut moved = false;
        for _ in 0..WARP_TURNS {
            let warp = &mut self.warps[number];
            wake(warp);
            if warp.states.ready != 0 {
                warp.begin(&self.grid.program.functions[self.grid.entry], frames);
                let place = Place { grid: self.grid, block: self.index, shared: &mut self.shared };
                turn(warp, place, frames).map_err(|trouble| self.fault(number, trouble))?;
                moved = true;
            }
            let warp = &mut self.warps[number];
            let yielded = std::mem::take(&mut warp.yielded);
            let resolved = warp.states.at_warp != 0
                && collective::resolve(warp, self.grid.program).map_err(|trouble| self.fault(number, trouble))?;
            if !resolved && !yielded {
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    /// A fault of a lane, at its current operation.
    fn fault(&self, warp: usize, (lane, trouble): LaneTrouble) -> Fault {
        let warp = &self.warps[warp];
        let program = self.grid.program;
        let spans = &warp.function_of(program, lane).function.spans;
        let span = spans.get(warp.pc[lane] as usize).copied().unwrap_or_default();
        let Trouble { kind, address, bytes, detail } = trouble;
        Fault {
            kind,
            kernel: self.grid.kernel.to_owned(),
            line: span.line,
            instruction: span.text(&program.text),
            address,
            bytes,
            block: self.index,
            thread: warp.place(lane),
            detail,
        }
    }
}

/// Makes the lanes ready whose sleep is over.
fn wake(warp: &mut Warp) {
    if warp.states.sleeping == 0 {
        return;
    }
    let now = Instant::now();
    for lane in members(warp.states.sleeping) {
        if warp.wakes[lane].is_none_or(|until| now >= until) {
            warp.states.sleeping &= !(1 << lane);
            warp.states.ready |= 1 << lane;
        }
    }
}
