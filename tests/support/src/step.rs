//! The steps of random programs: what an engine may do, how often, and with which numbers. They are decoded from bytes, so that a
//! seed draws them, proptest shrinks them and a fuzzer changes them.
#![forbid(unsafe_code)]

use std::ops::Range;

/// What runs programs. Each draws the steps that have a weight for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// All of the crate.
    Crate,
    /// The crate's pools, which come and go while threads use them.
    Pools,
    /// The C library.
    C,
}

macro_rules! steps {
    ($($what:ident [$($weight:literal)*],)*) => {
        /// The operation of a step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the engines say what each does")]
        pub enum What {
            $($what,)*
        }

        /// The weights by engine, in the order of [`Engine`]. Frees are as frequent as allocations.
        const STEPS: &[(What, [u16; 3])] = &[$((What::$what, [$($weight),*])),*];
    };
}

steps! {
    Open [2 0 4],
    Close [2 0 4],
    Ask [2 0 4],
    Collect [3 0 0],
    SetThresholds [1 0 0],
    Allocate [14 0 12],
    Import [3 0 0],
    Slice [8 30 4],
    Bind [6 0 4],
    Unbind [2 0 0],
    ReleaseImmediately [1 0 0],
    Free [44 180 16],
    Give [3 30 0],
    Take [3 30 0],
    Keep [0 10 0],
    Write [16 0 14],
    WriteMany [4 0 0],
    Fill [6 0 4],
    Read [10 0 10],
    Map [10 0 0],
    Sync [4 0 4],
    BeyondTheEnd [3 0 0],
    Compare [8 20 0],
    Upload [10 0 0],
    Download [8 0 0],
    DeviceFill [10 0 0],
    DeviceCopy [12 0 12],
    DeviceRows [4 0 0],
    DriverFill [3 0 0],
    Delay [8 0 12],
    Order [5 0 0],
    WaitForStream [6 0 0],
    NewPool [2 0 4],
    ClosePool [2 0 4],
    ReplacePool [1 2 0],
    PoolAllocate [16 200 12],
    PoolTrim [2 3 2],
    PoolFreeHeld [1 3 1],
    PoolStopHolding [1 1 1],
    AllocateRaw [3 0 0],
    UseRaw [4 0 0],
    FreeRaw [3 0 0],
    NewAllocator [2 0 0],
    DropAllocator [2 0 0],
    AllocateBuffer [10 0 0],
    AllocateImage [6 0 0],
    QueueFill [6 0 0],
    QueueCopy [16 0 0],
    NewSemaphore [2 0 0],
    Signal [5 0 0],
    DropSemaphore [1 0 0],
    RunRing [2 0 0],
}

impl What {
    fn drawn(engine: Engine, number: u16) -> Self {
        let steps = || STEPS.iter().map(|&(what, weights)| (what, weights[engine as usize]));
        let mut rest = number % steps().map(|(_, weight)| weight).sum::<u16>();
        for (what, weight) in steps() {
            match rest.checked_sub(weight) {
                Some(less) => rest = less,
                None => return what,
            }
        }
        unreachable!("less than the sum of the weights")
    }
}

/// The bytes of a step.
pub type Code = [u8; 16];

/// One step: an operation, and numbers that select its operands modulo the number of candidates, so that a program stays valid
/// without some of its steps.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it does.
    pub what: What,
    /// Selects an object.
    pub first: u8,
    /// Selects another one.
    pub second: u8,
    /// Selects one of several ways.
    pub choice: u8,
    /// The seed of new bytes.
    pub seed: u16,
    /// A place in memory.
    pub span: Span,
    /// The same bytes as numbers that are taken one after the other.
    pub numbers: Numbers,
}

impl Step {
    /// The step that the bytes are for an engine.
    #[must_use]
    pub fn decode(engine: Engine, code: Code) -> Self {
        let [what @ .., first, second, choice, _, s0, s1, a0, a1, a2, a3, b0, b1, b2, b3] = code;
        let span = Span { start: u32::from_le_bytes([a0, a1, a2, a3]), len: u32::from_le_bytes([b0, b1, b2, b3]) };
        let (what, seed) = (What::drawn(engine, u16::from_le_bytes(what)), u16::from_le_bytes([s0, s1]));
        Self { what, first, second, choice, seed, span, numbers: Numbers(u128::from_le_bytes(code) >> 16) }
    }
}

/// A position in some memory.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// A non-empty range within `len` bytes.
    #[must_use]
    pub fn within(self, size: usize) -> Range<usize> {
        let start = self.start as usize % size;
        start..start + 1 + self.len as usize % (size - start)
    }

    /// Like [`within`](Self::within), with start and length multiples of `unit`. At least one unit must fit.
    #[must_use]
    pub fn whole_units(self, size: usize, unit: usize) -> Range<usize> {
        let range = self.within(size / unit * unit).start / unit * unit..size / unit * unit;
        let count = 1 + self.len as usize % (range.len() / unit);
        range.start..range.start + count * unit
    }

    /// A length for new memory: mostly small.
    #[must_use]
    pub fn new_len(self) -> usize {
        let most = match self.start % 64 {
            0 => 2_300_000,
            1..=6 => 70_000,
            7..=24 => 9000,
            _ => 700,
        };
        1 + self.len as usize % most
    }
}

/// The numbers of a step; zeros follow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers(u128);

impl Numbers {
    /// A number less than `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u128;
        let number = self.0 % limit;
        self.0 /= limit;
        usize::try_from(number).unwrap_or(0)
    }

    /// A number of one byte.
    pub fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap_or(0)
    }

    /// An offset or a size: an edge case, or any.
    pub fn edge(&mut self, len: usize) -> usize {
        match self.below(8) {
            0 => 0,
            1 => len,
            2 => len.wrapping_add(1),
            3 => len / 2,
            4 => usize::MAX - self.below(4),
            5 => usize::MAX / 2 + self.below(3),
            6 => self.below(len),
            _ => self.below(1 << 16),
        }
    }
}
