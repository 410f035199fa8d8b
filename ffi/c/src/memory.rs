//! Exports on `vkgdr_memory_t`: alloc, free, pointers, streams, regions.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use vkgdr_rs::Memory;

use crate::boundary::{self, handle};
use crate::errors::{Failure, Outcome};
use crate::handle::vkgdr_t;
use crate::kind::options;
use crate::memory_handle::{free, owned, region, vkgdr_memory_t, whole};
use crate::{CUdeviceptr, CUstream};

/// Logs a failed free.
#[cold]
fn report(failure: &Failure) {
    log::warn!("freeing memory: {failure:?}");
}

/// Allocates memory.
///
/// A CUDA context of the handle's device must be current, unless the handle was opened with
/// vkgdr_open_primary_context(). The contents are undefined. An allocation does not wait for running kernels on an
/// H100 with driver 580, unless memory is short; other drivers may wait.
///
/// @param g      The GPU.
/// @param size   Bytes, more than 0.
/// @param flags  Of `enum vkgdr_memory_flags`; 0 as in vkgdr 0.1. Unknown bits are an error.
/// @return Memory for vkgdr_memory_free(), or NULL: see vkgdr_last_error().
///
/// # Safety
///
/// `g` must be NULL or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_alloc(g: vkgdr_t, size: usize, flags: u32) -> vkgdr_memory_t {
    boundary::pointer(|| {
        // SAFETY: by this function's contract.
        let gpu = &unsafe { handle(g) }?.inner;
        Ok(owned(Memory::allocate_with(gpu, size, options(flags)?)?))
    })
}

/// Frees memory or a region. NULL is allowed. Memory is freed with its last region; memory of a pool returns to the
/// pool.
///
/// Any context may be current. Unless the memory is bound to a stream, the device must have finished with it. The call
/// waits for none of its work, and a pool reuses the memory immediately. The driver itself may wait for running
/// kernels, whatever they use.
///
/// Free memory before its context of cuCtxCreate() is destroyed. If it was bound to a stream or freed on one, also call
/// vkgdr_device_finish_deferred_frees() before. What the CUDA driver does with a destroyed context is undefined.
/// After a reset of the device (cudaDeviceReset()), only Vulkan's side of its primary context's memory is freed.
///
/// Freeing memory twice is undefined, as with free(3).
///
/// @param mem  The memory or region, which must not be used afterwards.
///
/// # Safety
///
/// `mem` must be NULL, or memory that neither the CPU nor the device uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_free(mem: vkgdr_memory_t) {
    boundary::value((), || {
        if mem.is_null() {
            return Ok(());
        }
        // The prototype of vkgdr 0.1 returns nothing.
        // SAFETY: by this function's contract.
        unsafe { free(mem) }.unwrap_or_else(|failure| report(&failure));
        Ok(())
    });
}

/// As vkgdr_memory_free(), and returns the drivers' first error. The memory is freed in any case; where a capture forbids
/// that, later, as by vkgdr_device_collect(). NULL is VKGDR_ERROR_INVALID_ARGUMENT.
///
/// @param mem  The memory or region, which must not be used afterwards.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// As for vkgdr_memory_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_free_checked(mem: vkgdr_memory_t) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        unsafe { handle(mem) }?;
        // SAFETY: by this function's contract.
        unsafe { free(mem) }
    })
}

/// Frees memory once a stream has finished the work that was submitted before this call. Does not wait for it, unless the memory
/// was bound to another stream before: then it waits for the whole context. A chunk of an open pool that holds its blocks is not
/// waited for. vkgdr_pool_alloc_on() of the same stream reuses it immediately, if it was bound to no other.
///
/// @param mem     The memory, not a region. On failure it is not freed, and stays the caller's.
/// @param stream  A stream of the memory's context; NULL is its legacy default stream.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL, or memory that the CPU does not use any more and the device only on `stream`. The stream must
/// stay alive until this returns, and until the last region of the memory is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_free_on_stream(mem: vkgdr_memory_t, stream: CUstream) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        unsafe { bind(mem, stream) }?;
        // From here on the memory is freed for the caller: later errors of the drivers are only logged.
        // SAFETY: as above.
        unsafe { free(mem) }.unwrap_or_else(|failure| report(&failure));
        Ok(())
    })
}

