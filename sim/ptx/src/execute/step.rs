//! The inner loop: executes operations of lanes that are in one frame.
//!
//! Lanes at one instruction execute it together. Where they part at a branch, the group that is behind runs first, see
//! [`queue`](super::queue).

use super::access::{View, sums};
use super::active::{Active, Several, Single};
use super::grid::Grid;
use super::queue::{Group, Queue};
use super::warp::{LaneTrouble, Trouble, Warp};
use super::{call, collective, matrix, special, update};
use crate::arithmetic::lanewise::{LANES, Lanes};
use crate::arithmetic::mask;
use crate::fault::FaultKind;
use crate::lanes::members;
use crate::op::{CARRY, LOCAL_BASE, Op};
use std::time::{Duration, Instant};

/// What a warp executes in.
pub(super) struct Place<'p> {
    pub(super) grid: &'p Grid<'p>,
    pub(super) block: [u32; 3],
    pub(super) shared: &'p mut [u8],
}

/// The reason why the loop over one frame's operations ended for a group.
pub(super) enum Leave {
    TurnOver,
    Call(usize),
    Return,
    Exit,
    Barrier(usize),
    Warp(usize),
    Sleep,
}

/// Runs operations of lanes that are in one frame, until a group of them leaves it; returns the reason and the group. Takes
/// the lanes whose turn is over out of `pending`.
pub(super) fn frame(
    warp: &mut Warp,
    place: &mut Place<'_>,
    set: u32,
    pending: &mut u32,
) -> Result<(Leave, u32), LaneTrouble> {
    if set.is_power_of_two() {
        run::<Single>(warp, place, set, pending)
    } else {
        run::<Several>(warp, place, set, pending)
    }
}

