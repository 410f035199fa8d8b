//! Calls and returns: pushes and pops frames, and copies arguments and results.

use super::access::{read, write};
use super::budget::Budget;
use super::grid::Grid;
use super::warp::{Frame, Trouble, Warp};
use crate::arithmetic::lanewise::LANES;
use crate::arithmetic::mask;
use crate::fault::FaultKind;
use crate::lanes::members;
use crate::link::{Linked, function_at};
use crate::lower::MOST_LOCAL;
use crate::op::{LOCAL_BASE, Place, Target, Transfer};

/// Limits of one thread's frames and registers; a GPU's stack is far smaller. All threads together have the [`Budget`].
const MOST_CALLS: usize = 1 << 14;
const MOST_REGISTERS: usize = 1 << 20;

/// One frame's share of a lane's registers and local memory.
#[derive(Clone, Copy)]
struct Corner {
    registers: usize,
    local: u64,
}

/// Starts a call of lanes that are in one frame; their program counters are already after the call.
pub(super) fn enter(warp: &mut Warp, set: u32, grid: &Grid<'_>, call: usize) -> Result<(), (usize, FaultKind)> {
    let program = grid.program;
    let leader = set.trailing_zeros() as usize % LANES;
    let caller = warp.function_of(program, leader);
    match &caller.function.calls[call].target {
        Target::Function(index) => enter_function(warp, set, grid, call, *index),
        Target::Pointer(slot, shape) => {
            // Lanes may call different functions.
            for lane in members(set) {
                let failed = (lane, FaultKind::InvalidPc);
                let index = function_at(warp.slot(lane, *slot)).ok_or(failed)?;
                let callee = program.functions.get(index).ok_or(failed)?;
                let is_kernel = program.kernels.iter().any(|kernel| kernel.head.function == index);
                if callee.function.unsupported.is_some() {
                    return Err((lane, FaultKind::Unsupported));
                }
                if !callee.function.is_defined || callee.function.shape != *shape || is_kernel {
                    return Err(failed);
                }
                enter_function(warp, 1 << lane, grid, call, index)?;
            }
            Ok(())
        }
        Target::Print { .. } | Target::Assert { .. } | Target::Allocate { .. } | Target::Release { .. } => {
            Err((leader, FaultKind::InvalidPc))
        }
    }
}

fn enter_function(
    warp: &mut Warp,
    set: u32,
    grid: &Grid<'_>,
    call: usize,
    index: usize,
) -> Result<(), (usize, FaultKind)> {
    let (program, budget) = (grid.program, &grid.budget);
    let leader = set.trailing_zeros() as usize % LANES;
    let caller = warp.function_of(program, leader);
    let callee = &program.functions[index];
    let site = &caller.function.calls[call];
    let start = warp.base[leader] as usize;
    let registers = start + caller.slots;
    let registers_end = registers + callee.slots;
    let align = callee.function.local_align.max(16);
    for lane in members(set) {
        let local_end =
            (warp.local[lane].len() as u64).next_multiple_of(align).saturating_add(callee.function.local_bytes);
        let depth = warp.callers[lane].len() + 1;
        let fits = depth <= MOST_CALLS
            && registers_end <= MOST_REGISTERS
            && budget.grow(&mut warp.callers[lane], depth).is_some()
            && grow_local(&mut warp.local[lane], &mut warp.borrowed, local_end, budget).is_ok();
        if !fits {
            return Err((lane, FaultKind::StackOverflow));
        }
    }
    if warp.registers.len() < registers_end {
        // Neither these nor the callers' places are given back: the warp after this one uses them, too.
        budget.grow(&mut warp.registers, registers_end).ok_or((leader, FaultKind::StackOverflow))?;
        warp.registers.resize(registers_end, [0; LANES]);
    }
    let zeros = callee.zeros.iter().map(|&slot| (slot, 0));
    for (slot, value) in callee.constants.iter().copied().chain(zeros) {
        let row = &mut warp.registers[registers + slot as usize];
        members(set).for_each(|lane| row[lane] = value);
    }
    let narrow = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    for lane in members(set) {
        let from = Corner { registers: start, local: warp.local_base(lane) };
        let local_len = warp.local[lane].len();
        let local = (local_len as u64).next_multiple_of(align);
        let to = Corner { registers, local };
        warp.local[lane].resize(usize::try_from(local + callee.function.local_bytes).unwrap_or(0), 0);
        warp.registers[registers + LOCAL_BASE as usize][lane] = local;
        for transfer in &site.arguments {
            carry(warp, lane, *transfer, from, to);
        }
        let (function, pc, base) = (warp.function[lane], warp.pc[lane], warp.base[lane]);
        warp.callers[lane].push(Frame { function, pc, base, call, local_len });
        (warp.function[lane], warp.pc[lane], warp.base[lane]) = (narrow(index), 0, narrow(registers));
    }
    Ok(())
}