/// Binds memory to a stream: vkgdr_memory_free() then frees it once the stream has finished the work that was submitted
/// before.
///
/// @param mem     The memory, not a region.
/// @param stream  A stream of the memory's context; NULL is its legacy default stream.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live. The stream must stay alive until the memory and all its regions are gone, or bound to
/// another stream. It must also stay alive until calls for the memory that other threads began before have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_bind_stream(mem: vkgdr_memory_t, stream: CUstream) -> i32 {
    // SAFETY: by this function's contract.
    boundary::status(|| unsafe { bind(mem, stream) })
}

/// # Safety
///
/// As for [`vkgdr_memory_bind_stream`].
unsafe fn bind(mem: vkgdr_memory_t, stream: CUstream) -> Outcome {
    // SAFETY: by this function's contract.
    let memory = unsafe { whole(mem) }?;
    // SAFETY: as above.
    Ok(unsafe { memory.bind_raw_stream(stream.cast()) }?)
}

/// Creates a region: a part of memory or of another region, with pointers of its own. It keeps the memory alive.
///
/// @param mem     The memory or region.
/// @param offset  The first byte, from the start of `mem`.
/// @param size    Bytes.
/// @param out     Where the region is written; for vkgdr_memory_free().
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_create_region(
    mem: vkgdr_memory_t,
    offset: usize,
    size: usize,
    out: *mut vkgdr_memory_t,
) -> i32 {
    let make = || {
        // SAFETY: by this function's contract.
        let mem = unsafe { handle(mem) }?;
        region(mem, offset, size)
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::making(out, make) }
}

/// The host address, valid until the memory is freed. NULL for device memory.
///
/// @param mem  The memory, or a region of it.
/// @return A pointer to the first byte.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_host_ptr(mem: vkgdr_memory_t) -> *mut c_void {
    boundary::value(null_mut(), || {
        // SAFETY: by this function's contract.
        Ok(unsafe { handle(mem) }?.memory.host_ptr().map_or(null_mut(), NonNull::as_ptr).cast())
    })
}

/// The device address, valid until the memory is freed.
///
/// @param mem  The memory, or a region of it.
/// @return The address of the first byte.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_device_ptr(mem: vkgdr_memory_t) -> CUdeviceptr {
    // SAFETY: by this function's contract.
    boundary::value(0, || Ok(unsafe { handle(mem) }?.memory.device_ptr()))
}

/// The requested size in bytes.
///
/// @param mem  The memory, or a region of it.
/// @return Bytes.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_size(mem: vkgdr_memory_t) -> usize {
    // SAFETY: by this function's contract.
    boundary::value(0, || Ok(unsafe { handle(mem) }?.memory.len()))
}

/// The kind of memory.
///
/// @param mem  The memory, or a region of it.
/// @param out  Where one of `enum vkgdr_memory_flags` is written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_kind(mem: vkgdr_memory_t, out: *mut u32) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(mem, out, |mem| Ok(mem.memory.kind() as u32)) }
}

/// Whether the CPU and the device see each other's writes without flushing and invalidating. Flushing then only orders
/// the CPU's stores, which a kernel that is already running needs.
///
/// @param mem  The memory, or a region of it.
/// @return Whether the memory is coherent.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_is_coherent(mem: vkgdr_memory_t) -> bool {
    // SAFETY: by this function's contract.
    boundary::value(true, || Ok(unsafe { handle(mem) }?.memory.is_coherent()))
}

/// The granularity of flushes in bytes: 1 where the memory is coherent.
///
/// @param mem  The memory, or a region of it.
/// @return Bytes.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_non_coherent_atom_size(mem: vkgdr_memory_t) -> usize {
    // SAFETY: by this function's contract.
    boundary::value(1, || Ok(unsafe { handle(mem) }?.memory.non_coherent_atom_size()))
}
