//! Memory found by an address, and freed by one.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vkgdr_rs::{memory_of, other_memory_of};

use crate::CUdeviceptr;
use crate::boundary::{self, put, required};
use crate::failure::{Failure, Outcome};
use crate::memory::{self, vkgdr_memory_t};

/// The handles of allocations by their first device address. A handle of a pool's memory is made of the address of its chunk
/// instead.
static HANDLES: Mutex<BTreeMap<CUdeviceptr, usize>> = Mutex::new(BTreeMap::new());

/// None in a forked child, where another thread of the parent may hold the lock for ever.
fn handles() -> Option<MutexGuard<'static, BTreeMap<CUdeviceptr, usize>>> {
    (!vkgdr_rs::is_forked()).then(|| HANDLES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Records the handle of an allocation.
pub(crate) fn add(device_ptr: CUdeviceptr, mem: vkgdr_memory_t) {
    if let Some(mut handles) = handles() {
        handles.insert(device_ptr, mem.expose_provenance());
    }
}

/// Removes the handle of an allocation, before it is freed.
pub(crate) fn remove(device_ptr: CUdeviceptr) {
    if let Some(mut handles) = handles() {
        handles.remove(&device_ptr);
    }
}

/// The handle of memory that begins at a device address and was allocated by this library's C functions.
fn handle_at(ptr: CUdeviceptr) -> Outcome<vkgdr_memory_t> {
    let boxed = handles().and_then(|handles| handles.get(&ptr).copied());
    if let Some(handle) = boxed {
        return Ok(std::ptr::with_exposed_provenance_mut(handle));
    }
    let found = memory_of(ptr).filter(|&(_, offset)| offset == 0);
    found.and_then(|(memory, _)| memory::handle_of_pooled(&memory)).ok_or_else(|| absent(ptr))
}

/// Why an address is not in memory of this library.
#[cold]
fn absent(address: u64) -> Failure {
    if other_memory_of(address).is_some() { Failure::OtherCopy } else { Failure::NotFound }
}

/// Finds the memory that contains an address.
///
/// The memory found is one more reference to all of the allocation, or of a pool's chunk: it keeps the memory alive, every
/// function takes it, and freeing it frees the allocation only if it is the last reference. Memory of a pool is found once one
/// of its addresses was asked for. Memory that another thread frees meanwhile is either kept alive or not found.
///
/// @param ptr     A host or device address of any byte of the memory.
/// @param memory  Where the memory is written; for vkgdr_memory_free().
/// @param offset  Where the offset of the address in the memory is written, in bytes; may be NULL.
/// @return A `vkgdr_status`; VKGDR_ERROR_NOT_FOUND for an address in no memory of this library, VKGDR_ERROR_NOT_SUPPORTED for
///         one in memory of another copy of this library in the process, such as the Python module's.
///
/// # Safety
///
/// `memory` must be NULL or good for writing, and so must `offset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_find(ptr: *const c_void, memory: *mut vkgdr_memory_t, offset: *mut usize) -> i32 {
    boundary::status(|| {
        required(memory)?;
        let address = ptr.addr() as u64;
        let (found, at) = memory_of(address).ok_or_else(|| absent(address))?;
        if !offset.is_null() {
            // SAFETY: good for writing, by this function's contract.
            unsafe { put(offset, at) }?;
        }
        // SAFETY: by this function's contract.
        unsafe { put(memory, memory::found(found)) }
    })
}

/// Frees memory by its device address, as vkgdr_memory_free_checked() does by its handle: for allocators that are given
/// addresses only. The handle must not be used afterwards.
///
/// @param ptr  The first device address of memory from vkgdr_memory_alloc(), vkgdr_memory_receive(), vkgdr_pool_alloc() or
///             vkgdr_pool_alloc_on(); 0 does nothing.
/// @return A `vkgdr_status`; VKGDR_ERROR_NOT_FOUND for any other address, VKGDR_ERROR_NOT_SUPPORTED for one in memory of
///         another copy of this library.
///
/// # Safety
///
/// Neither the CPU nor the device may use the memory any more, and no other thread may free it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_free_at(ptr: CUdeviceptr) -> i32 {
    boundary::status(|| {
        if ptr == 0 {
            return Ok(());
        }
        // SAFETY: live, and not used again by this function's contract.
        unsafe { memory::free(handle_at(ptr)?) }
    })
}
