//! The memory that programs hold: [`RawMemory`], which they free themselves, and [`Memory`] with its
//! [`Region`]s, which frees itself when nothing uses it any more.

pub(crate) mod binding;
mod bindings;
mod calibrate;
mod lease;
mod owned;
mod part;
pub(crate) mod piece;
mod raw;
mod region;
pub(crate) mod release;
mod shares;
pub(crate) mod slab;
mod tenure;
mod transfer;

use std::sync::atomic;

pub use binding::DropPolicy;
pub use owned::Memory;
pub use raw::RawMemory;
pub use region::Region;
pub use transfer::CopyStats;
