//! Exports that return this thread's last error.
#![expect(unsafe_code, reason = "exports C symbols, and memory that C frees")]

use std::ffi::{CString, c_char};
use std::ptr::null_mut;

use crate::boundary;
use crate::failure::Failure;
use crate::last_error;

/// The text of this thread's last error: what failed, with its numbers and, where there is one, the remedy.
///
/// A function sets it that returns an error status, or that opens, creates or allocates and returns NULL. It is NULL before, and
/// once such an opening, creation or allocation, vkgdr_memory_send() or vkgdr_memory_receive() has succeeded.
///
/// @return A string that the caller frees with `free()`. Calling this again gives another copy.
#[unsafe(no_mangle)]
pub extern "C" fn vkgdr_last_error() -> *mut c_char {
    boundary::value(null_mut(), || {
        let text = last_error::with(|last| CString::new(last.to_string().replace('\0', "")).unwrap_or_default());
        // SAFETY: the string ends with a zero byte; the copy comes from libc's own malloc.
        Ok(text.map_or(null_mut(), |text| unsafe { libc::strdup(text.as_ptr()) }))
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
        let values = last_error::with(Failure::codes).unwrap_or_default();
        for (pointer, value) in [status, cuda, vulkan].into_iter().zip(values) {
            if !pointer.is_null() {
                // SAFETY: not null, so good for writing by this function's contract.
                unsafe { pointer.write(value) };
            }
        }
        Ok(())
    })
}
