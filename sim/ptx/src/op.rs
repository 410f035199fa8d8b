//! The operations that functions are lowered to, over the slots of a frame.
//!
//! A frame has a thread's registers for one call: first [`CARRY`] and [`LOCAL_BASE`], then registers, constants and
//! temporaries. All operands are slots; constants are in the frame from the start.

mod call;
mod matrix;

pub(crate) use call::{Call, Formal, Place, Shape, Target, Transfer};
pub(crate) use matrix::{Matrix, Tile};

use crate::arithmetic::carry::Carry;
use crate::arithmetic::convert::Convert;
use crate::arithmetic::lanewise::{WideBinary, WideTernary, WideUnary};
use crate::arithmetic::mbarrier;
use crate::arithmetic::{Quaternary, Ternary};
use crate::error::LoadError;
use crate::memory::Scope;
use crate::span::Span;
use crate::window::Window;

/// An index in a frame.
pub(crate) type Slot = u32;

/// The carry flag.
pub(crate) const CARRY: Slot = 0;
/// The offset of the frame's local memory in the thread's.
pub(crate) const LOCAL_BASE: Slot = 1;
/// The slots before the first register.
pub(crate) const FIRST_SLOT: Slot = 2;

/// Targets are indices into the function's code.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Move {
        d: Slot,
        a: Slot,
    },
    Unary {
        f: WideUnary,
        d: Slot,
        a: Slot,
    },
    Binary {
        f: WideBinary,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Ternary {
        f: WideTernary,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Quaternary {
        f: Quaternary,
        d: Slot,
        operands: [Slot; 4],
    },
    Carry {
        f: Carry,
        d: Slot,
        operands: [Slot; 3],
        writes_carry: bool,
    },
    Convert {
        d: Slot,
        a: Slot,
        how: Convert,
    },
    Special {
        d: Slot,
        what: Special,
    },
    Branch {
        target: u32,
    },
    BranchIf {
        p: Slot,
        negated: bool,
        target: u32,
    },
    /// Jumps to `tables[table][a]`.
    BranchTable {
        a: Slot,
        table: u32,
    },
    /// `calls[call]`
    Call {
        call: u32,
    },
    Return,
    Exit,
    Trap,
    Load {
        d: Slot,
        base: Slot,
        offset: u64,
        access: Access,
    },
    Store {
        a: Slot,
        base: Slot,
        offset: u64,
        access: Access,
    },
    /// `atomics[atomic]`
    Atomic {
        atomic: u32,
    },
    Fence {
        scope: Scope,
    },
    /// The other lanes of the warp come first.
    Yield,
    /// `tiles[tile]`: the lane's part of a matrix.
    LoadTile {
        tile: u32,
    },
    StoreTile {
        tile: u32,
    },
    /// `mbarriers[mbarrier]`
    Mbarrier {
        mbarrier: u32,
    },
    /// `barriers[barrier]`
    Barrier {
        barrier: u32,
    },
    /// `warps[warp]`
    Warp {
        warp: u32,
    },
    Sleep {
        a: Slot,
    },
    /// `alloca`: extends the thread's local memory.
    Extend {
        d: Slot,
        bytes: Slot,
        align: Slot,
    },
    /// `stacksave`: the size of the thread's local memory.
    StackSave {
        d: Slot,
    },
    /// `stackrestore`: gives back local memory that was allocated since.
    StackRestore {
        a: Slot,
    },
    /// Whether a generic address lies in one of the module's `.const` variables.
    InConst {
        d: Slot,
        a: Slot,
    },
    /// Whether a generic address lies in a window.
    InWindow {
        d: Slot,
        a: Slot,
        window: Window,
    },
}

/// How memory is accessed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) window: Window,
    pub(crate) bytes: u8,
    /// The required alignment: for the first element of a vector, the vector's size.
    pub(crate) align: u8,
    /// The register width to which a loaded value is sign-extended; 0 for none.
    pub(crate) extend: u8,
    /// Whether an address in shared memory is modulo 2^32.
    pub(crate) wraps: bool,
    /// Whether it is a load that may see old values of global memory until the next fence.
    pub(crate) weak: bool,
}

