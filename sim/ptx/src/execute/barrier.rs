//! Barriers of a block: releases the waiting threads when all expected ones have arrived.

use super::warp::Warp;
use crate::arithmetic::lanewise::LANES;
use crate::lanes::members;
use crate::link::Linked;
use crate::op::{Barrier, BarrierKind, Op, Reduction};

/// Releases the threads of complete barriers; returns whether there were any.
pub(super) fn resolve(warps: &mut [Warp], program: &Linked) -> bool {
    let waiting = warps.iter().fold(0, |waiting, warp| waiting | warp.barriers);
    let mut resolved = false;
    for id in (0..16).filter(|id| waiting >> id & 1 == 1) {
        if is_complete(warps, program, id) {
            release(warps, program, id);
            resolved = true;
        }
    }
    resolved
}

/// The lanes that wait at a barrier.
fn at(warp: &Warp, id: u32) -> u32 {
    if warp.barriers == 1 << id {
        return warp.states.at_barrier;
    }
    let here = |lane: &usize| u32::from(warp.barrier[*lane]) == id;
    members(warp.states.at_barrier).filter(here).fold(0, |set, lane| set | 1 << lane)
}

/// The lanes that arrived at a barrier without waiting.
fn arrived(warp: &Warp, id: u32) -> u32 {
    (0..LANES).fold(0, |set, lane| set | (warp.arrived[lane] >> id & 1) << lane)
}

fn instruction<'p>(warp: &Warp, lane: usize, program: &'p Linked) -> Option<&'p Barrier> {
    let function = &warp.function_of(program, lane).function;
    match function.code.get(warp.pc[lane] as usize)? {
        Op::Barrier { barrier } => function.barriers.get(*barrier as usize),
        _ => None,
    }
}

/// Whether the expected threads have arrived: all, or a given number.
fn is_complete(warps: &[Warp], program: &Linked, id: u32) -> bool {
    let first = warps.iter().find_map(|warp| members(at(warp, id)).next().map(|lane| (warp, lane)));
    let Some((first, lane)) = first else { return false };
    match instruction(first, lane, program).and_then(|barrier| barrier.count) {
        None => warps.iter().all(|warp| has_arrived(warp, id)),
        Some(count) => warps.iter().map(|warp| weight(warp, id)).sum::<u64>() >= first.slot(lane, count),
    }
}

/// Whether every lane has arrived or exited.
fn has_arrived(warp: &Warp, id: u32) -> bool {
    let missing = warp.states.live() & !at(warp, id);
    missing == 0 || missing & !arrived(warp, id) == 0
}

/// Barriers count whole warps: missing lanes and ended lanes of a warp count as arrived.
fn weight(warp: &Warp, id: u32) -> u64 {
    let count = (at(warp, id) | arrived(warp, id)).count_ones();
    if has_arrived(warp, id) && count > 0 { 32 } else { u64::from(count) }
}

fn release(warps: &mut [Warp], program: &Linked, id: u32) {
    let reduction = |warp: &Warp, lane: usize| match instruction(warp, lane, program)?.kind {
        BarrierKind::Reduce { how, d, p, negated } => Some((how, d, p, negated)),
        _ => None,
    };
    let (mut count, mut voters) = (0u64, 0u64);
    for warp in warps.iter() {
        for lane in members(at(warp, id) & warp.reducing) {
            if let Some((_, _, p, negated)) = reduction(warp, lane) {
                voters += 1;
                count += u64::from((warp.slot(lane, p) != 0) != negated);
            }
        }
    }
    for warp in warps.iter_mut() {
        let here = at(warp, id);
        warp.arrived.iter_mut().for_each(|arrived| *arrived &= !(1 << id));
        for lane in members(here & warp.reducing) {
            if let Some((how, d, ..)) = reduction(warp, lane) {
                let value = match how {
                    Reduction::Count => count,
                    Reduction::And => u64::from(count == voters),
                    Reduction::Or => u64::from(count > 0),
                };
                warp.set_slot(lane, d, value);
            }
        }
        warp.pc.iter_mut().zip(0..).for_each(|(pc, lane)| *pc += here >> lane & 1);
        warp.barriers &= !(1 << id);
        warp.reducing &= !here;
        warp.states.at_barrier &= !here;
        warp.states.ready |= here;
    }
}
