//! Gives the ready lanes of a warp a turn: each runs until it waits, ends, faults or has jumped backwards a number of times.

use super::step::{Leave, Place, frame};
use super::warp::{Frames, LaneTrouble, Warp};
use super::{arrive, call, runtime};
use crate::arithmetic::lanewise::LANES;
use crate::lanes::members;
use crate::op::Target;

/// The maximum number of backward jumps and calls of a lane in one turn.
const TURN: u32 = 256;

/// Gives each ready lane one turn. After a fault, its lane's program counter is at the faulting operation.
pub(super) fn turn(warp: &mut Warp, mut place: Place<'_>, frames: &mut Frames) -> Result<(), LaneTrouble> {
    let program = place.grid.program;
    warp.fuel = [TURN; LANES];
    // The lanes whose turn is not over.
    let mut pending = warp.states.ready;
    while pending != 0 {
        let set = warp.together(pending);
        let (leave, set) = frame(warp, &mut place, set, &mut pending)?;
        match leave {
            Leave::TurnOver => {}
            Leave::Exit => {
                warp.exit(set, frames, &place.grid.budget);
                pending &= !set;
            }
            Leave::Return => {
                let ended = call::leave(warp, set, program);
                if ended != 0 {
                    warp.exit(ended, frames, &place.grid.budget);
                    pending &= !ended;
                }
            }
            Leave::Call(index) => enter(warp, set, &mut place, index)?,
            Leave::Barrier(index) => {
                arrive::arrive(warp, set, program, index)?;
                pending &= warp.states.ready;
            }
            Leave::Warp(index) => {
                for lane in members(set) {
                    warp.pc[lane] -= 1;
                    let instruction = &warp.function_of(program, lane).function.warps[index];
                    warp.meets[lane] = instruction.mask.map(|mask| arrive::low(warp.slot(lane, mask)));
                }
                warp.states.ready &= !set;
                warp.states.at_warp |= set;
                pending &= !set;
            }
            Leave::Sleep => {
                warp.states.ready &= !set;
                warp.states.sleeping |= set;
                pending &= !set;
            }
        }
    }
    Ok(())
}

fn enter(warp: &mut Warp, set: u32, place: &mut Place<'_>, index: usize) -> Result<(), LaneTrouble> {
    let program = place.grid.program;
    let leader = set.trailing_zeros() as usize % LANES;
    let target = &warp.function_of(program, leader).function.calls[index].target;
    if let Target::Function(_) | Target::Pointer(..) = target {
        return call::enter(warp, set, place.grid, index).map_err(|(lane, kind)| {
            warp.pc[lane] -= 1;
            (lane, kind.into())
        });
    }
    for lane in members(set) {
        let (grid, shared) = (place.grid, &mut *place.shared);
        let done = match target {
            Target::Print { result, arguments } => runtime::print(warp, lane, grid, shared, *result, *arguments),
            Target::Allocate { result, bytes } => {
                runtime::allocate(warp, lane, grid, *result, *bytes);
                Ok(())
            }
            Target::Release { address } => runtime::release(warp, lane, grid, *address),
            Target::Assert { arguments } => Err(runtime::assertion(warp, lane, grid, shared, *arguments)),
            Target::Function(_) | Target::Pointer(..) => Ok(()),
        };
        done.map_err(|trouble| {
            warp.pc[lane] -= 1;
            (lane, trouble)
        })?;
    }
    Ok(())
}
