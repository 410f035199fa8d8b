//! The slots that a function may read before it writes them, which must start as zero.
//!
//! The others need no initial value: a frame has a value for each lane of a warp, and to clear it may take longer than a
//! small kernel does. This is the classic analysis of live variables, over basic blocks.

use crate::op::{BarrierKind, CARRY, Function, LOCAL_BASE, Matrix, Op, Place, Slot, Target};

/// The limit on blocks times slots. Larger functions get all their slots cleared.
const MOST_BITS: usize = 1 << 26;

/// The slots that are live at a function's start, in order.
pub(crate) fn live_at_start(function: &Function) -> Vec<Slot> {
    let slots = function.constants.len();
    let all = || (0..u32::try_from(slots).unwrap_or(u32::MAX)).collect();
    let starts = starts_of_blocks(function);
    if starts.len().saturating_mul(slots) > MOST_BITS {
        return all();
    }
    let words = slots.div_ceil(64);
    let block_at = |pc: u32| starts.binary_search(&(pc as usize)).ok();
    let blocks: Vec<Block> = starts
        .iter()
        .enumerate()
        .map(|(index, &start)| {
            let end = starts.get(index + 1).copied().unwrap_or(function.code.len());
            Block::of(function, start..end, words, block_at)
        })
        .collect();
    let mut live = vec![vec![0u64; words]; blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (index, block) in blocks.iter().enumerate().rev() {
            let mut now = block.read.clone();
            for &next in &block.next {
                for ((now, next), written) in now.iter_mut().zip(&live[next]).zip(&block.written) {
                    *now |= next & !written;
                }
            }
            changed |= now != live[index];
            live[index] = now;
        }
    }
    let is_live = |slot: &Slot| live.first().is_some_and(|live| live[*slot as usize / 64] >> (slot % 64) & 1 == 1);
    all().into_iter().filter(is_live).collect()
}

