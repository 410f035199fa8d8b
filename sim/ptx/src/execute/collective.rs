//! The collective operations of a warp, performed when all participating lanes have arrived.

use super::matrix;
use super::warp::{LaneTrouble, Trouble, Warp};
use crate::arithmetic::lanewise::{LANES, Lanes};
use crate::fault::FaultKind;
use crate::lanes::members;
use crate::link::Linked;
use crate::op::{self, Matrix, Op, Shuffle, WarpKind};
use std::mem::discriminant;

/// The number of turns that a lane waits for others when the participants are unspecified and may never arrive.
const PATIENCE: u32 = 64;

/// Performs every operation that is ready; returns whether there was one, or the lane of an operation that cannot be.
pub(super) fn resolve(warp: &mut Warp, program: &Linked) -> Result<bool, LaneTrouble> {
    let mut resolved = false;
    for first in members(warp.states.at_warp) {
        if warp.states.at_warp >> first & 1 == 0 {
            continue;
        }
        let group = match warp.meets[first] {
            Some(mask) => masked_group(warp, program, first, mask),
            None => present_group(warp, first),
        };
        if group == 0 {
            continue;
        }
        if let Some(matrix) = matrix_of(warp, program, first) {
            if group != u32::MAX {
                return Err((first, incomplete_matrix()));
            }
            let base = warp.base[first] as usize;
            matrix::perform(&mut warp.registers[base..], matrix);
        } else {
            perform(warp, program, group);
        }
        for lane in members(group) {
            warp.pc[lane] += 1;
            warp.patience[lane] = 0;
        }
        warp.states.at_warp &= !group;
        warp.states.ready |= group;
        resolved = true;
    }
    Ok(resolved)
}

/// The trouble of an operation on matrices by a part of a warp.
fn incomplete_matrix() -> Trouble {
    let detail = "an operation on matrices needs all 32 lanes of the warp".to_owned();
    Trouble { detail, ..FaultKind::Deadlock.into() }
}

/// Performs an operation at once of lanes that reach it together, if no other lane takes part; returns whether it did.
pub(super) fn at_once(registers: &mut [Lanes], program: &op::Function, warp: &op::Warp, set: u32, others: u32) -> bool {
    match warp.mask {
        Some(mask) => {
            let masks = &registers[mask as usize];
            let mask = masks[set.trailing_zeros() as usize % LANES];
            // Lanes beyond the mask have arrived, too; those of the mask that have exited are not waited for.
            if members(set).any(|lane| masks[lane] != mask) || mask & u64::from(others) != 0 {
                return false;
            }
        }
        None if others != 0 => return false,
        None => {}
    }
    if let WarpKind::Matrix { matrix } = warp.kind {
        let whole = set == u32::MAX;
        if whole {
            matrix::perform(registers, &program.matrices[matrix as usize]);
        }
        return whole;
    }
    let a = registers[warp.a as usize];
    let (b, c) = (registers[warp.b as usize], registers[warp.c as usize]);
    let common = Common::of(warp.kind, set, &a);
    let mut flags = [0; LANES];
    for lane in members(set) {
        let (value, flag) = common.result(warp.kind, [b[lane], c[lane]], lane, set, &a);
        registers[warp.d as usize][lane] = value;
        flags[lane] = u64::from(flag);
    }
    if let Some(p) = warp.p {
        members(set).for_each(|lane| registers[p as usize][lane] = flags[lane]);
    }
    true
}

/// The instruction at which a lane waits.
fn waiting<'p>(warp: &Warp, program: &'p Linked, lane: usize) -> Option<&'p op::Warp> {
    let function = &warp.function_of(program, lane).function;
    match function.code.get(warp.pc[lane] as usize)? {
        Op::Warp { warp } => function.warps.get(*warp as usize),
        _ => None,
    }
}

/// The operation on matrices at which a lane waits.
fn matrix_of<'p>(warp: &Warp, program: &'p Linked, lane: usize) -> Option<&'p Matrix> {
    match waiting(warp, program, lane)?.kind {
        WarpKind::Matrix { matrix } => warp.function_of(program, lane).function.matrices.get(matrix as usize),
        _ => None,
    }
}

