//! The functions of the library, which are this program's own, and so find the memory that it allocates by the crate.

use std::ptr::null_mut;

use vkgdr_c::gdr_t;
pub(crate) use vkgdr_c::{
    gdr_close as close, gdr_copy_from_mapping as copy_from, gdr_copy_to_mapping as copy_to,
    gdr_driver_get_version as driver_version, gdr_get_attribute as attribute, gdr_get_callback_flag as callback_flag,
    gdr_get_info as info_v1, gdr_get_info_v2 as info, gdr_get_mapping_type_string as type_string, gdr_map as map,
    gdr_map_v2 as map_v2, gdr_pin_buffer as pin, gdr_pin_buffer_v2 as pin_v2,
    gdr_runtime_get_version as runtime_version, gdr_unmap as unmap, gdr_unpin_buffer as unpin,
};

/// `gdr_open` of a program that uses vkgdr: where nothing else can be pinned, it succeeds after a GPU was opened.
pub(crate) fn open() -> gdr_t {
    let g = vkgdr_c::gdr_open();
    if !g.is_null() {
        return g;
    }
    let mut handle = null_mut();
    // SAFETY: the handle can be written.
    let _ = unsafe { vkgdr_c::vkgdr_open_primary_context(0, 0, &raw mut handle) };
    // SAFETY: NULL, or not used again.
    unsafe { vkgdr_c::vkgdr_close(handle) };
    vkgdr_c::gdr_open()
}

/// Calls a function that accepts any arguments, or with pointers that are good.
macro_rules! call {
    ($function:ident($($argument:expr),*)) => {
        // SAFETY: the functions accept any handle; the pointers are null or good.
        unsafe { $crate::api::$function($($argument),*) }
    };
}
pub(crate) use call;
