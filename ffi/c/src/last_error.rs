//! The error of this thread's last open or alloc.
#![expect(unsafe_code, reason = "exports C symbols, and memory that C frees")]

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use crate::boundary::{self, Failure};
use crate::status::vkgdr_status as Status;

struct LastError {
    text: CString,
    status: Status,
    cuda: i32,
    vulkan: i32,
}

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

/// Sets this thread's last error, or clears it.
pub(crate) fn set(failure: Option<&Failure>) {
    let last = failure.map(describe);
    // A thread that is ending has no last error any more.
    let _ = LAST.try_with(|slot| slot.replace(last));
}

fn describe(failure: &Failure) -> LastError {
    let (text, cuda, vulkan) = match failure {
        Failure::Null(what) => (format!("the {what} is NULL"), None, None),
        Failure::Region => ("a region cannot be bound to a stream".to_owned(), None, None),
        Failure::Library(error) => (error.to_string(), error.cuda_code(), error.vulkan_code()),
        Failure::Panic => ("internal error in vkgdr: see stderr".to_owned(), None, None),
    };
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    LastError { text, status: failure.status(), cuda: cuda.unwrap_or(0), vulkan: vulkan.unwrap_or(0) }
}

#[cfg(test)]
pub(crate) fn text() -> Option<String> {
    LAST.with_borrow(|last| last.as_ref().map(|last| last.text.to_string_lossy().into_owned()))
}

/// The error of the last open or alloc on this thread, or NULL if that succeeded. No other function changes it.
///
/// @return A string that the caller frees with `free()`. Calling this again gives another copy.
#[unsafe(no_mangle)]
pub extern "C" fn vkgdr_last_error() -> *mut c_char {
    boundary::value(std::ptr::null_mut(), || {
        let copy = LAST.try_with(|slot| {
            // SAFETY: the string ends with a zero byte; the copy comes from libc's own malloc.
            slot.borrow().as_ref().map(|last| unsafe { libc::strdup(last.text.as_ptr()) })
        });
        Ok(copy.ok().flatten().unwrap_or(std::ptr::null_mut()))
    })
}

/// The codes of the last open or alloc on this thread. All are 0 if that succeeded.
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
        let codes = |last: &LastError| [last.status as i32, last.cuda, last.vulkan];
        let values = LAST.try_with(|slot| slot.borrow().as_ref().map(codes)).ok().flatten().unwrap_or_default();
        for (pointer, value) in [status, cuda, vulkan].into_iter().zip(values) {
            if !pointer.is_null() {
                // SAFETY: not null, so good for writing by this function's contract.
                unsafe { pointer.write(value) };
            }
        }
        Ok(())
    })
}