/// The lanes at the same kind of instruction with the same mask, if all live lanes of the mask have arrived. For matrices
/// it is the same instruction of the same frame.
fn masked_group(warp: &Warp, program: &Linked, first: usize, mask: u32) -> u32 {
    let kind = |lane| waiting(warp, program, lane).map(|warp| discriminant(&warp.kind));
    let place = |lane: usize| (warp.function[lane], warp.pc[lane], warp.base[lane]);
    let anywhere = matrix_of(warp, program, first).is_none();
    let here = |&lane: &usize| {
        warp.meets[lane] == Some(mask) && kind(lane) == kind(first) && (anywhere || place(lane) == place(first))
    };
    let group = members(warp.states.at_warp).filter(here).fold(0, |group, lane| group | 1 << lane);
    if mask & warp.states.live() & !group == 0 { group } else { 0 }
}

/// The lanes at the same instruction, once no other lane can arrive, or none has for some turns.
fn present_group(warp: &mut Warp, first: usize) -> u32 {
    if warp.states.ready != 0 && warp.patience[first] < PATIENCE {
        warp.patience[first] += 1;
        return 0;
    }
    let place = |lane: usize| (warp.function[lane], warp.pc[lane]);
    let here = |&lane: &usize| warp.meets[lane].is_none() && place(lane) == place(first);
    members(warp.states.at_warp).filter(here).fold(0, |group, lane| group | 1 << lane)
}

/// Lanes of one group may be at different instructions of one kind.
fn perform(warp: &mut Warp, program: &Linked, group: u32) {
    let mut a = [0; LANES];
    for lane in members(group) {
        if let Some(instruction) = waiting(warp, program, lane) {
            a[lane] = warp.slot(lane, instruction.a);
        }
    }
    for lane in members(group) {
        let Some(instruction) = waiting(warp, program, lane) else { continue };
        let operands = [warp.slot(lane, instruction.b), warp.slot(lane, instruction.c)];
        let common = Common::of(instruction.kind, group, &a);
        let (value, flag) = common.result(instruction.kind, operands, lane, group, &a);
        warp.set_slot(lane, instruction.d, value);
        if let Some(p) = instruction.p {
            warp.set_slot(lane, p, u64::from(flag));
        }
    }
}

/// What is the same for all lanes of an operation: the result and the second result, of those kinds that have one.
struct Common {
    value: u64,
    flag: bool,
}

impl Common {
    fn of(kind: WarpKind, group: u32, a: &Lanes) -> Common {
        let votes = |negated: bool| {
            members(group).filter(|&lane| (a[lane] != 0) != negated).fold(0u32, |votes, lane| votes | 1 << lane)
        };
        let is = |value: bool| Common { value: u64::from(value), flag: false };
        let number = |value: u64| Common { value, flag: false };
        match kind {
            // Matrices are handled as a whole, and the others by lane.
            WarpKind::Sync | WarpKind::Matrix { .. } | WarpKind::MatchAny | WarpKind::Shuffle(_) => number(0),
            WarpKind::All { negated } => is(votes(negated) == group),
            WarpKind::Any { negated } => is(votes(negated) != 0),
            WarpKind::Uniform { negated } => {
                let votes = votes(negated);
                is(votes == 0 || votes == group)
            }
            WarpKind::Ballot { negated } => number(u64::from(votes(negated))),
            WarpKind::MatchAll => {
                let first = a[group.trailing_zeros() as usize % LANES];
                let flag = members(group).all(|lane| a[lane] == first);
                Common { value: if flag { u64::from(group) } else { 0 }, flag }
            }
            WarpKind::Reduce(f) => {
                number(members(group).map(|lane| a[lane]).reduce(|sum, value| f(sum, value, 0)).unwrap_or(0))
            }
            WarpKind::Active => number(u64::from(group)),
        }
    }

    /// A lane's result, and its second result.
    fn result(&self, kind: WarpKind, [b, c]: [u64; 2], lane: usize, group: u32, a: &Lanes) -> (u64, bool) {
        match kind {
            WarpKind::MatchAny => {
                let same = members(group).filter(|&other| a[other] == a[lane]);
                (same.fold(0, |mask, lane| mask | 1 << lane), false)
            }
            WarpKind::Shuffle(how) => shuffle(how, b, c, lane, group, a),
            _ => (self.value, self.flag),
        }
    }
}

/// The value of another lane of the lane's segment, or its own where there is no such lane.
fn shuffle(how: Shuffle, b: u64, c: u64, lane: usize, group: u32, a: &Lanes) -> (u64, bool) {
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
