//! Exports that find memory by an address, or free it by one.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_void;

use vkgdr_rs::{Error, is_forked, memory_of};

use crate::CUdeviceptr;
use crate::boundary::{self, put, required};
use crate::errors::Failure;
use crate::memory_handle::{found, free, handle_at, vkgdr_memory_t};

/// Finds the memory that contains an address.
///
/// The memory found is one more reference to all of the memory: it keeps the memory alive, and every function takes it. Freeing
/// it frees the memory only if it is the last reference. Then vkgdr_memory_free() waits for all work of the memory's context,
/// unless the memory is bound to a stream, or a chunk of a pool. Memory that another thread frees meanwhile is either kept alive
/// or not found.
///
/// @param ptr     A host or device address of any byte of the memory.
/// @param memory  Where the memory is written; for vkgdr_memory_free().
/// @param offset  Where the offset of the address in the memory is written, in bytes; may be NULL.
/// @return A `vkgdr_status`; VKGDR_ERROR_NOT_FOUND for an address in no memory of this library. That of another copy of it in
///         the process, such as the Python module's, is not found.
///
/// # Safety
///
/// `memory` must be NULL or good for writing, and so must `offset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_find(ptr: *const c_void, memory: *mut vkgdr_memory_t, offset: *mut usize) -> i32 {
    boundary::status(|| {
        required(memory)?;
        if is_forked() {
            return Err(Error::Forked.into());
        }
        let address = ptr.addr() as u64;
        // SAFETY: an alias of what others use, as all memory is in C.
        let (memory_found, at) = unsafe { memory_of(address) }.ok_or(Failure::NotFound)?;
        if !offset.is_null() {
            // SAFETY: good for writing, by this function's contract.
            unsafe { put(offset, at) }?;
        }
        // SAFETY: by this function's contract.
        unsafe { put(memory, found(memory_found)) }
    })
}

/// Frees memory by its device address, as vkgdr_memory_free_checked() does by its handle: for allocators that are given
/// addresses only. The handle must not be used afterwards.
///
/// @param ptr  The first device address of memory from vkgdr_memory_alloc(), vkgdr_memory_receive(), vkgdr_pool_alloc() or
///             vkgdr_pool_alloc_on(); 0 does nothing.
/// @return A `vkgdr_status`; VKGDR_ERROR_NOT_FOUND for any other address.
///
/// # Safety
///
/// Neither the CPU nor the device may use the memory any more, and no other thread may free it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_free_at(ptr: CUdeviceptr) -> i32 {
    boundary::status(|| {
        // In a forked child, nothing is released.
        if ptr == 0 || is_forked() {
            return Ok(());
        }
        // SAFETY: live, and not used again by this function's contract.
        unsafe { free(handle_at(ptr).ok_or(Failure::NotFound)?) }
    })
}
