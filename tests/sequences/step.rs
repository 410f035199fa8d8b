//! The steps of a sequence, their distribution and their counts. [`World`](crate::world::World) carries them out.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use proptest::strategy::Union;

/// One step: an operation, and numbers that select its operands modulo the number of candidates, so that a sequence
/// stays valid without some of its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) what: What,
    pub(crate) first: u8,
    pub(crate) second: u8,
    pub(crate) choice: u8,
    pub(crate) span: Span,
    pub(crate) seed: u16,
}

/// A position in some memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// A non-empty range within `len` bytes.
    pub(crate) fn within(self, size: usize) -> Range<usize> {
        let start = self.start as usize % size;
        start..start + 1 + self.len as usize % (size - start)
    }

    /// Like [`within`](Self::within), with start and length multiples of `unit`. At least one unit must fit.
    pub(crate) fn whole_units(self, size: usize, unit: usize) -> Range<usize> {
        let range = self.within(size / unit * unit).start / unit * unit..size / unit * unit;
        let count = 1 + self.len as usize % (range.len() / unit);
        range.start..range.start + count * unit
    }

    /// A length for new memory: mostly small, sometimes more than one slot of the copy engine.
    pub(crate) fn new_len(self) -> usize {
        let most = match self.start % 64 {
            0 => 2_300_000,
            1..=6 => 70_000,
            7..=24 => 9000,
            _ => 700,
        };
        1 + self.len as usize % most
    }
}

macro_rules! operations {
    ($(($weight:literal, $what:ident),)*) => {
        /// The operation of a step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum What {
            $($what,)*
        }

        const WEIGHTS: &[(u32, What)] = &[$(($weight, What::$what)),*];
    };
}

// With the weight of each. Frees are as frequent as allocations.
operations! {
    (2, Open),
    (2, Close),
    (2, Ask),
    (3, Collect),
    (1, SetThresholds),
    (14, Allocate),
    (3, Import),
    (8, Slice),
    (6, Bind),
    (2, Unbind),
    (1, ReleaseImmediately),
    (44, Free),
    (3, Give),
    (3, Take),
    (16, Write),
    (4, WriteMany),
    (6, Fill),
    (10, Read),
    (10, Map),
    (4, Sync),
    (3, BeyondTheEnd),
    (8, Compare),
    (10, Upload),
    (8, Download),
    (10, DeviceFill),
    (12, DeviceCopy),
    (4, DeviceRows),
    (3, DriverFill),
    (8, Delay),
    (5, Order),
    (6, WaitForStream),
    (2, NewPool),
    (2, ClosePool),
    (16, PoolAllocate),
    (2, PoolTrim),
    (1, PoolFreeHeld),
    (1, PoolStopHolding),
    (3, AllocateRaw),
    (4, UseRaw),
    (3, FreeRaw),
    (2, NewAllocator),
    (2, DropAllocator),
    (10, AllocateBuffer),
    (6, AllocateImage),
    (6, QueueFill),
    (16, QueueCopy),
    (2, NewSemaphore),
    (5, Signal),
    (1, DropSemaphore),
    (2, RunRing),
}

/// Draws a step.
pub(crate) fn step() -> impl Strategy<Value = Step> + Clone {
    let what = Union::new_weighted(WEIGHTS.iter().map(|&(weight, what)| (weight, Just(what))).collect());
    let span = (any::<u32>(), any::<u32>()).prop_map(|(start, len)| Span { start, len });
    (what, any::<u8>(), any::<u8>(), any::<u8>(), span, any::<u16>())
        .prop_map(|(what, first, second, choice, span, seed)| Step { what, first, second, choice, span, seed })
}

/// Counts of steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) steps: BTreeMap<What, u64>,
    /// Allocations refused for lack of memory.
    pub(crate) refused: u64,
}

impl Tally {
    /// All steps that did something.
    pub(crate) fn total(&self) -> u64 {
        self.steps.values().sum()
    }

    pub(crate) fn count(&mut self, what: What) {
        *self.steps.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.steps {
            *self.steps.entry(*what).or_default() += count;
        }
        self.refused += other.refused;
    }
}
