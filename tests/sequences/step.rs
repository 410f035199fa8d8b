//! The steps of a sequence and their distribution. [`World`](crate::world::World) carries them out.
#![forbid(unsafe_code)]

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

/// The operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Open,
    Close,
    Ask,
    Collect,
    SetThresholds,
    Allocate,
    Import,
    Slice,
    Bind,
    Unbind,
    ReleaseImmediately,
    Free,
    Give,
    Take,
    Write,
    WriteMany,
    Fill,
    Read,
    Map,
    Sync,
    BeyondTheEnd,
    Compare,
    Upload,
    Download,
    DeviceFill,
    DeviceCopy,
    DeviceRows,
    DriverFill,
    Delay,
    Order,
    WaitForStream,
    NewPool,
    ClosePool,
    PoolAllocate,
    PoolTrim,
    PoolFreeHeld,
    PoolStopHolding,
    AllocateRaw,
    UseRaw,
    FreeRaw,
    NewAllocator,
    DropAllocator,
    AllocateBuffer,
    AllocateImage,
    QueueFill,
    QueueCopy,
    NewSemaphore,
    Signal,
    DropSemaphore,
    RunRing,
}

/// The weight of each operation. Frees are as frequent as allocations.
const WEIGHTS: [(u32, What); 50] = [
    (2, What::Open),
    (2, What::Close),
    (2, What::Ask),
    (3, What::Collect),
    (1, What::SetThresholds),
    (14, What::Allocate),
    (3, What::Import),
    (8, What::Slice),
    (6, What::Bind),
    (2, What::Unbind),
    (1, What::ReleaseImmediately),
    (44, What::Free),
    (3, What::Give),
    (3, What::Take),
    (16, What::Write),
    (4, What::WriteMany),
    (6, What::Fill),
    (10, What::Read),
    (10, What::Map),
    (4, What::Sync),
    (3, What::BeyondTheEnd),
    (8, What::Compare),
    (10, What::Upload),
    (8, What::Download),
    (10, What::DeviceFill),
    (12, What::DeviceCopy),
    (4, What::DeviceRows),
    (3, What::DriverFill),
    (8, What::Delay),
    (5, What::Order),
    (6, What::WaitForStream),
    (2, What::NewPool),
    (2, What::ClosePool),
    (16, What::PoolAllocate),
    (2, What::PoolTrim),
    (1, What::PoolFreeHeld),
    (1, What::PoolStopHolding),
    (3, What::AllocateRaw),
    (4, What::UseRaw),
    (3, What::FreeRaw),
    (2, What::NewAllocator),
    (2, What::DropAllocator),
    (10, What::AllocateBuffer),
    (6, What::AllocateImage),
    (6, What::QueueFill),
    (16, What::QueueCopy),
    (2, What::NewSemaphore),
    (5, What::Signal),
    (1, What::DropSemaphore),
    (2, What::RunRing),
];

/// Draws a step.
pub(crate) fn step() -> impl Strategy<Value = Step> + Clone {
    let what = Union::new_weighted(WEIGHTS.map(|(weight, what)| (weight, Just(what))).to_vec());
    let span = (any::<u32>(), any::<u32>()).prop_map(|(start, len)| Span { start, len });
    (what, any::<u8>(), any::<u8>(), any::<u8>(), span, any::<u16>())
        .prop_map(|(what, first, second, choice, span, seed)| Step { what, first, second, choice, span, seed })
}
