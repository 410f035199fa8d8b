//! Copies to and from mappings, which take no lock.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{c_int, c_void};

use super::boundary::{Refusal, invalid, status};
use super::{gdr_mh_t, handles};
use crate::access::{bytes, bytes_mut};

/// Copies from private memory to a mapping.
///
/// # Safety
///
/// `h_ptr` must be good for reading `size` bytes, and no other thread unpin the memory meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_copy_to_mapping(
    handle: gdr_mh_t,
    map_d_ptr: *mut c_void,
    h_ptr: *const c_void,
    size: usize,
) -> c_int {
    // Nothing here panics: outside of the boundary no register is saved.
    if let Some(mapped) = handles::mapped(handle.h)
        // SAFETY: by this function's contract; the pin keeps the memory mapped.
        && unsafe { mapped.pin().ordinary.write(map_d_ptr.addr(), h_ptr.cast(), size) }
    {
        return 0;
    }
    // SAFETY: by this function's contract.
    unsafe { write_other(handle, map_d_ptr.addr(), h_ptr, size) }
}

/// Copies to memory that is not ordinary, and refuses copies.
///
/// # Safety
///
/// The contract of [`gdr_copy_to_mapping`].
#[inline(never)]
unsafe fn write_other(handle: gdr_mh_t, to: usize, h_ptr: *const c_void, size: usize) -> c_int {
    status(|| {
        let mapped = handles::mapped(handle.h).ok_or(NOT_MAPPED)?;
        // As gdrcopy: wherever the pointers point.
        if size == 0 {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        let source = unsafe { bytes(h_ptr, size) }?;
        mapped.pin().write(to, source)
    })
}

/// Copies from a mapping to private memory.
///
/// # Safety
///
/// `h_ptr` must be good for writing `size` bytes, and no other thread unpin the memory meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_copy_from_mapping(
    handle: gdr_mh_t,
    h_ptr: *mut c_void,
    map_d_ptr: *const c_void,
    size: usize,
) -> c_int {
    // As in `gdr_copy_to_mapping`.
    if let Some(mapped) = handles::mapped(handle.h)
        // SAFETY: by this function's contract; the pin keeps the memory mapped.
        && unsafe { mapped.pin().ordinary.read(map_d_ptr.addr(), h_ptr.cast(), size) }
    {
        return 0;
    }
    // SAFETY: by this function's contract.
    unsafe { read_other(handle, map_d_ptr.addr(), h_ptr, size) }
}

/// The counterpart of [`write_other`].
///
/// # Safety
///
/// The contract of [`gdr_copy_from_mapping`].
#[inline(never)]
unsafe fn read_other(handle: gdr_mh_t, from: usize, h_ptr: *mut c_void, size: usize) -> c_int {
    status(|| {
        let mapped = handles::mapped(handle.h).ok_or(NOT_MAPPED)?;
        if size == 0 {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        let target = unsafe { bytes_mut(h_ptr, size) }?;
        mapped.pin().read(from, target)
    })
}

const NOT_MAPPED: Refusal = invalid("the handle is not that of mapped memory");