/// Makes room in a thread's local memory up to `end`.
fn grow_local(local: &mut Vec<u8>, borrowed: &mut u64, end: u64, budget: &Budget) -> Result<usize, FaultKind> {
    let end = usize::try_from(end).ok().filter(|_| end <= MOST_LOCAL).ok_or(FaultKind::StackOverflow)?;
    *borrowed += budget.grow(local, end).ok_or(FaultKind::StackOverflow)?;
    Ok(end)
}

/// Extends the frame's local memory by `alloca`; returns the address of the extension.
pub(super) fn extend(
    local: &mut Vec<u8>,
    borrowed: &mut u64,
    (bytes, align): (u64, u64),
    budget: &Budget,
) -> Result<u64, FaultKind> {
    let start = (local.len() as u64).next_multiple_of(align);
    let end = grow_local(local, borrowed, start.saturating_add(bytes), budget)?;
    local.resize(end, 0);
    Ok(start)
}

/// Shrinks a frame's local memory, of `fixed` bytes without extensions, to an earlier size by `stackrestore`.
pub(super) fn restore(local: &mut Vec<u8>, fixed: u64, end: u64) -> Result<(), Trouble> {
    if end < fixed || end > local.len() as u64 {
        let detail = format!("{end:#x} is not a stack pointer of this function");
        return Err(Trouble { detail, ..FaultKind::StackOverflow.into() });
    }
    local.truncate(usize::try_from(end).unwrap_or(0));
    Ok(())
}

/// Returns to the callers. The result has the lanes that are in a kernel, which has no caller.
pub(super) fn leave(warp: &mut Warp, set: u32, program: &Linked) -> u32 {
    let mut ended = 0;
    for lane in members(set) {
        let Some(caller) = warp.callers[lane].pop() else {
            ended |= 1 << lane;
            continue;
        };
        let from = Corner { registers: warp.base[lane] as usize, local: warp.local_base(lane) };
        let start = caller.base as usize;
        let to = Corner { registers: start, local: warp.registers[start + LOCAL_BASE as usize][lane] };
        let function = &program.functions[caller.function as usize].function;
        for transfer in &function.calls[caller.call].results {
            carry(warp, lane, *transfer, from, to);
        }
        warp.local[lane].truncate(caller.local_len);
        (warp.function[lane], warp.pc[lane], warp.base[lane]) = (caller.function, caller.pc, caller.base);
    }
    ended
}

/// Lowering has checked that both locations exist.
fn carry(warp: &mut Warp, lane: usize, transfer: Transfer, from: Corner, to: Corner) {
    let bytes = u32::try_from(transfer.bytes.min(8)).unwrap_or(8);
    let (registers, local) = (&mut warp.registers, &mut warp.local[lane]);
    match (transfer.from, transfer.to) {
        (Place::Local(source), Place::Local(target)) => {
            let narrow = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            let start = narrow(from.local + source);
            local.copy_within(start..start + narrow(transfer.bytes), narrow(to.local + target));
        }
        (Place::Slot(source), Place::Local(target)) => {
            let value = registers[from.registers + source as usize][lane];
            let _ = write(local, to.local + target, bytes, value);
        }
        (Place::Local(source), Place::Slot(target)) => {
            let value = read(local, from.local + source, bytes).unwrap_or(0);
            registers[to.registers + target as usize][lane] = value;
        }
        (Place::Slot(source), Place::Slot(target)) => {
            let value = registers[from.registers + source as usize][lane];
            registers[to.registers + target as usize][lane] = value & mask(8 * bytes);
        }
    }
}
