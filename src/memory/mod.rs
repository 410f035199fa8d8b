//! [`RawMemory`], which is freed by hand, [`Memory`], which frees itself, and [`Mapping`] of others' memory.
//!
//! A `Memory` is reference-counted with its [`Region`](crate::Region)s and freed with the last of them. A `Mapping` is
//! a host view of memory that others allocated.
//!
//! A `Region` refers to a [`chunk`](crate::chunk), which is part or all of a [`Block`](crate::chunk::Block), the live
//! allocation.

mod export;
mod lookup;
mod mapping;
#[expect(clippy::module_inception, reason = "a file is named after the type in it")]
mod memory;
mod options;
mod raw;
mod stream_binding;

pub use export::DmaBuf;
pub use lookup::memory_of;
pub use mapping::Mapping;
pub use memory::Memory;
pub use options::AllocateOptions;
pub use raw::RawMemory;
