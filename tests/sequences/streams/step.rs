//! The steps of a sequence on streams, and their distribution.
#![forbid(unsafe_code)]

use proptest::prelude::*;

use crate::step::{self, step_of};

pub(crate) type Step = step::Step<What>;

/// The operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    NewStream,
    DropStream,
    Delay,
    Allocate,
    PoolAllocate,
    PoolAllocateOn,
    Region,
    Bind,
    Unbind,
    Fill,
    Copy,
    Race,
    Launch,
    Upload,
    Download,
    HostWrite,
    HostRead,
    Free,
    FreeFailing,
    AllocateFailing,
    Orphan,
    Collect,
    Trim,
    FreeHeld,
    NewPool,
    Wait,
    Settle,
}

/// The weight of each operation. Few wait for a stream, so that most find work under way.
const WEIGHTS: [(u32, What); 27] = [
    (8, What::NewStream),
    (8, What::DropStream),
    (24, What::Delay),
    (8, What::Allocate),
    (10, What::PoolAllocate),
    (10, What::PoolAllocateOn),
    (8, What::Region),
    (4, What::Bind),
    (2, What::Unbind),
    (20, What::Fill),
    (60, What::Copy),
    (20, What::Race),
    (20, What::Launch),
    (3, What::Upload),
    (4, What::Download),
    (2, What::HostWrite),
    (2, What::HostRead),
    (30, What::Free),
    (4, What::FreeFailing),
    (2, What::AllocateFailing),
    (1, What::Orphan),
    (3, What::Collect),
    (2, What::Trim),
    (1, What::FreeHeld),
    (1, What::NewPool),
    (2, What::Wait),
    (4, What::Settle),
];

/// Draws a step.
pub(crate) fn step() -> impl Strategy<Value = Step> + Clone {
    step_of(WEIGHTS)
}
