//! The inner loop: runs one thread until it waits, ends, faults or its turn is over.

use super::access::View;
use super::grid::Grid;
use super::special::special;
use super::thread::{State, Thread, Trouble};
use super::{call, matrix, runtime};
use crate::arithmetic::mask;
use crate::arithmetic::mbarrier::perform;
use crate::fault::FaultKind;
use crate::op::{Atomic, BarrierKind, CARRY, CLUSTER_BARRIER, Mbarrier, Op, Slot, Target};
use crate::window::Window;
use std::time::{Duration, Instant};

/// The maximum number of backward jumps and calls in one turn.
const TURN: u32 = 256;

/// The reason why the loop over one frame's operations ended.
enum Leave {
    TurnOver,
    Call(usize),
    Return,
    Exit,
    Barrier(usize),
    Warp(usize),
    Sleep(u64),
    Extend { d: Slot, bytes: u64, align: u64 },
    StackRestore(u64),
}

/// Runs a thread for one turn. After a fault, its program counter is at the faulting operation.
pub(super) fn run(thread: &mut Thread, grid: &Grid<'_>, block: [u32; 3], shared: &mut [u8]) -> Result<(), Trouble> {
    let mut fuel = TURN;
    loop {
        match frame(thread, grid, block, shared, &mut fuel)? {
            Leave::TurnOver => return Ok(()),
            Leave::Exit => {
                thread.state = State::Exited;
                return Ok(());
            }
            Leave::Return => {
                if !call::leave(thread, grid.program) {
                    thread.state = State::Exited;
                    return Ok(());
                }
            }
            Leave::Call(index) => enter(thread, grid, shared, index).inspect_err(|_| thread.pc -= 1)?,
            Leave::Barrier(index) => {
                arrive(thread, grid, index).inspect_err(|_| thread.pc -= 1)?;
                if thread.state != State::Ready {
                    return Ok(());
                }
            }
            Leave::Warp(index) => {
                thread.pc -= 1;
                let warp = &grid.program.functions[thread.function].function.warps[index];
                thread.state = State::AtWarp(warp.mask.map(|mask| low(thread.slot(mask))));
                return Ok(());
            }
            Leave::Extend { d, bytes, align } => {
                let address = call::extend(thread, bytes, align).inspect_err(|_| thread.pc -= 1)?;
                thread.set_slot(d, address);
            }
            Leave::StackRestore(end) => {
                call::restore(thread, grid.program, end).inspect_err(|_| thread.pc -= 1)?;
            }
            Leave::Sleep(nanoseconds) => {
                // `nanosleep` sleeps a millisecond at most.
                let time = Duration::from_nanos(nanoseconds.min(1_000_000));
                thread.state = State::Sleeping(Instant::now() + time);
                return Ok(());
            }
        }
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX)
}

fn enter(thread: &mut Thread, grid: &Grid<'_>, shared: &mut [u8], index: usize) -> Result<(), Trouble> {
    match &grid.program.functions[thread.function].function.calls[index].target {
        Target::Function(_) | Target::Pointer(..) => Ok(call::enter(thread, grid.program, index)?),
        Target::Print { result, arguments } => runtime::print(thread, grid, shared, *result, *arguments),
        Target::Allocate { result, bytes } => {
            runtime::allocate(thread, grid, *result, *bytes);
            Ok(())
        }
        Target::Release { address } => runtime::release(thread, grid, *address),
        Target::Assert { arguments } => Err(runtime::assertion(thread, grid, shared, *arguments)),
    }
}

/// Arrives at a barrier, and waits there unless it is a `bar.arrive`.
fn arrive(thread: &mut Thread, grid: &Grid<'_>, index: usize) -> Result<(), Trouble> {
    let barrier = grid.program.functions[thread.function].function.barriers[index];
    let id = low(thread.slot(barrier.id));
    let has_arrived = thread.arrived >> CLUSTER_BARRIER & 1 == 1;
    let wrong = |detail: String| Err(Trouble { detail, ..FaultKind::InvalidBarrier.into() });
    match barrier.kind {
        BarrierKind::ClusterArrive => thread.arrived |= 1 << CLUSTER_BARRIER,
        BarrierKind::ClusterWait if std::mem::take(&mut thread.passed) => {}
        BarrierKind::ClusterWait if has_arrived => wait(thread, CLUSTER_BARRIER),
        BarrierKind::ClusterWait => return wrong("the thread has not arrived at the cluster's barrier".to_owned()),
        _ if id > 15 => return wrong(format!("there is no barrier {id}")),
        BarrierKind::Arrive => thread.arrived |= 1 << id,
        BarrierKind::Sync | BarrierKind::Reduce { .. } => wait(thread, id),
    }
    Ok(())
}

