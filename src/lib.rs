//! GPU memory that the CPU reads and writes through a plain pointer.
//!
//! Vulkan allocates memory on an NVIDIA GPU and maps it for the CPU through the PCIe BAR; CUDA imports it. The CPU has a host
//! pointer, CUDA has a device pointer, and both address the same bytes. It takes no copy and no kernel module, on GeForce and
//! data-centre cards alike.
//!
//! ```no_run
//! use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};
//!
//! // CUDA device 0, in the primary context, which the CUDA runtime uses too.
//! let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
//! let weights = Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
//! // The CPU writes straight into GPU memory.
//! weights.write(0, &[0.25_f32; 1024])?;
//! weights.flush(..)?;
//! println!("kernels use {:#x}", weights.device_ptr());
//! # Ok::<(), vkgdr::Error>(())
//! ```
//!
//! # Overview
//!
//! The path of the data:
//!
//! ```text
//! open -> allocate -> map -> export -> import -> use (write, flush | invalidate, read) -> free
//! ```
//!
//! * [`Vkgdr`] is the handle of one GPU.
//! * [`Memory`] is memory that is freed with its last reference; clones and slices are references. [`Memory::map_existing`] maps
//!   CUDA memory that others allocated, where driver and GPU allow it.
//! * [`Pool`] allocates small memory without driver calls.
//! * [`memory_of`] finds the memory that contains an address.
//! * [`vulkan`] makes Vulkan buffers and images whose bytes CUDA and the CPU share, and lends and takes Vulkan devices.
//! * [`StreamRef`] is a CUDA stream that the caller owns, with events.
//! * [`ring`] passes messages to a kernel that keeps running, and back.
//! * [`ipc`] shares memory with other processes, over a Unix socket.
//! * [`Error`] names the driver call that failed and, where known, the remedy.

#![cfg_attr(
    not(all(feature = "__internal", feature = "vulkan")),
    allow(dead_code, reason = "what the bindings, the command and the module `vulkan` alone use")
)]
#![cfg_attr(
    not(feature = "vulkan"),
    allow(rustdoc::broken_intra_doc_links, reason = "the module `vulkan` is not there")
)]
#![cfg_attr(
    not(feature = "__internal"),
    allow(unreachable_pub, reason = "what is public for the bindings and the command alone")
)]

#[cfg(not(target_os = "linux"))]
compile_error!("vkgdr requires Linux: Vulkan passes memory to CUDA as a file descriptor");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("vkgdr requires a 64-bit target: NVIDIA's drivers have no other, and sizes of memory must fit usize");

mod addresses;
mod allocation;
mod copy;
mod cudarc_view;
mod device;
#[cfg(not(feature = "__internal"))]
mod diagnosis;
#[cfg(feature = "__internal")]
#[doc(hidden)]
pub mod diagnosis;
mod driver;
mod engine;
mod error;
mod flags;
pub mod ipc;
mod lock;
mod memory;
mod memory_kind;
mod pool;
mod range;
mod report;
mod retire;
pub mod ring;
mod stream;
#[cfg(feature = "vulkan")]
pub mod vulkan;

pub use device::{MemoryInfo, MemoryInfoSource, MemoryTypeInfo, Vkgdr, device_count, driver_version};
pub use engine::{CopyPolicy, CopyThresholds};
pub use error::{CudaCode, Error, NoMapping, Result};
pub use flags::OpenFlags;
pub use memory::{AllocateOptions, DmaBuf, DropPolicy, MapGuard, MapMode, Memory, RawMemory, Writer, memory_of};
pub use memory_kind::MemoryKind;
pub use pool::{Pool, PoolOptions};
pub use stream::{Event, StreamRef};

#[cfg(feature = "__internal")]
#[doc(hidden)]
pub use {
    copy::CopyRoutine,
    device::{current_device, pointer_device},
    driver::{
        fork::is_forked,
        os::{available_memory, duplicate},
    },
    error::{hyphenated, in_bytes, in_units},
    flags::MappingFlags,
    stream::{CopyPtr, Extent, FillPattern, PitchedPtr},
};

/// The crates whose types appear in this crate's signatures.
pub use {ash, bytemuck, cudarc};
