//! Barriers of a block: releases the waiting threads when all expected ones have arrived.

use super::thread::{State, Thread};
use crate::link::Linked;
use crate::op::{Barrier, BarrierKind, CLUSTER_BARRIER, Op, Reduction};

/// Releases the threads of complete barriers; returns whether there were any.
pub(super) fn resolve(threads: &mut [Thread], program: &Linked) -> bool {
    let mut waiting = 0u32;
    for thread in threads.iter() {
        if let State::AtBarrier(id) = thread.state {
            waiting |= 1 << id;
        }
    }
    let mut resolved = false;
    for id in (0..=CLUSTER_BARRIER).filter(|id| waiting >> id & 1 == 1) {
        if is_complete(threads, program, id) {
            release(threads, program, id);
            resolved = true;
        }
    }
    resolved
}

fn at(thread: &Thread, id: u32) -> bool {
    thread.state == State::AtBarrier(id)
}

fn has_arrived(thread: &Thread, id: u32) -> bool {
    at(thread, id) || thread.arrived >> id & 1 == 1
}

fn instruction<'p>(thread: &Thread, program: &'p Linked) -> Option<&'p Barrier> {
    let function = &program.functions[thread.function].function;
    match function.code.get(thread.pc)? {
        Op::Barrier { barrier } => function.barriers.get(*barrier as usize),
        _ => None,
    }
}

/// Whether the expected threads have arrived: all, or a given number.
fn is_complete(threads: &[Thread], program: &Linked, id: u32) -> bool {
    let Some(first) = threads.iter().find(|thread| at(thread, id)) else { return false };
    match instruction(first, program).and_then(|barrier| barrier.count) {
        None => threads.iter().all(|thread| thread.state == State::Exited || has_arrived(thread, id)),
        Some(count) => threads.chunks(32).map(|warp| weight(warp, id)).sum::<u64>() >= first.slot(count),
    }
}

/// Barriers count whole warps: missing lanes and ended lanes of a warp count as arrived.
fn weight(warp: &[Thread], id: u32) -> u64 {
    let arrived = warp.iter().filter(|thread| has_arrived(thread, id)).count();
    let complete = warp.iter().all(|thread| thread.state == State::Exited || has_arrived(thread, id));
    if complete && arrived > 0 { 32 } else { arrived as u64 }
}

fn release(threads: &mut [Thread], program: &Linked, id: u32) {
    let (mut count, mut voters) = (0u64, 0u64);
    for thread in threads.iter().filter(|thread| at(thread, id)) {
        if let Some(Barrier { kind: BarrierKind::Reduce { p, negated, .. }, .. }) = instruction(thread, program) {
            voters += 1;
            count += u64::from((thread.slot(*p) != 0) != *negated);
        }
    }
    for thread in threads.iter_mut() {
        let has_arrived = thread.arrived >> id & 1 == 1;
        thread.arrived &= !(1 << id);
        if !at(thread, id) {
            // It waits later, for what is complete now.
            thread.passed |= id == CLUSTER_BARRIER && has_arrived;
            continue;
        }
        if let Some(Barrier { kind: BarrierKind::Reduce { how, d, .. }, .. }) = instruction(thread, program) {
            let value = match how {
                Reduction::Count => count,
                Reduction::And => u64::from(count == voters),
                Reduction::Or => u64::from(count > 0),
            };
            thread.set_slot(*d, value);
        }
        thread.pc += 1;
        thread.state = State::Ready;
    }
}