/// Waits at a barrier's instruction.
fn wait(thread: &mut Thread, id: u32) {
    thread.pc -= 1;
    thread.state = State::AtBarrier(id);
}

/// Runs operations of the current frame.
fn frame(
    thread: &mut Thread,
    grid: &Grid<'_>,
    block: [u32; 3],
    shared: &mut [u8],
    fuel: &mut u32,
) -> Result<Leave, Trouble> {
    let function = &grid.program.functions[thread.function].function;
    let code = function.code.as_slice();
    let (index, number) = (thread.index, thread.number);
    let slots = &mut thread.registers[thread.base..];
    let local = thread.local.as_mut_slice();
    let mut view = View { memory: grid.memory, shared, local, parameters: &grid.parameters };
    let mut pc = thread.pc;
    macro_rules! get {
        ($slot:expr) => {
            slots[*$slot as usize]
        };
    }
    macro_rules! jump {
        ($target:expr) => {{
            let target = *$target as usize;
            let backwards = target < pc;
            pc = target;
            if backwards {
                *fuel -= 1;
                if *fuel == 0 {
                    break Leave::TurnOver;
                }
            }
        }};
    }
    macro_rules! fault {
        ($kind:expr) => {{
            thread.pc = pc - 1;
            return Err($kind.into());
        }};
        ($kind:expr, $address:expr, $access:expr) => {{
            thread.pc = pc - 1;
            let (kind, address, bytes) = ($kind, $address, u32::from($access.bytes));
            let illegal = kind == FaultKind::IllegalAddress;
            let detail = if illegal { view.size(address, $access) } else { String::new() };
            return Err(Trouble { kind, address, bytes, detail });
        }};
    }
    let leave = loop {
        let op = &code[pc];
        pc += 1;
        match op {
            Op::Move { d, a } => get!(d) = get!(a),
            Op::Unary { f, d, a } => get!(d) = f(get!(a)),
            Op::Binary { f, d, a, b } => get!(d) = f(get!(a), get!(b)),
            Op::Ternary { f, d, a, b, c } => get!(d) = f(get!(a), get!(b), get!(c)),
            Op::Quaternary { f, d, operands: [a, b, c, e] } => get!(d) = f(get!(a), get!(b), get!(c), get!(e)),
            Op::Branch { target } => jump!(target),
            Op::BranchIf { p, negated, target } => {
                if (get!(p) != 0) != *negated {
                    jump!(target);
                }
            }
            Op::Load { d, base, offset, access } => {
                let address = get!(base).wrapping_add(*offset);
                match view.load(address, *access) {
                    Ok(value) => get!(d) = value,
                    Err(kind) => fault!(kind, address, *access),
                }
            }
            Op::Store { a, base, offset, access } => {
                let address = get!(base).wrapping_add(*offset);
                if let Err(kind) = view.store(address, *access, get!(a)) {
                    fault!(kind, address, *access);
                }
            }
            Op::Atomic { atomic } => {
                let atomic = &function.atomics[*atomic as usize];
                let address = get!(&atomic.base).wrapping_add(atomic.offset);
                if let Err(kind) = update(&mut view, slots, atomic, address) {
                    fault!(kind, address, atomic.access);
                }
            }
            Op::Special { d, what } => get!(d) = special(*what, grid, block, index, number),
            Op::Convert { d, a, how } => get!(d) = how.apply(get!(a)),
            Op::Carry { f, d, operands: [a, b, c], writes_carry } => {
                let (value, carry) = f(get!(a), get!(b), get!(c), get!(&CARRY) != 0);
                get!(d) = value;
                if *writes_carry {
                    get!(&CARRY) = u64::from(carry);
                }
            }
            Op::InWindow { d, a, window } => {
                let inside = Window::of(get!(a)).0 == *window;
                // Constants belong to no other space, although they are stored among the global variables.
                get!(d) = u64::from(inside && !grid.program.is_constant(get!(a)));
            }
            Op::InConst { d, a } => get!(d) = u64::from(grid.program.is_constant(get!(a))),
            Op::Fence { scope } => grid.memory.fence(*scope),
            Op::Yield => {
                thread.yielded = true;
                break Leave::TurnOver;
            }
            Op::BranchTable { a, table } => {
                let targets = &function.tables[*table as usize];
                let chosen = usize::try_from(get!(a)).ok().and_then(|index| targets.get(index));
                match chosen {
                    Some(target) => jump!(target),
                    None => fault!(FaultKind::InvalidPc),
                }
            }
            Op::Call { call } => {
                *fuel -= 1;
                if *fuel == 0 {
                    pc -= 1;
                    break Leave::TurnOver;
                }
                break Leave::Call(*call as usize);
            }
            Op::Return => break Leave::Return,
            Op::Exit => break Leave::Exit,
            Op::Trap => fault!(FaultKind::Trap),
            Op::Barrier { barrier } => break Leave::Barrier(*barrier as usize),
            Op::Warp { warp } => break Leave::Warp(*warp as usize),
            Op::StackSave { d } => get!(d) = view.local.len() as u64,
            Op::Extend { d, bytes, align } => break Leave::Extend { d: *d, bytes: get!(bytes), align: get!(align) },
            Op::StackRestore { a } => break Leave::StackRestore(get!(a)),
            Op::LoadTile { tile } => {
                let loaded = matrix::load(&view, slots, number % 32, &function.tiles[*tile as usize]);
                if let Err((kind, address, access)) = loaded {
                    fault!(kind, address, access);
                }
            }
            Op::StoreTile { tile } => {
                let stored = matrix::store(&mut view, slots, number % 32, &function.tiles[*tile as usize]);
                if let Err((kind, address, access)) = stored {
                    fault!(kind, address, access);
                }
            }
            Op::Mbarrier { mbarrier } => {
                let mbarrier = &function.mbarriers[*mbarrier as usize];
                let address = get!(&mbarrier.base).wrapping_add(mbarrier.offset);
                match operate(&mut view, slots, mbarrier, address) {
                    Ok(false) if mbarrier.waits => {
                        thread.yielded = true;
                        break Leave::TurnOver;
                    }
                    Ok(_) => {}
                    Err((kind, "")) => fault!(kind, address, mbarrier.access),
                    Err((kind, detail)) => {
                        thread.pc = pc - 1;
                        return Err(Trouble { kind, address, bytes: 8, detail: detail.to_owned() });
                    }
                }
            }
            Op::Sleep { a } => break Leave::Sleep(get!(a) & mask(32)),
        }
    };
    thread.pc = pc;
    Ok(leave)
}

