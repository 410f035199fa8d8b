//! The memory that programs hold: [`RawMemory`], which they free themselves, and [`Memory`] with its
//! [`Region`]s, which frees itself when nothing uses it any more.

pub(crate) mod binding;
pub(crate) mod block;
pub(crate) mod chunk;
#[expect(clippy::module_inception, reason = "a file bears the name of the type in it")]
mod memory;
mod raw;
mod region;
mod transfer;

pub use binding::DropPolicy;
pub use memory::Memory;
pub use raw::RawMemory;
pub use region::Region;
