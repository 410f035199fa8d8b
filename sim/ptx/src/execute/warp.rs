//! The collective operations of a warp, performed when all participating lanes have arrived.

use super::matrix;
use super::thread::{State, Thread, Trouble};
use crate::fault::FaultKind;
use crate::link::Linked;
use crate::op::{Matrix, Shuffle, Warp, WarpKind};
use std::mem::discriminant;

/// The number of turns that a lane waits for others when the participants are unspecified and may never arrive.
const PATIENCE: u32 = 64;

/// Values by lane.
type Lanes<T> = [T; 32];

/// Performs every operation that is ready; returns whether there was one, or the lane of an operation that cannot be.
pub(super) fn resolve(lanes: &mut [Thread], program: &Linked) -> Result<bool, (usize, Trouble)> {
    let mut resolved = false;
    for first in 0..lanes.len() {
        let group = match lanes[first].state {
            State::AtWarp(Some(mask)) => masked_group(lanes, program, first, mask),
            State::AtWarp(None) => present_group(lanes, first),
            _ => 0,
        };
        if group == 0 {
            continue;
        }
        if let Some(matrix) = matrix_of(&lanes[first], program) {
            if group != u32::MAX {
                let detail = "an operation on matrices needs all 32 lanes of the warp".to_owned();
                return Err((first, Trouble { detail, ..FaultKind::Deadlock.into() }));
            }
            matrix::perform(lanes, matrix);
            lanes.iter_mut().for_each(release);
        } else {
            perform(lanes, program, group);
        }
        resolved = true;
    }
    Ok(resolved)
}

/// The operation on matrices at which a lane waits.
fn matrix_of<'p>(thread: &Thread, program: &'p Linked) -> Option<&'p Matrix> {
    match waiting(thread, program)?.kind {
        WarpKind::Matrix { matrix } => program.functions[thread.function].function.matrices.get(matrix as usize),
        _ => None,
    }
}

fn release(thread: &mut Thread) {
    thread.pc += 1;
    thread.patience = 0;
    thread.state = State::Ready;
}

/// The instruction at which a lane waits.
fn waiting<'p>(thread: &Thread, program: &'p Linked) -> Option<&'p Warp> {
    let function = &program.functions[thread.function].function;
    match function.code.get(thread.pc)? {
        crate::op::Op::Warp { warp } => function.warps.get(*warp as usize),
        _ => None,
    }
}

/// The lanes at the same kind of instruction with the same mask, if all live lanes of the mask have arrived. For matrices
/// it is the same instruction.
fn masked_group(lanes: &[Thread], program: &Linked, first: usize, mask: u32) -> u32 {
    let kind = waiting(&lanes[first], program).map(|warp| discriminant(&warp.kind));
    let place = |thread: &Thread| (thread.function, thread.pc);
    let anywhere = matrix_of(&lanes[first], program).is_none();
    let mut group = 0;
    for (lane, thread) in lanes.iter().enumerate() {
        let here = thread.state == State::AtWarp(Some(mask))
            && waiting(thread, program).map(|warp| discriminant(&warp.kind)) == kind
            && (anywhere || place(thread) == place(&lanes[first]));
        if here {
            group |= 1 << lane;
        } else if mask >> lane & 1 == 1 && thread.state != State::Exited {
            return 0;
        }
    }
    group
}

/// The lanes at the same instruction, once no other lane can arrive, or none has for some turns.
fn present_group(lanes: &mut [Thread], first: usize) -> u32 {
    let (function, pc) = (lanes[first].function, lanes[first].pc);
    let others_run = lanes.iter().any(|thread| thread.state == State::Ready);
    if others_run && lanes[first].patience < PATIENCE {
        lanes[first].patience += 1;
        return 0;
    }
    let here = |thread: &Thread| thread.state == State::AtWarp(None) && (thread.function, thread.pc) == (function, pc);
    lanes.iter().enumerate().filter(|(_, thread)| here(thread)).fold(0, |group, (lane, _)| group | 1 << lane)
}

fn perform(lanes: &mut [Thread], program: &Linked, group: u32) {
    let mut a = [0; 32];
    for lane in members(group) {
        if let Some(warp) = waiting(&lanes[lane], program) {
            a[lane] = lanes[lane].slot(warp.a);
        }
    }
    for lane in members(group) {
        let thread = &mut lanes[lane];
        if let Some(warp) = waiting(thread, program) {
            let (value, flag) = result(warp, thread, group, &a);
            thread.set_slot(warp.d, value);
            if let Some(p) = warp.p {
                thread.set_slot(p, u64::from(flag));
            }
        }
        release(thread);
    }
}

fn members(group: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| group >> lane & 1 == 1)
}

/// A lane's result, and its second result.
fn result(warp: &Warp, thread: &Thread, group: u32, a: &Lanes<u64>) -> (u64, bool) {
    let lane = thread.lane() as usize;
    let votes = |negated: bool| {
        members(group).filter(|&lane| (a[lane] != 0) != negated).fold(0u32, |votes, lane| votes | 1 << lane)
    };
    match warp.kind {
        // Matrices are handled as a whole.
        WarpKind::Sync | WarpKind::Matrix { .. } => (0, false),
        WarpKind::All { negated } => (u64::from(votes(negated) == group), false),
        WarpKind::Any { negated } => (u64::from(votes(negated) != 0), false),
        WarpKind::Uniform { negated } => {
            let votes = votes(negated);
            (u64::from(votes == 0 || votes == group), false)
        }
        WarpKind::Ballot { negated } => (u64::from(votes(negated)), false),
        WarpKind::MatchAny => {
            let same = members(group).filter(|&other| a[other] == a[lane]);
            (same.fold(0, |mask, lane| mask | 1 << lane), false)
        }
        WarpKind::MatchAll => {
            let all = members(group).all(|other| a[other] == a[lane]);
            (if all { u64::from(group) } else { 0 }, all)
        }
        WarpKind::Shuffle(how) => shuffle(how, thread.slot(warp.b), thread.slot(warp.c), lane, group, a),
        WarpKind::Reduce(f) => {
            (members(group).map(|lane| a[lane]).reduce(|sum, value| f(sum, value, 0)).unwrap_or(0), false)
        }
        WarpKind::Active => (u64::from(group), false),
        WarpKind::Elect => (u64::from(group.trailing_zeros()), group.trailing_zeros() as usize == lane),
    }
}

/// The value of another lane of the lane's segment, or its own where there is no such lane.
fn shuffle(how: Shuffle, b: u64, c: u64, lane: usize, group: u32, a: &Lanes<u64>) -> (u64, bool) {
    let low = |value: u64| usize::from(value.to_le_bytes()[0] & 31);
    let (b, clamp, segments) = (low(b), low(c), low(c >> 8));
    let last = lane & segments | clamp & !segments;
    let first = lane & segments;
    let (source, inside) = match how {
        Shuffle::Up => (lane.wrapping_sub(b), lane.cast_signed() - b.cast_signed() >= last.cast_signed()),
        Shuffle::Down => (lane + b, lane + b <= last),
        Shuffle::Butterfly => (lane ^ b, lane ^ b <= last),
        Shuffle::Index => (first | b & !segments, first | b & !segments <= last),
    };
    let source = if inside { source & 31 } else { lane };
    // The value of a lane that does not participate is undefined.
    let source = if group >> source & 1 == 1 { source } else { lane };
    (a[source], inside)
}
