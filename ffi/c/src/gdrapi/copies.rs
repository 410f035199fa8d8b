//! Copies to and from mappings.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{c_int, c_void};

use super::boundary::status;
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
    status(|| {
        // SAFETY: no other thread unpins it meanwhile, by this function's contract.
        let pin = unsafe { handles::mapped(handle.h) }?;
        // As gdrcopy: wherever the pointers point.
        if size == 0 {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        let source = unsafe { bytes(h_ptr, size, "h_ptr") }?;
        pin.write(map_d_ptr.addr(), source)
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
    status(|| {
        // SAFETY: no other thread unpins it meanwhile, by this function's contract.
        let pin = unsafe { handles::mapped(handle.h) }?;
        if size == 0 {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        let target = unsafe { bytes_mut(h_ptr, size, "h_ptr") }?;
        pin.read(map_d_ptr.addr(), target)
    })
}
