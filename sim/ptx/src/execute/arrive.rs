//! Arrivals of lanes at the barriers of their block.

use super::warp::{LaneTrouble, Trouble, Warp};
use crate::arithmetic::lanewise::LANES;
use crate::fault::FaultKind;
use crate::lanes::members;
use crate::link::Linked;
use crate::op::{BarrierKind, wrong_count};

/// The low 32 bits of a register.
pub(super) fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX)
}

/// Lanes whose program counters are after a barrier arrive there; they wait unless it is a `bar.arrive`.
pub(super) fn arrive(warp: &mut Warp, set: u32, program: &Linked, index: usize) -> Result<(), LaneTrouble> {
    let leader = set.trailing_zeros() as usize % LANES;
    let barrier = warp.function_of(program, leader).function.barriers[index];
    if let Some(count) = barrier.count {
        let arrives = matches!(barrier.kind, BarrierKind::Arrive);
        for lane in members(set) {
            if let Some(problem) = wrong_count(low(warp.slot(lane, count)).into(), arrives) {
                return Err(invalid(warp, lane, problem.to_owned()));
            }
        }
    }
    let ids = &warp.registers[(warp.base[leader] + barrier.id) as usize];
    let id = ids[leader];
    if matches!(barrier.kind, BarrierKind::Sync) && id <= 15 && members(set).all(|lane| ids[lane] == id) {
        wait_together(warp, set, low(id));
        return Ok(());
    }
    for lane in members(set) {
        let barrier = warp.function_of(program, lane).function.barriers[index];
        let id = low(warp.slot(lane, barrier.id));
        if id > 15 {
            return Err(invalid(warp, lane, format!("there is no barrier {id}")));
        }
        match barrier.kind {
            BarrierKind::Arrive => warp.arrived[lane] |= 1 << id,
            BarrierKind::Sync => wait_together(warp, 1 << lane, id),
            BarrierKind::Reduce { .. } => {
                wait_together(warp, 1 << lane, id);
                warp.reducing |= 1 << lane;
            }
        }
    }
    Ok(())
}

/// The trouble of a lane whose program counter is after the barrier.
fn invalid(warp: &mut Warp, lane: usize, detail: String) -> LaneTrouble {
    warp.pc[lane] -= 1;
    (lane, Trouble { detail, ..FaultKind::InvalidBarrier.into() })
}

/// Waits at a barrier's instruction.
fn wait_together(warp: &mut Warp, set: u32, id: u32) {
    // There are 16 barriers.
    let number = u8::try_from(id).unwrap_or(u8::MAX);
    for ((barrier, pc), lane) in warp.barrier.iter_mut().zip(&mut warp.pc).zip(0..) {
        if set >> lane & 1 == 1 {
            (*barrier, *pc) = (number, *pc - 1);
        }
    }
    warp.barriers |= 1 << id;
    warp.states.ready &= !set;
    warp.states.at_barrier |= set;
}
