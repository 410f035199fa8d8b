#![doc = include_str!("../README.md")]
//!
//! # The tour
//!
//! The data's way:
//!
//! ```text
//! open -> allocate -> map -> export -> import -> use (write, flush | invalidate, read) -> free
//! ```
//!
//! * [`Vkgdr`] is the handle of one GPU.
//! * [`Memory`] is memory that frees itself; it dereferences to the [`Region`] that covers it, where reading,
//!   writing, flushing and mapping live. [`RawMemory`] is memory that is freed by hand.
//! * [`Pool`] gives small memory in nanoseconds, as [`PoolMemory`].
//! * [`StreamRef`] gives a CUDA stream of somebody else's copies, fills and events.
//! * [`Error`] says which driver call failed and what to do about it.

#[cfg(not(target_os = "linux"))]
compile_error!("vkgdr needs Linux: memory travels from Vulkan to CUDA as a file descriptor");

mod access;
mod allocation;
mod copies;
mod copy_engine;
mod device;
mod driver;
mod error;
mod flags;
mod interop;
mod loom;
mod memory;
mod pool;
mod report;
mod stream;
mod sync;

pub use access::copy::CopyRoutine;
pub use access::guard::{MapGuard, MapMode};
pub use access::writer::Writer;
pub use copies::CopyStats;
pub use copy_engine::policy::{CopyPolicy, CopyThresholds};
pub use device::{MemoryInfo, MemoryInfoSource, MemoryTypeInfo, Vkgdr, device_count, driver_version, pointer_device};
pub use driver::process::is_forked;
pub use error::{CudaCode, Error, Result};
pub use flags::{MemoryKind, OpenFlags};
pub use memory::{DropPolicy, Memory, RawMemory, Region};
pub use pool::{Pool, PoolMemory, PoolOptions};
pub use stream::{CopyExtent, CopySide, Event, Place, StreamRef};

/// Whose types appear in this crate's signatures.
pub use {ash, cudarc};
