//! The buffer protocol: memory as one-dimensional bytes, format "B".
#![expect(unsafe_code, reason = "the buffer protocol")]

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::allocation::Use;
use crate::base::{Base, view_of};
use crate::error::{Failure, Result};
use crate::host_view::HostView;
use crate::memory_view::MemoryView;

/// State that lives as long as an exported buffer.
struct Export {
    /// Keeps the memory alive, also after `free()`.
    _used: Use,
    shape: isize,
    stride: isize,
}

const FORMAT: &std::ffi::CStr = c"B";

/// Fills in the buffer of a view for its exporter.
///
/// # Safety
///
/// `buffer` points to a structure that may be written to.
unsafe fn export(
    exporter: Bound<'_, PyAny>,
    view: &MemoryView,
    buffer: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if buffer.is_null() {
        return Err(pyo3::exceptions::PyBufferError::new_err("the Py_buffer to fill is null"));
    }
    // SAFETY: the caller passes a structure to fill in.
    unsafe { (*buffer).obj = null_mut() };
    let (address, len, readonly, used) = describe(view, flags)?;
    let shape = isize::try_from(len).unwrap_or(isize::MAX);
    let export = Box::into_raw(Box::new(Export { _used: used, shape, stride: 1 }));
    let has = |flag: c_int| flags & flag == flag;
    let filled = ffi::Py_buffer {
        buf: with_exposed_provenance_mut::<c_void>(address),
        obj: exporter.into_ptr(),
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
    // SAFETY: the caller passes a structure to fill in.
    unsafe { buffer.write(filled) };
    Ok(())
}

/// Releases what [`export`] filled in.
///
/// # Safety
///
/// Called once for each buffer.
unsafe fn release(buffer: *mut ffi::Py_buffer) {
    // SAFETY: the interpreter passes a structure that `export` filled in.
    let export = unsafe { (*buffer).internal }.cast::<Export>();
    if !export.is_null() {
        // SAFETY: allocated by `export`, and released once.
        drop(unsafe { Box::from_raw(export) });
    }
}

#[pymethods]
impl Base {
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let view = match view_of(slf) {
            Ok(view) => view,
            Err(failure) => {
                if !buffer.is_null() {
                    // SAFETY: the interpreter passes a structure to fill in; on an error this field is null.
                    unsafe { (*buffer).obj = null_mut() };
                }
                return Err(failure.into());
            }
        };
        // SAFETY: the interpreter passes a structure to fill in.
        unsafe { export(slf.clone().into_any(), view.get(), buffer, flags) }
    }

    unsafe fn __releasebuffer__(&self, buffer: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter calls this once for each buffer.
        unsafe { release(buffer) };
    }
}

#[pymethods]
impl HostView {
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter passes a structure to fill in.
        unsafe { export(slf.clone().into_any(), slf.get().view(), buffer, flags) }
    }

    unsafe fn __releasebuffer__(&self, buffer: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter calls this once for each buffer.
        unsafe { release(buffer) };
    }
}

/// Address, length, read-only flag and a use of the memory, or the error that the flags cannot be satisfied.
fn describe(view: &MemoryView, flags: c_int) -> Result<(usize, usize, bool, Use)> {
    // Never null: some consumers treat a null pointer as an error, even for an empty buffer.
    let address = view.visible()?.max(align_of::<u64>());
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && view.is_readonly() {
        return Err(Failure::Buffer("the memory is read-only".into()));
    }
    Ok((address, view.len(), view.is_readonly(), view.join()?))
}
