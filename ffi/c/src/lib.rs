//! The C library `libvkgdr`: every function of vkgdr 0.1, and more beside it.
//!
//! | file | what is in it |
//! |---|---|
//! | `boundary` | what every export goes through: panics, null pointers, statuses |
//! | `last_error` | the error of this thread's last open or alloc |
//! | `status` | the statuses of the new functions |
//! | `handle` | `vkgdr_t`: open, close, and what it knows of the GPU |
//! | `memory` | `vkgdr_memory_t`: alloc, free, pointers, streams, regions |
//! | `access` | flush, invalidate, write, read, fill |
//!
//! `include/vkgdr.h` is generated from these files, comments included (`cbindgen.toml`).

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must become an error: build with panic = \"unwind\"");

mod access;
mod boundary;
mod handle;
mod last_error;
mod memory;
mod status;

pub use access::*;
pub use handle::*;
pub use last_error::*;
pub use memory::*;
pub use status::*;

/// A CUDA device number, as in `cuda.h`.
pub type CUdevice = std::ffi::c_int;
/// An address on the device, as in `cuda.h`.
pub type CUdeviceptr = std::ffi::c_ulonglong;
/// A stream, as in `cuda.h`.
pub type CUstream = *mut CUstream_st;
/// What a stream points at.
#[derive(Debug)]
#[repr(C)]
pub struct CUstream_st {
    _opaque: [u8; 0],
}