/// The first operations of the basic blocks.
fn starts_of_blocks(function: &Function) -> Vec<usize> {
    let mut starts = vec![0];
    for (op, after) in function.code.iter().zip(1..) {
        match op {
            Op::Branch { target } | Op::BranchIf { target, .. } => starts.extend([*target as usize, after]),
            Op::BranchTable { table, .. } => {
                starts.extend(function.tables[*table as usize].iter().map(|&target| target as usize));
                starts.push(after);
            }
            Op::Return | Op::Exit | Op::Trap => starts.push(after),
            _ => {}
        }
    }
    starts.retain(|&start| start < function.code.len());
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// A basic block: sets of slots, as bits.
struct Block {
    /// Read before any write in the block.
    read: Vec<u64>,
    written: Vec<u64>,
    /// The blocks that may follow.
    next: Vec<usize>,
}

impl Block {
    fn of(
        function: &Function,
        range: std::ops::Range<usize>,
        words: usize,
        block_at: impl Fn(u32) -> Option<usize>,
    ) -> Block {
        let mut block = Block { read: vec![0; words], written: vec![0; words], next: Vec::new() };
        let after = u32::try_from(range.end).unwrap_or(u32::MAX);
        for op in &function.code[range.clone()] {
            slots(op, function, |slot, writes| {
                let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
                if writes {
                    block.written[word] |= bit;
                } else if block.written[word] & bit == 0 {
                    block.read[word] |= bit;
                }
            });
        }
        match function.code.get(range.end.wrapping_sub(1)) {
            Some(Op::Branch { target }) => block.next.extend(block_at(*target)),
            Some(Op::BranchIf { target, .. }) => {
                block.next.extend(block_at(*target));
                block.next.extend(block_at(after));
            }
            Some(Op::BranchTable { table, .. }) => {
                block.next.extend(function.tables[*table as usize].iter().filter_map(|&target| block_at(target)));
            }
            Some(Op::Return | Op::Exit | Op::Trap) | None => {}
            Some(_) => block.next.extend(block_at(after)),
        }
        block
    }
}

/// Calls `visit` with each slot that an operation reads, then with each that it writes.
fn slots(op: &Op, function: &Function, mut visit: impl FnMut(Slot, bool)) {
    let mut io = |reads: &[Slot], writes: &[Slot]| {
        reads.iter().for_each(|&slot| visit(slot, false));
        writes.iter().for_each(|&slot| visit(slot, true));
    };
    match op {
        Op::Move { d, a } | Op::Unary { d, a, .. } | Op::Convert { d, a, .. } => io(&[*a], &[*d]),
        Op::InConst { d, a } | Op::InWindow { d, a, .. } => io(&[*a], &[*d]),
        Op::Binary { d, a, b, .. } => io(&[*a, *b], &[*d]),
        Op::Ternary { d, a, b, c, .. } => io(&[*a, *b, *c], &[*d]),
        Op::Quaternary { d, operands, .. } => io(operands, &[*d]),
        Op::Carry { d, operands, .. } => {
            io(operands, &[]);
            io(&[CARRY], &[*d]);
        }
        Op::Special { d, .. } | Op::StackSave { d } => io(&[], &[*d]),
        Op::BranchIf { p, .. } => io(&[*p], &[]),
        Op::BranchTable { a, .. } | Op::Sleep { a } => io(&[*a], &[]),
        Op::StackRestore { a } => io(&[*a, LOCAL_BASE], &[]),
        Op::Load { d, base, .. } => io(&[*base], &[*d]),
        Op::Store { a, base, .. } => io(&[*a, *base], &[]),
        Op::Extend { d, bytes, align } => io(&[*bytes, *align], &[*d]),
        Op::Atomic { atomic } => {
            let atomic = &function.atomics[*atomic as usize];
            io(&[atomic.base, atomic.b, atomic.c], atomic.d.as_slice());
        }
        Op::Mbarrier { mbarrier } => {
            let mbarrier = &function.mbarriers[*mbarrier as usize];
            io(&[mbarrier.base, mbarrier.a], mbarrier.d.as_slice());
        }
        Op::LoadTile { tile } => {
            let tile = &function.tiles[*tile as usize];
            io(&[tile.base, tile.stride], &tile.registers);
        }
        Op::StoreTile { tile } => {
            let tile = &function.tiles[*tile as usize];
            io(&[tile.base, tile.stride], &[]);
            io(&tile.registers, &[]);
        }
        Op::Barrier { barrier } => {
            let barrier = &function.barriers[*barrier as usize];
            io(&[barrier.id], &[]);
            io(barrier.count.as_slice(), &[]);
            if let BarrierKind::Reduce { d, p, .. } = barrier.kind {
                io(&[p], &[d]);
            }
        }
        Op::Warp { warp } => {
            let warp = &function.warps[*warp as usize];
            io(&[warp.a, warp.b, warp.c], &[]);
            io(warp.mask.as_slice(), &[]);
            if let crate::op::WarpKind::Matrix { matrix } = warp.kind {
                match &function.matrices[matrix as usize] {
                    Matrix::Product { a, b, c, d, .. } => {
                        [a, b, c].iter().for_each(|slots| io(slots, &[]));
                        io(&[], d);
                    }
                    Matrix::Spread { rows, d, .. } => io(rows, d),
                    Matrix::Transpose { d, a } => io(&[*a], &[*d]),
                }
            } else {
                io(&[], &[warp.d]);
                io(&[], warp.p.as_slice());
            }
        }
        Op::Call { call } => {
            let call = &function.calls[*call as usize];
            io(&[LOCAL_BASE], &[]);
            call.arguments.iter().filter_map(|argument| slot_of(argument.from)).for_each(|slot| io(&[slot], &[]));
            let (reads, writes): (&[Place], _) = match &call.target {
                Target::Function(_) => (&[], None),
                Target::Pointer(slot, _) => (&[Place::Slot(*slot)], None),
                Target::Print { result, arguments } => (arguments, *result),
                Target::Allocate { result, bytes } => (std::slice::from_ref(bytes), *result),
                Target::Release { address } => (std::slice::from_ref(address), None),
                Target::Assert { arguments } => (arguments, None),
            };
            reads.iter().copied().filter_map(slot_of).for_each(|slot| io(&[slot], &[]));
            writes.and_then(slot_of).iter().for_each(|&slot| io(&[], &[slot]));
            call.results.iter().filter_map(|result| slot_of(result.to)).for_each(|slot| io(&[], &[slot]));
        }
        Op::Return => {
            function.shape.results.iter().filter_map(|result| slot_of(result.place)).for_each(|slot| io(&[slot], &[]));
        }
        Op::Branch { .. } | Op::Exit | Op::Trap | Op::Fence { .. } | Op::Yield => {}
    }
}

fn slot_of(place: Place) -> Option<Slot> {
    match place {
        Place::Slot(slot) => Some(slot),
        Place::Local(_) => None,
    }
}
