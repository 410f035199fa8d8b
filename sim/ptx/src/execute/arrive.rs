//! Arrivals of lanes at the barriers of their block.

use super::warp::{LaneTrouble, Trouble, Warp};
use crate::arithmetic::lanewise::LANES;
use crate::fault::FaultKind;
use crate::lanes::members;
use crate::link::Linked;
use crate::op::{BarrierKind, CLUSTER_BARRIER, wrong_count};

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
        let bit = 1u32 << lane;
        let has_arrived = warp.arrived[lane] >> CLUSTER_BARRIER & 1 == 1;
        let passed = warp.passed & bit != 0;
        let problem = match barrier.kind {
            BarrierKind::ClusterArrive => {
                warp.arrived[lane] |= 1 << CLUSTER_BARRIER;
                continue;
            }
            BarrierKind::ClusterWait if passed => {
                warp.passed &= !bit;
                continue;
            }
            BarrierKind::ClusterWait if has_arrived => {
                wait(warp, lane, CLUSTER_BARRIER);
                continue;
            }
            BarrierKind::ClusterWait => "the thread has not arrived at the cluster's barrier".to_owned(),
            _ if id > 15 => format!("there is no barrier {id}"),
            BarrierKind::Arrive => {
                warp.arrived[lane] |= 1 << id;
                continue;
            }
            BarrierKind::Sync => {
                wait(warp, lane, id);
                continue;
            }
            BarrierKind::Reduce { .. } => {
                wait(warp, lane, id);
                warp.reducing |= bit;
                continue;
            }
        };
        return Err(invalid(warp, lane, problem));
    }
    Ok(())
}

/// The trouble of a lane whose program counter is after the barrier.
fn invalid(warp: &mut Warp, lane: usize, detail: String) -> LaneTrouble {
    warp.pc[lane] -= 1;
    (lane, Trouble { detail, ..FaultKind::InvalidBarrier.into() })
}

/// Waits at a barrier's instruction.
fn wait(warp: &mut Warp, lane: usize, id: u32) {
    wait_together(warp, 1 << lane, id);
}

fn wait_together(warp: &mut Warp, set: u32, id: u32) {
    // There are 17 barriers.
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