/// [`frame`] for one lane or for several. Inlined, both loops would share one function's registers, and spill.
#[inline(never)]
#[expect(clippy::too_many_lines, reason = "the loop over the operations")]
fn run<A: Active>(
    warp: &mut Warp,
    place: &mut Place<'_>,
    set: u32,
    pending: &mut u32,
) -> Result<(Leave, u32), LaneTrouble> {
    let grid = place.grid;
    let leader = set.trailing_zeros() as usize % LANES;
    let function = &warp.function_of(grid.program, leader).function;
    let code = function.code.as_slice();
    let base = warp.base[leader] as usize;
    let live = warp.states.live();
    let mut queue = Queue::default();
    let group = |lane: usize, set: u32| Group { pc: warp.pc[lane], set, fuel: warp.fuel[lane] };
    let is_one = members(set).all(|lane| warp.pc[lane] == warp.pc[leader] && warp.fuel[lane] == warp.fuel[leader]);
    let first = if is_one {
        Some(group(leader, set))
    } else {
        members(set).for_each(|lane| queue.add(group(lane, 1 << lane)));
        queue.next()
    };
    let Some(Group { mut pc, set, mut fuel }) = first else { return Ok((Leave::TurnOver, 0)) };
    let mut limit = queue.limit();
    let mut active = A::new(set);
    // Whether the group may be waiting for another one: it made an atomic access or a fence since the last jump backwards.
    let mut waits = false;
    let registers = &mut warp.registers[base..];
    let mut view =
        View { memory: grid.memory, shared: place.shared, local: &mut warp.local, parameters: &grid.parameters };
    macro_rules! get {
        ($slot:expr) => {
            registers[*$slot as usize]
        };
    }
    // Writes a group's place back to its lanes.
    macro_rules! suspend {
        ($group:expr) => {{
            let group: Group = $group;
            if group.set == u32::MAX {
                (warp.pc, warp.fuel) = ([group.pc; LANES], [group.fuel; LANES]);
            } else {
                for lane in members(group.set) {
                    (warp.pc[lane], warp.fuel[lane]) = (group.pc, group.fuel);
                }
            }
        }};
    }
    macro_rules! leave {
        ($why:expr) => {{
            suspend!(Group { pc, set: active.set(), fuel });
            while let Some(group) = queue.next() {
                suspend!(group);
            }
            return Ok(($why, active.set()));
        }};
    }
    // Continues with the next group.
    macro_rules! next {
        () => {{
            let Some(next) = queue.next() else { return Ok((Leave::TurnOver, 0)) };
            (pc, fuel) = (next.pc, next.fuel);
            active.change(next.set);
            limit = queue.limit();
            waits = false;
        }};
    }
    // Ends the group's turn.
    macro_rules! rest {
        () => {{
            *pending &= !active.set();
            suspend!(Group { pc, set: active.set(), fuel });
            next!();
        }};
    }
    macro_rules! jump {
        ($target:expr) => {{
            let target = *$target;
            let backwards = target < pc;
            pc = target;
            if backwards {
                fuel -= 1;
                let yields = std::mem::take(&mut waits) && *pending != active.set();
                warp.yielded |= yields && fuel != 0;
                if fuel == 0 || yields {
                    rest!();
                }
            }
        }};
    }
    macro_rules! fault {
        ($lane:expr, $trouble:expr) => {{
            let (lane, trouble): (usize, Trouble) = ($lane, $trouble);
            warp.pc[lane] = pc - 1;
            return Err((lane, trouble));
        }};
        ($lane:expr, $kind:expr, $address:expr, $access:expr) => {{
            let (lane, kind, address, bytes): (usize, _, u64, _) = ($lane, $kind, $address, u32::from($access.bytes));
            let illegal = kind == FaultKind::IllegalAddress;
            let detail = if illegal { view.size(lane, address, $access) } else { String::new() };
            fault!(lane, Trouble { kind, address, bytes, detail })
        }};
    }
    loop {
        if !A::IS_SINGLE && pc >= limit {
            let current = Group { pc, set: active.set(), fuel };
            queue.add(current);
            next!();
        }
        let op = &code[pc as usize];
        pc += 1;
        match op {
            Op::Move { d, a } => active.copy(registers, *d, *a),
            Op::Unary { f, d, a } => active.unary(registers, f, *d, *a),
            Op::Binary { f, d, a, b } => active.binary(registers, f, *d, [*a, *b]),
            Op::Ternary { f, d, a, b, c } => active.ternary(registers, f, *d, [*a, *b, *c]),
            Op::Quaternary { f, d, operands: [a, b, c, e] } => {
                for lane in members(active.set()) {
                    get!(d)[lane] = f(get!(a)[lane], get!(b)[lane], get!(c)[lane], get!(e)[lane]);
                }
            }
            Op::Branch { target } => jump!(target),
            Op::BranchIf { p, negated, target } => {
                let holds = active.where_set(&get!(p));
                let taken = if *negated { active.set() & !holds } else { holds };
                let others = active.set() & !taken;
                if others == 0 {
                    jump!(target);
                } else if taken != 0 {
                    // Those that are behind run first.
                    let (behind, ahead) = if *target < pc { (taken, (pc, others)) } else { (others, (*target, taken)) };
                    queue.add(Group { pc: ahead.0, set: ahead.1, fuel });
                    limit = queue.limit();
                    active.change(behind);
                    if *target < pc {
                        jump!(target);
                    }
                }
            }
            Op::Load { d, base, offset, access } => {
                if active.are_few() {
                    for lane in members(active.set()) {
                        let address = get!(base)[lane].wrapping_add(*offset);
                        match view.load(lane, address, *access) {
                            Ok(value) => get!(d)[lane] = value,
                            Err(kind) => fault!(lane, kind, address, *access),
                        }
                    }
                } else {
                    let mut addresses = sums(&get!(base), *offset);
                    let mut others = [0; LANES];
                    let values = if active.are_all() { &mut get!(d) } else { &mut others };
                    if let Err((lane, kind)) = view.load_all(&active, &mut addresses, *access, values) {
                        fault!(lane, kind, get!(base)[lane].wrapping_add(*offset), *access);
                    }
                    if !active.are_all() {
                        active.write(&mut get!(d), &others);
                    }
                }
            }
            Op::Store { a, base, offset, access } => {
                if active.are_few() {
                    for lane in members(active.set()) {
                        let address = get!(base)[lane].wrapping_add(*offset);
                        if let Err(kind) = view.store(lane, address, *access, get!(a)[lane]) {
                            fault!(lane, kind, address, *access);
                        }
                    }
                } else {
                    let mut addresses = sums(&get!(base), *offset);
                    if let Err((lane, kind)) = view.store_all(&active, &mut addresses, *access, &get!(a)) {
                        fault!(lane, kind, get!(base)[lane].wrapping_add(*offset), *access);
                    }
                }
            }
            Op::Atomic { atomic } => {
                let atomic = &function.atomics[*atomic as usize];
                waits = true;
                if let Err((lane, kind)) = update::atomic(&mut view, registers, &active, atomic) {
                    let address = get!(&atomic.base)[lane].wrapping_add(atomic.offset);
                    fault!(lane, kind, address, atomic.access);
                }
            }
            Op::Special { d, what } => match special::common(*what, grid, place.block, warp.first) {
                Some(value) => active.fill(&mut get!(d), value),
                None => {
                    for lane in members(active.set()) {
                        get!(d)[lane] = special::of_lane(*what, &warp.index, lane);
                    }
                }
            },
            Op::Convert { d, a, how } => {
                for lane in members(active.set()) {
                    get!(d)[lane] = how.apply(get!(a)[lane]);
                }
            }
            Op::Carry { f, d, operands: [a, b, c], writes_carry } => {
                for lane in members(active.set()) {
                    let carried = get!(&CARRY)[lane] != 0;
                    let (value, carry) = f(get!(a)[lane], get!(b)[lane], get!(c)[lane], carried);
                    get!(d)[lane] = value;
                    if *writes_carry {
                        get!(&CARRY)[lane] = u64::from(carry);
                    }
                }
            }
            Op::InWindow { d, a, window } => {
                // Constants belong to no other space, although they are stored among the global variables.
                let values: Lanes = get!(a).map(|a| u64::from(window.contains(a) && !grid.program.is_constant(a)));
                active.write(&mut get!(d), &values);
            }
            Op::InConst { d, a } => {
                let values: Lanes = get!(a).map(|a| u64::from(grid.program.is_constant(a)));
                active.write(&mut get!(d), &values);
            }
            Op::Fence { scope } => {
                waits = true;
                grid.memory.fence(*scope);
            }
            Op::Yield => {
                if *pending != active.set() {
                    warp.yielded = true;
                    rest!();
                }
            }
            Op::BranchTable { a, table } => {
                let targets = &function.tables[*table as usize];
                let chosen = |lane: usize| usize::try_from(get!(a)[lane]).ok().and_then(|index| targets.get(index));
                if let Some(lane) = members(active.set()).find(|&lane| chosen(lane).is_none()) {
                    fault!(lane, FaultKind::InvalidPc.into());
                }
                let first = active.set().trailing_zeros() as usize % LANES;
                let targets: [u32; LANES] = std::array::from_fn(|lane| chosen(lane).copied().unwrap_or(0));
                let together = members(active.set()).all(|lane| targets[lane] == targets[first]);
                if together {
                    jump!(&targets[first]);
                } else {
                    for lane in members(active.set()) {
                        let left = fuel - u32::from(targets[lane] < pc);
                        if left == 0 {
                            *pending &= !(1 << lane);
                            suspend!(Group { pc: targets[lane], set: 1 << lane, fuel: left });
                        } else {
                            queue.add(Group { pc: targets[lane], set: 1 << lane, fuel: left });
                        }
                    }
                    next!();
                }
            }
            Op::Call { call } => {
                fuel -= 1;
                if fuel == 0 {
                    pc -= 1;
                    rest!();
                } else {
                    leave!(Leave::Call(*call as usize));
                }
            }
            Op::Return => leave!(Leave::Return),
            Op::Exit => leave!(Leave::Exit),
            Op::Trap => fault!(active.set().trailing_zeros() as usize, FaultKind::Trap.into()),
            Op::Barrier { barrier } => leave!(Leave::Barrier(*barrier as usize)),
            Op::Warp { warp: index } => {
                let instruction = &function.warps[*index as usize];
                let others = live & !active.set();
                if !collective::at_once(registers, function, instruction, active.set(), others) {
                    leave!(Leave::Warp(*index as usize));
                }
            }
            Op::StackSave { d } => {
                for lane in members(active.set()) {
                    get!(d)[lane] = view.local[lane].len() as u64;
                }
            }
            Op::Extend { d, bytes, align } => {
                for lane in members(active.set()) {
                    let size = (get!(bytes)[lane], get!(align)[lane]);
                    match call::extend(&mut view.local[lane], &mut warp.borrowed, size, &grid.budget) {
                        Ok(address) => get!(d)[lane] = address,
                        Err(kind) => fault!(lane, kind.into()),
                    }
                }
            }
            Op::StackRestore { a } => {
                for lane in members(active.set()) {
                    let fixed = get!(&LOCAL_BASE)[lane] + function.local_bytes;
                    if let Err(trouble) = call::restore(&mut view.local[lane], fixed, get!(a)[lane]) {
                        fault!(lane, trouble);
                    }
                }
            }
            Op::LoadTile { tile } => {
                for lane in members(active.set()) {
                    let loaded = matrix::load(&view, registers, lane, &function.tiles[*tile as usize]);
                    if let Err((kind, address, access)) = loaded {
                        fault!(lane, kind, address, access);
                    }
                }
            }
            Op::StoreTile { tile } => {
                for lane in members(active.set()) {
                    let stored = matrix::store(&mut view, registers, lane, &function.tiles[*tile as usize]);
                    if let Err((kind, address, access)) = stored {
                        fault!(lane, kind, address, access);
                    }
                }
            }
            Op::Mbarrier { mbarrier } => {
                let mbarrier = &function.mbarriers[*mbarrier as usize];
                for lane in members(active.set()) {
                    let address = get!(&mbarrier.base)[lane].wrapping_add(mbarrier.offset);
                    match update::mbarrier(&mut view, registers, lane, mbarrier, address) {
                        Ok(()) => {}
                        Err((kind, "")) => fault!(lane, kind, address, mbarrier.access),
                        Err((kind, detail)) => {
                            fault!(lane, Trouble { kind, address, bytes: 8, detail: detail.to_owned() })
                        }
                    }
                }
            }
            Op::Sleep { a } => {
                let now = Instant::now();
                for lane in members(active.set()) {
                    // `nanosleep` sleeps a millisecond at most.
                    let nanoseconds = (get!(a)[lane] & mask(32)).min(1_000_000);
                    warp.wakes[lane] = Some(now + Duration::from_nanos(nanoseconds));
                }
                leave!(Leave::Sleep);
            }
        }
    }
}
