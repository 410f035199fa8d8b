//! The C library `libvkgdr`: every function of vkgdr 0.1, and more.
//!
//! | file | contents |
//! |---|---|
//! | `boundary` | the boundary around every export: panics, null pointers, statuses |
//! | `status`, `errors` | the results of the functions that vkgdr 0.1 lacks, failures, and this thread's last error |
//! | `kind` | the kinds of memory |
//! | `handle` | `vkgdr_t`: open, close, queries |
//! | `memory_handle` | `vkgdr_memory_t`: what it points to, and the handles by the memory's id |
//! | `memory` | its exports: alloc, free, pointers, streams, regions |
//! | `existing` | host views of memory that others allocated, and memory for network cards |
//! | `vulkan` | Vulkan's handles of the device and of memory |
//! | `access` | flush, invalidate, write, read, fill |
//! | `copy` | copies with an explicit policy, thresholds |
//! | `pool` | `vkgdr_pool_t`: small memory without driver calls |
//! | `ring` | `vkgdr_ring_t`: messages to a running kernel, and answers |
//! | `lookup` | memory found and freed by an address |
//! | `sharing` | memory sent to other processes and received from them |
//! | `gdrapi` | gdrcopy's functions |
//!
//! `include/vkgdr.h` is generated from these files, comments included (`cbindgen.toml`), but for those of `gdrapi`.
#![expect(non_camel_case_types, reason = "C's spelling")]

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must become an error: build with panic = \"unwind\"");

mod access;
mod boundary;
mod copy;
mod errors;
mod existing;
/// cbindgen:ignore
mod gdrapi;
mod handle;
mod kind;
mod lookup;
mod memory;
mod memory_handle;
mod pool;
mod ring;
mod sharing;
mod status;
mod vulkan;

pub use access::*;
pub use copy::*;
pub use errors::*;
pub use existing::*;
pub use gdrapi::*;
pub use handle::*;
pub use kind::*;
pub use lookup::*;
pub use memory::*;
pub use memory_handle::*;
pub use pool::*;
pub use ring::*;
pub use sharing::*;
pub use status::*;
pub use vulkan::*;

/// A CUDA device number, as in `cuda.h`.
pub type CUdevice = std::ffi::c_int;
/// An address on the device, as in `cuda.h`.
pub type CUdeviceptr = std::ffi::c_ulonglong;
/// A stream, as in `cuda.h`.
pub type CUstream = *mut CUstream_st;
/// The type that a stream handle points to, opaque as in `cuda.h`.
#[derive(Debug)]
#[repr(C)]
pub struct CUstream_st {
    _opaque: [u8; 0],
}
