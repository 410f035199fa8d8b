//! What functions are lowered to: flat operations over the slots of a frame.
//!
//! A frame is a thread's registers for one call: first [`CARRY`] and [`LOCAL_BASE`], then registers, constants and
//! what lowering needs in between. Operands are slots only; constants are in the frame from the start.

use crate::arithmetic::carry::Carry;
use crate::arithmetic::convert::Convert;
use crate::arithmetic::{Binary, Quaternary, Ternary, Unary};
use crate::span::Span;

/// A place in a frame.
pub(crate) type Slot = u32;

/// The carry flag.
pub(crate) const CARRY: Slot = 0;
/// Where the frame's local memory begins in the thread's.
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
        f: Unary,
        d: Slot,
        a: Slot,
    },
    Binary {
        f: Binary,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Ternary {
        f: Ternary,
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
    /// To `tables[table][a]`.
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
    Fence,
    /// The other lanes of the warp come first.
    Yield,
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

/// A state space that a kernel accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// Global and const memory.
    Global,
    /// Whichever the address says.
    Generic,
    Shared,
    Local,
    /// The kernel's parameters.
    Param,
}

/// How memory is accessed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) window: Window,
    pub(crate) bytes: u8,
    /// What the address is a multiple of: for the first element of a vector, the vector's bytes.
    pub(crate) align: u8,
    /// Where a loaded sign is extended: the width of the register; else 0.
    pub(crate) extend: u8,
}

/// What is read about a thread and its place.
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
    /// Where dynamic shared memory begins.
    DynamicSharedBase,
    Zero,
    One,
}

/// What a frame's slot holds before the first operation.
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
    /// What a pointer to a function holds.
    Function {
        index: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) f: Ternary,
    pub(crate) d: Option<Slot>,
    pub(crate) base: Slot,
    pub(crate) offset: u64,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) access: Access,
    pub(crate) fence_before: bool,
    pub(crate) fence_after: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    /// Which of the sixteen.
    pub(crate) id: Slot,
    /// How many threads; all where there is none.
    pub(crate) count: Option<Slot>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// Every thread gets what becomes of all predicates.
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

/// What the lanes of a warp do together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warp {
    pub(crate) kind: WarpKind,
    pub(crate) d: Slot,
    /// The second result.
    pub(crate) p: Option<Slot>,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    /// The lanes that take part; where there is none, those that happen to be here together.
    pub(crate) mask: Option<Slot>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WarpKind {
    Sync,
    All { negated: bool },
    Any { negated: bool },
    Uniform { negated: bool },
    Ballot { negated: bool },
    MatchAny,
    MatchAll,
    Shuffle(Shuffle),
    Reduce(Ternary),
    Active,
    Elect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// A call's target and how values cross.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) target: Target,
    /// Into the callee's frame.
    pub(crate) arguments: Vec<Transfer>,
    /// Out of it.
    pub(crate) results: Vec<Transfer>,
}

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Function(usize),
    /// What the slot points to, if its shape is this one.
    Pointer(Slot, Shape),
    /// Arguments: the format's and the buffer's addresses.
    Print {
        result: Option<Place>,
        arguments: [Place; 2],
    },
    /// Arguments: the message's, the file's, the line and the function's.
    Assert {
        arguments: [Place; 4],
    },
}

/// Where a function's results and parameters lie in its frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) results: Vec<Formal>,
    pub(crate) parameters: Vec<Formal>,
}

/// A value's place and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Formal {
    pub(crate) place: Place,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Slot(Slot),
    /// From the start of the frame's local memory.
    Local(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) bytes: u64,
}

/// A lowered function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) is_defined: bool,
    pub(crate) shape: Shape,
    pub(crate) code: Vec<Op>,
    /// One for each operation.
    pub(crate) spans: Vec<Span>,
    pub(crate) constants: Vec<Constant>,
    /// The bytes of a frame's local memory: results, parameters, then variables.
    pub(crate) local_bytes: u64,
    /// What its start is a multiple of.
    pub(crate) local_align: u64,
    pub(crate) tables: Vec<Vec<u32>>,
    pub(crate) calls: Vec<Call>,
    pub(crate) atomics: Vec<Atomic>,
    pub(crate) barriers: Vec<Barrier>,
    pub(crate) warps: Vec<Warp>,
    /// The shared variables that it names, by index.
    pub(crate) shared: Vec<usize>,
    pub(crate) calls_pointers: bool,
    pub(crate) callees: Vec<usize>,
}
