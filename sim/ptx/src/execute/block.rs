//! Executes a block: its threads take turns, warp by warp.

use super::grid::Grid;
use super::step::run;
use super::thread::{Frames, State, Thread, Trouble};
use super::{barrier, warp};
use crate::fault::{Fault, FaultKind};
use std::time::{Duration, Instant};

/// The maximum number of turns of a warp in one turn of its block, while its lanes keep meeting.
const WARP_TURNS: u32 = 64;

pub(super) struct Block<'g> {
    grid: &'g Grid<'g>,
    index: [u32; 3],
    threads: Vec<Thread>,
    shared: Vec<u8>,
}

impl<'g> Block<'g> {
    pub(super) fn new(grid: &'g Grid<'g>, index: [u32; 3]) -> Block<'g> {
        let [width, height, depth] = grid.block_size;
        let places = (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| [x, y, z])));
        let threads = places.zip(0..).map(|(place, number)| Thread::new(grid.entry, place, number)).collect();
        let shared = vec![0; usize::try_from(grid.shared_bytes).unwrap_or(0)];
        Block { grid, index, threads, shared }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.threads.iter().all(|thread| thread.state == State::Exited)
    }

    /// The time for which no thread can run; `None` if one can.
    pub(super) fn sleeps_for(&self) -> Option<Duration> {
        if self.threads.iter().any(|thread| thread.state == State::Ready) {
            return None;
        }
        let wakes = self.threads.iter().filter_map(|thread| match thread.state {
            State::Sleeping(until) => Some(until),
            _ => None,
        });
        match wakes.min() {
            Some(until) => Some(until.saturating_duration_since(Instant::now())),
            None => self.has_ended().then_some(Duration::MAX),
        }
    }

    /// Gives every thread that can run one turn.
    pub(super) fn turn(&mut self, frames: &mut Frames) -> Result<(), Fault> {
        let mut moved = false;
        for first in (0..self.threads.len()).step_by(32) {
            moved |= self.turn_of_warp(first, frames)?;
        }
        moved |= barrier::resolve(&mut self.threads, self.grid.program);
        let waits_for_ever =
            |thread: &Thread| matches!(thread.state, State::AtBarrier(_) | State::AtWarp(_) | State::Exited);
        if !moved && !self.has_ended() && self.threads.iter().all(waits_for_ever) {
            let stuck = self.threads.iter().position(|thread| thread.state != State::Exited).unwrap_or(0);
            return Err(self.fault(stuck, FaultKind::Deadlock.into()));
        }
        Ok(())
    }

    /// Returns whether any lane made progress.
    fn turn_of_warp(&mut self, first: usize, frames: &mut Frames) -> Result<bool, Fault> {
        let end = (first + 32).min(self.threads.len());
        let mut moved = false;
        for _ in 0..WARP_TURNS {
            for number in first..end {
                moved |= self.turn_of_thread(number, frames)?;
            }
            let warp = &mut self.threads[first..end];
            let yielded =
                warp.iter_mut().map(|lane| std::mem::take(&mut lane.yielded)).filter(|yielded| *yielded).count() > 0;
            let resolved =
                warp::resolve(warp, self.grid.program).map_err(|(lane, trouble)| self.fault(first + lane, trouble))?;
            if !resolved && !yielded {
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    fn turn_of_thread(&mut self, number: usize, frames: &mut Frames) -> Result<bool, Fault> {
        let thread = &mut self.threads[number];
        if let State::Sleeping(until) = thread.state
            && Instant::now() >= until
        {
            thread.state = State::Ready;
        }
        if thread.state != State::Ready {
            return Ok(false);
        }
        thread.begin(self.grid.program, frames);
        match run(thread, self.grid, self.index, &mut self.shared) {
            Ok(()) => {
                if thread.state == State::Exited {
                    thread.end(frames);
                }
                Ok(true)
            }
            Err(trouble) => Err(self.fault(number, trouble)),
        }
    }

    /// A fault of a thread, at its current operation.
    fn fault(&self, number: usize, trouble: Trouble) -> Fault {
        let thread = &self.threads[number];
        let program = self.grid.program;
        let spans = &program.functions[thread.function].function.spans;
        let span = spans.get(thread.pc).copied().unwrap_or_default();
        Fault {
            kind: trouble.kind,
            kernel: self.grid.kernel.to_owned(),
            line: span.line,
            instruction: span.text(&program.text),
            address: trouble.address,
            bytes: trouble.bytes,
            block: self.index,
            thread: thread.index,
            detail: trouble.detail,
        }
    }
}
