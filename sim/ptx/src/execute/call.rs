//! Calls and returns: pushes and pops frames, and copies arguments and results.

use super::access::{read, write};
use super::thread::{Frame, Thread, Trouble};
use crate::arithmetic::mask;
use crate::fault::FaultKind;
use crate::link::{Linked, function_at};
use crate::lower::MOST_LOCAL;
use crate::op::{LOCAL_BASE, Place, Target, Transfer};

/// Limits of one thread's frames and registers; a GPU's stack is far smaller.
const MOST_CALLS: usize = 1 << 14;
const MOST_REGISTERS: usize = 1 << 20;

/// One frame's share of a thread's registers and local memory.
#[derive(Clone, Copy)]
struct Corner {
    registers: usize,
    local: u64,
}

/// Starts a call; the program counter is already after the call.
pub(super) fn enter(thread: &mut Thread, program: &Linked, call: usize) -> Result<(), FaultKind> {
    let caller = &program.functions[thread.function].function;
    let site = &caller.calls[call];
    let index = match &site.target {
        Target::Function(index) => *index,
        Target::Pointer(slot, shape) => {
            let index = function_at(thread.slot(*slot)).ok_or(FaultKind::InvalidPc)?;
            let callee = program.functions.get(index).ok_or(FaultKind::InvalidPc)?;
            let is_kernel = program.kernels.iter().any(|kernel| kernel.head.function == index);
            if !callee.function.is_defined || callee.function.shape != *shape || is_kernel {
                return Err(FaultKind::InvalidPc);
            }
            index
        }
        Target::Print { .. } | Target::Assert { .. } | Target::Allocate { .. } | Target::Release { .. } => {
            return Err(FaultKind::InvalidPc);
        }
    };
    let callee = &program.functions[index];
    let from = Corner { registers: thread.base, local: thread.local_base() };
    let align = callee.function.local_align.max(16);
    let local_len = thread.local.len();
    let local = (local_len as u64).next_multiple_of(align);
    let to = Corner { registers: thread.registers.len(), local };
    let local_end = local + callee.function.local_bytes;
    let registers_end = to.registers + callee.frame.len();
    if thread.callers.len() >= MOST_CALLS || local_end > MOST_LOCAL || registers_end > MOST_REGISTERS {
        return Err(FaultKind::StackOverflow);
    }
    thread.registers.extend_from_slice(&callee.frame);
    thread.local.resize(usize::try_from(local_end).unwrap_or(0), 0);
    thread.registers[to.registers + LOCAL_BASE as usize] = local;
    for transfer in &site.arguments {
        carry(thread, *transfer, from, to);
    }
    thread.callers.push(Frame { function: thread.function, pc: thread.pc, base: thread.base, call, local_len });
    (thread.function, thread.pc, thread.base) = (index, 0, to.registers);
    Ok(())
}

/// Extends the frame's local memory by `alloca`; returns the address of the extension.
pub(super) fn extend(thread: &mut Thread, bytes: u64, align: u64) -> Result<u64, FaultKind> {
    let start = (thread.local.len() as u64).next_multiple_of(align);
    let end = start.checked_add(bytes).filter(|&end| end <= MOST_LOCAL).ok_or(FaultKind::StackOverflow)?;
    thread.local.resize(usize::try_from(end).unwrap_or(0), 0);
    Ok(start)
}

/// Shrinks the frame's local memory to an earlier size by `stackrestore`.
pub(super) fn restore(thread: &mut Thread, program: &Linked, end: u64) -> Result<(), Trouble> {
    let fixed = thread.local_base() + program.functions[thread.function].function.local_bytes;
    if end < fixed || end > thread.local.len() as u64 {
        let detail = format!("{end:#x} is not a stack pointer of this function");
        return Err(Trouble { detail, ..FaultKind::StackOverflow.into() });
    }
    thread.local.truncate(usize::try_from(end).unwrap_or(0));
    Ok(())
}

/// Returns to the caller. `false` in a kernel, which has no caller.
pub(super) fn leave(thread: &mut Thread, program: &Linked) -> bool {
    let Some(caller) = thread.callers.pop() else { return false };
    let from = Corner { registers: thread.base, local: thread.local_base() };
    let to = Corner { registers: caller.base, local: thread.registers[caller.base + LOCAL_BASE as usize] };
    let function = &program.functions[caller.function].function;
    for transfer in &function.calls[caller.call].results {
        carry(thread, *transfer, from, to);
    }
    thread.registers.truncate(from.registers);
    thread.local.truncate(caller.local_len);
    (thread.function, thread.pc, thread.base) = (caller.function, caller.pc, caller.base);
    true
}

/// Lowering has checked that both locations exist.
fn carry(thread: &mut Thread, transfer: Transfer, from: Corner, to: Corner) {
    let bytes = u32::try_from(transfer.bytes.min(8)).unwrap_or(8);
    match (transfer.from, transfer.to) {
        (Place::Local(source), Place::Local(target)) => {
            let narrow = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            let start = narrow(from.local + source);
            thread.local.copy_within(start..start + narrow(transfer.bytes), narrow(to.local + target));
        }
        (Place::Slot(source), Place::Local(target)) => {
            let value = thread.registers[from.registers + source as usize];
            let _ = write(&mut thread.local, to.local + target, bytes, value);
        }
        (Place::Local(source), Place::Slot(target)) => {
            let value = read(&thread.local, from.local + source, bytes).unwrap_or(0);
            thread.registers[to.registers + target as usize] = value;
        }
        (Place::Slot(source), Place::Slot(target)) => {
            let value = thread.registers[from.registers + source as usize];
            thread.registers[to.registers + target as usize] = value & mask(8 * bytes);
        }
    }
}
