//! Checks of the C library's errors: the last error, and null pointers.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use vkgdr_c::*;

use super::{INVALID_ARGUMENT, SUCCESS};

/// Checks that the last error is set if and only if a call failed.
pub(crate) fn check_last_error(failed: bool) {
    let (mut status, text) = (0, vkgdr_last_error());
    // SAFETY: a valid output; null is skipped.
    assert_eq!(unsafe { vkgdr_last_error_codes(&raw mut status, null_mut(), null_mut()) }, SUCCESS);
    assert_eq!((!text.is_null(), status != SUCCESS), (failed, failed));
    if !text.is_null() {
        // SAFETY: a terminated string.
        let words = unsafe { CStr::from_ptr(text) };
        assert!(!words.to_bytes().contains(&b'\n'), "{words:?}");
        // SAFETY: the caller owns the string.
        unsafe { libc::free(text.cast()) };
    }
}

/// Passes null for every pointer of a function.
pub(crate) fn nothing_but_null(which: u8) {
    let (memory, gpu, pool) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the header allows null everywhere.
    let status = unsafe {
        match which % 17 {
            0 => vkgdr_memory_flush_checked(memory, 0, 1),
            1 => vkgdr_memory_write(memory, 0, null(), 1),
            2 => vkgdr_memory_read(memory, 0, null_mut(), 1),
            3 => vkgdr_memory_fill(memory, 0, 1, null(), 1),
            4 => vkgdr_memory_create_region(memory, 0, 1, null_mut()),
            5 => vkgdr_open_primary_context(0, 0, null_mut()),
            6 => vkgdr_device_get_name(gpu, null_mut(), 1),
            7 => vkgdr_device_supports(gpu, 0, null_mut()),
            8 => vkgdr_pool_get_stats(pool, null_mut()),
            9 => vkgdr_pool_create(gpu, null(), null_mut()),
            10 => vkgdr_memory_bind_stream(memory, null_mut()),
            11 => vkgdr_copy_write(memory, 0, null(), 1, 2),
            12 => vkgdr_copy_read(memory, 0, null_mut(), 1, 2),
            13 => vkgdr_copy_set_thresholds(gpu, null()),
            14 => vkgdr_memory_send(0, memory),
            15 => vkgdr_memory_receive(0, gpu, 0, null_mut()),
            _ => {
                vkgdr_memory_free(memory);
                vkgdr_pool_close(pool);
                vkgdr_close(gpu);
                assert_eq!(vkgdr_memory_get_size(memory), 0);
                assert!(vkgdr_memory_get_host_ptr(memory).is_null());
                INVALID_ARGUMENT
            }
        }
    };
    assert_eq!(status, INVALID_ARGUMENT, "null, {which}");
    let text = vkgdr_status_string(i32::from(which));
    assert!(!text.is_null());
}
