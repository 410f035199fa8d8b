//! The buffer protocol: memory as one-dimensional bytes, format "B".
#![expect(unsafe_code, reason = "the buffer protocol")]

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::base::{Base, view_of};
use crate::error::{Failure, Result};
use crate::storage::Use;

/// State that lives as long as an exported buffer.
struct Export {
    /// Keeps the memory alive, also after `free()`.
    _used: Use,
    shape: isize,
    stride: isize,
}

const FORMAT: &std::ffi::CStr = c"B";

#[pymethods]
impl Base {
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(pyo3::exceptions::PyBufferError::new_err("the Py_buffer to fill is null"));
        }
        // SAFETY: the interpreter passes a valid structure to fill in.
        unsafe { (*view).obj = null_mut() };
        let (address, len, readonly, used) = describe(slf, flags)?;
        let shape = isize::try_from(len).unwrap_or(isize::MAX);
        let export = Box::into_raw(Box::new(Export { _used: used, shape, stride: 1 }));
        let has = |flag: c_int| flags & flag == flag;
        let filled = ffi::Py_buffer {
            buf: with_exposed_provenance_mut::<c_void>(address),
            obj: slf.clone().into_any().into_ptr(),
            len: shape,
            itemsize: 1,
            readonly: c_int::from(readonly),
            ndim: 1,
            format: if has(ffi::PyBUF_FORMAT) { FORMAT.as_ptr().cast_mut() } else { null_mut() },
            // SAFETY: the export was allocated above, and lives until the buffer is released.
            shape: if has(ffi::PyBUF_ND) { unsafe { &raw mut (*export).shape } } else { null_mut() },
            // SAFETY: as above.
            strides: if has(ffi::PyBUF_STRIDES) { unsafe { &raw mut (*export).stride } } else { null_mut() },
            suboffsets: null_mut(),
            internal: export.cast(),
        };
        // SAFETY: the interpreter passes a valid structure to fill in.
        unsafe { view.write(filled) };
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter passes a structure that `__getbuffer__` filled in.
        let export = unsafe { (*view).internal }.cast::<Export>();
        if !export.is_null() {
            // SAFETY: allocated by `__getbuffer__`, and released once.
            drop(unsafe { Box::from_raw(export) });
        }
    }
}

/// Address, length, read-only flag and a use of the memory, or the error that the flags cannot be satisfied.
fn describe(slf: &Bound<'_, Base>, flags: c_int) -> Result<(usize, usize, bool, Use)> {
    let view = view_of(slf)?;
    let view = view.get();
    // Never null: some consumers treat a null pointer as an error, even for an empty buffer.
    let address = view.visible()?.max(align_of::<u64>());
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && view.is_readonly() {
        return Err(Failure::Buffer("the memory is read-only".into()));
    }
    Ok((address, view.len(), view.is_readonly(), view.join()?))
}