/// Performs an operation on an mbarrier; returns whether its result is not 0.
fn operate(
    view: &mut View<'_>,
    slots: &mut [u64],
    mbarrier: &Mbarrier,
    address: u64,
) -> Result<bool, (FaultKind, &'static str)> {
    let (a, b) = (slots[mbarrier.a as usize], slots[mbarrier.b as usize]);
    if mbarrier.access.window == Window::Generic && Window::of(address).0 != Window::Shared {
        return Err((FaultKind::InvalidBarrier, "an mbarrier is in shared memory"));
    }
    let mut outcome = Ok(0);
    let change = |word| match perform(mbarrier.what, word, a, b) {
        Ok((word, result)) => {
            outcome = Ok(result);
            word
        }
        Err(wrong) => {
            outcome = Err((FaultKind::InvalidBarrier, wrong));
            word
        }
    };
    view.update(address, mbarrier.access, change).map_err(|kind| (kind, ""))?;
    let result = outcome?;
    if let Some(d) = mbarrier.d {
        slots[d as usize] = result;
    }
    Ok(result != 0)
}

fn update(view: &mut View<'_>, slots: &mut [u64], atomic: &Atomic, address: u64) -> Result<(), FaultKind> {
    let value = |slot: Slot| slots[slot as usize];
    let (b, c) = (value(atomic.b), value(atomic.c));
    if let Some(scope) = atomic.fence_before {
        view.memory.fence(scope);
    }
    let old = view.update(address, atomic.access, |old| (atomic.f)(old, b, c))?;
    if let Some(scope) = atomic.fence_after {
        view.memory.fence(scope);
    }
    if let Some(d) = atomic.d {
        slots[d as usize] = old;
    }
    Ok(())
}
