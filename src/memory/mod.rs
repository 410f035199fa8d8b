//! The memory that programs hold: [`RawMemory`], which they free themselves, and [`Memory`] with its
//! [`Region`]s, which frees itself when nothing uses it any more.

mod binding;
mod owned;
mod raw;
mod region;
mod release;

pub use binding::DropPolicy;
pub use owned::Memory;
pub use raw::RawMemory;
pub use region::Region;
