//! Exports that return this thread's last error.
#![expect(unsafe_code, reason = "exports C symbols, and memory that C frees")]

use std::ffi::c_char;
use std::ptr::null_mut;

use crate::boundary;
use crate::last_error::{self, LastError};

/// The error of this thread's last call of a function that opens, allocates, creates a pool or a ring, sends, receives, maps
/// existing memory or creates a dma-buf, or NULL if that succeeded. No other function changes it.
///
/// @return A string that the caller frees with `free()`. Calling this again gives another copy.
#[unsafe(no_mangle)]
pub extern "C" fn vkgdr_last_error() -> *mut c_char {
    boundary::value(null_mut(), || {
        // SAFETY: the string ends with a zero byte; the copy comes from libc's own malloc.
        let copy = last_error::with(|last| unsafe { libc::strdup(last.text().as_ptr()) });
        Ok(copy.unwrap_or(null_mut()))
    })
}

/// The codes of this thread's last error, whose text vkgdr_last_error() returns. Without an error, all are 0.
///
/// @param status  A `vkgdr_status`.
/// @param cuda    The `CUresult`, if a CUDA driver call failed, else 0.
/// @param vulkan  The `VkResult`, if a Vulkan call failed, else 0.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// The pointers must be NULL or good for writing; NULL is skipped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_last_error_codes(status: *mut i32, cuda: *mut i32, vulkan: *mut i32) -> i32 {
    boundary::status(|| {
        let values = last_error::with(LastError::codes).unwrap_or_default();
        for (pointer, value) in [status, cuda, vulkan].into_iter().zip(values) {
            if !pointer.is_null() {
                // SAFETY: not null, so good for writing by this function's contract.
                unsafe { pointer.write(value) };
            }
        }
        Ok(())
    })
}
