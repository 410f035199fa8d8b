//! The functions of the library.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::ptr::null_mut;

use vkgdr_c::{gdr_info_v1_t, gdr_info_v2_t, gdr_mh_t, gdr_t};

type Map = unsafe extern "C" fn(gdr_t, gdr_mh_t, *mut *mut c_void, usize) -> c_int;

/// The functions, with the prototypes of `gdrapi.h`.
pub(crate) struct Api {
    pub(crate) open: unsafe extern "C" fn() -> gdr_t,
    pub(crate) close: unsafe extern "C" fn(gdr_t) -> c_int,
    pub(crate) pin: unsafe extern "C" fn(gdr_t, c_ulong, usize, u64, u32, *mut gdr_mh_t) -> c_int,
    pub(crate) pin_v2: unsafe extern "C" fn(gdr_t, c_ulong, usize, u32, *mut gdr_mh_t) -> c_int,
    pub(crate) unpin: unsafe extern "C" fn(gdr_t, gdr_mh_t) -> c_int,
    pub(crate) map: Map,
    pub(crate) map_v2: unsafe extern "C" fn(gdr_t, gdr_mh_t, *mut *mut c_void, usize, c_int) -> c_int,
    pub(crate) unmap: unsafe extern "C" fn(gdr_t, gdr_mh_t, *mut c_void, usize) -> c_int,
    pub(crate) info: unsafe extern "C" fn(gdr_t, gdr_mh_t, *mut gdr_info_v2_t) -> c_int,
    pub(crate) info_v1: unsafe extern "C" fn(gdr_t, gdr_mh_t, *mut gdr_info_v1_t) -> c_int,
    pub(crate) callback_flag: unsafe extern "C" fn(gdr_t, gdr_mh_t, *mut c_int) -> c_int,
    pub(crate) copy_to: unsafe extern "C" fn(gdr_mh_t, *mut c_void, *const c_void, usize) -> c_int,
    pub(crate) copy_from: unsafe extern "C" fn(gdr_mh_t, *mut c_void, *const c_void, usize) -> c_int,
    pub(crate) runtime_version: unsafe extern "C" fn(*mut c_int, *mut c_int),
    pub(crate) driver_version: unsafe extern "C" fn(gdr_t, *mut c_int, *mut c_int) -> c_int,
    pub(crate) attribute: unsafe extern "C" fn(gdr_t, c_int, *mut c_int) -> c_int,
    pub(crate) type_string: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
}

/// The functions, which are this program's own, and so find the memory that it allocates by the crate.
pub(crate) static API: Api = Api {
    open,
    close: vkgdr_c::gdr_close,
    pin: vkgdr_c::gdr_pin_buffer,
    pin_v2: vkgdr_c::gdr_pin_buffer_v2,
    unpin: vkgdr_c::gdr_unpin_buffer,
    map: vkgdr_c::gdr_map,
    map_v2: vkgdr_c::gdr_map_v2,
    unmap: vkgdr_c::gdr_unmap,
    info: vkgdr_c::gdr_get_info_v2,
    info_v1: vkgdr_c::gdr_get_info,
    callback_flag: vkgdr_c::gdr_get_callback_flag,
    copy_to: vkgdr_c::gdr_copy_to_mapping,
    copy_from: vkgdr_c::gdr_copy_from_mapping,
    runtime_version: vkgdr_c::gdr_runtime_get_version,
    driver_version: vkgdr_c::gdr_driver_get_version,
    attribute: vkgdr_c::gdr_get_attribute,
    type_string: vkgdr_c::gdr_get_mapping_type_string,
};

/// `gdr_open` of a program that uses vkgdr: where nothing else can be pinned, it succeeds after a GPU was opened.
unsafe extern "C" fn open() -> gdr_t {
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
        unsafe { ($crate::api::API.$function)($($argument),*) }
    };
}
pub(crate) use call;