/// A readable property of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(u8),
    BlockSize(u8),
    Block(u8),
    GridSize(u8),
    Lane,
    Warp,
    WarpCount,
    Clock,
    /// The clock's upper half.
    ClockHigh,
    GlobalTimer,
    GlobalTimerHigh,
    LanesEqual,
    LanesLess,
    LanesLessEqual,
    LanesGreater,
    LanesGreaterEqual,
    DynamicShared,
    TotalShared,
    /// An offset in the reserved shared memory, as an address of shared memory.
    ReservedShared(u16),
    ReservedSharedSize,
    /// The start of dynamic shared memory.
    DynamicSharedBase,
    /// The address of a cooperative launch's barrier, and its upper half.
    GridWorkspace,
    GridWorkspaceHigh,
    Zero,
    One,
}

impl Special {
    /// The number of bits that its value may have.
    pub(crate) fn bits(self) -> u32 {
        if matches!(self, Special::Clock | Special::GlobalTimer) { 64 } else { 32 }
    }
}

/// The initial value of a frame's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Zero,
    Value(u64),
    /// The address of a module's variable.
    Variable {
        index: usize,
    },
    /// The offset of a shared variable in its window.
    Shared {
        index: usize,
    },
    /// The value of a pointer to a function.
    Function {
        index: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) f: Ternary,
    /// The function outside global memory, where it is another one and the address is generic.
    pub(crate) elsewhere: Option<Ternary>,
    pub(crate) d: Option<Slot>,
    pub(crate) base: Slot,
    pub(crate) offset: u64,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) access: Access,
    pub(crate) fence_before: Option<Scope>,
    pub(crate) fence_after: Option<Scope>,
}

/// An operation on an mbarrier in shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Mbarrier {
    pub(crate) what: mbarrier::Operation,
    pub(crate) d: Option<Slot>,
    pub(crate) base: Slot,
    pub(crate) offset: u64,
    pub(crate) a: Slot,
    pub(crate) access: Access,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    /// The number of the barrier.
    pub(crate) id: Slot,
    /// The number of threads; `None` for all.
    pub(crate) count: Option<Slot>,
}

/// What is wrong with a barrier's number of threads (PTX ISA, `barrier`).
pub(crate) fn wrong_count(count: u64, arrives: bool) -> Option<&'static str> {
    match count {
        0 if arrives => Some("an arrival needs a number of threads other than 0"),
        count if count % 32 != 0 => Some("a barrier's number of threads is a multiple of 32"),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// Every thread gets the reduction of all predicates.
    Reduce {
        how: Reduction,
        d: Slot,
        p: Slot,
        negated: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Count,
    And,
    Or,
}

/// A collective operation of a warp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warp {
    pub(crate) kind: WarpKind,
    pub(crate) d: Slot,
    /// The second result.
    pub(crate) p: Option<Slot>,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    /// The participating lanes; `None` for those that happen to meet.
    pub(crate) mask: Option<Slot>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WarpKind {
    Sync,
    All {
        negated: bool,
    },
    Any {
        negated: bool,
    },
    Uniform {
        negated: bool,
    },
    Ballot {
        negated: bool,
    },
    MatchAny,
    MatchAll,
    Shuffle(Shuffle),
    Reduce(Ternary),
    Active,
    /// `matrices[matrix]`, by all lanes.
    Matrix {
        matrix: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// A lowered function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) is_defined: bool,
    /// The first statement that is not supported. The function has no code then.
    pub(crate) unsupported: Option<LoadError>,
    pub(crate) shape: Shape,
    pub(crate) code: Vec<Op>,
    /// One for each operation.
    pub(crate) spans: Vec<Span>,
    pub(crate) constants: Vec<Constant>,
    /// The size of a frame's local memory in bytes: results, parameters, then variables.
    pub(crate) local_bytes: u64,
    /// The alignment of its start.
    pub(crate) local_align: u64,
    pub(crate) tables: Vec<Vec<u32>>,
    pub(crate) calls: Vec<Call>,
    pub(crate) atomics: Vec<Atomic>,
    pub(crate) barriers: Vec<Barrier>,
    pub(crate) mbarriers: Vec<Mbarrier>,
    pub(crate) warps: Vec<Warp>,
    pub(crate) matrices: Vec<Matrix>,
    pub(crate) tiles: Vec<Tile>,
    /// The indices of the shared variables that it uses.
    pub(crate) shared: Vec<usize>,
    pub(crate) reserved_shared: bool,
    pub(crate) calls_pointers: bool,
    pub(crate) callees: Vec<usize>,
}
