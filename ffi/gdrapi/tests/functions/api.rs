//! The functions of the library, loaded as a program would load them.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::sync::OnceLock;

use libloading::Library;
use support::Result;
use vkgdr_gdrapi::{gdr_info_v1_t, gdr_info_v2_t, gdr_mh_t, gdr_t};

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

fn load() -> Result<Api> {
    let path = std::env::current_exe()?.with_file_name("libvkgdr_gdrapi.so");
    // SAFETY: the library may be loaded at any time.
    let library = unsafe { Library::new(path) }?;
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the function's prototype in gdrapi.h.
            *unsafe { library.get($name) }?
        };
    }
    Ok(Api {
        open: function!(b"gdr_open"),
        close: function!(b"gdr_close"),
        pin: function!(b"gdr_pin_buffer"),
        pin_v2: function!(b"gdr_pin_buffer_v2"),
        unpin: function!(b"gdr_unpin_buffer"),
        map: function!(b"gdr_map"),
        map_v2: function!(b"gdr_map_v2"),
        unmap: function!(b"gdr_unmap"),
        info: function!(b"gdr_get_info_v2"),
        info_v1: function!(b"gdr_get_info"),
        callback_flag: function!(b"gdr_get_callback_flag"),
        copy_to: function!(b"gdr_copy_to_mapping"),
        copy_from: function!(b"gdr_copy_from_mapping"),
        runtime_version: function!(b"gdr_runtime_get_version"),
        driver_version: function!(b"gdr_driver_get_version"),
        attribute: function!(b"gdr_get_attribute"),
        type_string: function!(b"gdr_get_mapping_type_string"),
    })
}

pub(crate) fn api() -> Result<&'static Api> {
    static API: OnceLock<Api> = OnceLock::new();
    if API.get().is_none() {
        let _ = API.set(load()?);
    }
    API.get().ok_or_else(|| "not loaded".into())
}

/// Calls a function that accepts any arguments, or with pointers that are good.
macro_rules! call {
    ($function:ident($($argument:expr),*)) => {
        // SAFETY: the functions accept any handle; the pointers are null or good.
        unsafe { ($crate::api::api()?.$function)($($argument),*) }
    };
}
pub(crate) use call;
