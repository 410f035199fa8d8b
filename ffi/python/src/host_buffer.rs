//! `HostBuffer`: the contiguous bytes of any Python object with the buffer protocol.
#![expect(unsafe_code, reason = "the buffer protocol")]

use std::ptr::NonNull;
use std::slice;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::{Failure, Result, class, in_bytes};

/// An acquired `Py_buffer`, released on drop.
struct Buffer(Box<ffi::Py_buffer>);

// SAFETY: the exporter keeps the bytes in place until the buffer is released, on whichever thread.
unsafe impl Send for Buffer {}
// SAFETY: as above; the structure itself is never modified.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Once the interpreter has ended the exporter no longer exists.
        let _ = Python::try_attach(|_| {
            // SAFETY: filled in by `PyObject_GetBuffer`, released once, and this thread is attached.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
        });
    }
}

/// Contiguous bytes of a Python object, which do not move while this lives.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct HostBuffer {
    buffer: Buffer,
    #[pyo3(get)]
    address: usize,
    #[pyo3(get)]
    pub(crate) nbytes: usize,
    /// Whether the object's own view is read-only, though the bytes were only asked for to be read.
    #[pyo3(get)]
    readonly: bool,
    pub(crate) writable: bool,
}

impl HostBuffer {
    pub(crate) fn address(&self) -> *mut u8 {
        if self.nbytes == 0 { NonNull::dangling().as_ptr() } else { self.buffer.0.buf.cast() }
    }

    /// The bytes. If another thread writes to them during a copy, the copy has a mix of old and new bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the exporter keeps `len` contiguous bytes there until the buffer is released.
        unsafe { slice::from_raw_parts(self.address(), self.nbytes) }
    }

    /// Runs `work` on the first `len` bytes; an error if there are fewer, or if they are read-only.
    pub(crate) fn with_bytes_mut<T>(&self, len: usize, work: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
        if !self.writable {
            return Err(Failure::Invalid("the destination is read-only".into()));
        }
        if len > self.nbytes {
            let text = format!("the destination has {}, but the copy needs {len}", in_bytes(self.nbytes));
            return Err(Failure::Invalid(text));
        }
        // SAFETY: as for `bytes`; the exporter granted a writable buffer.
        work(unsafe { slice::from_raw_parts_mut(self.address(), len) })
    }
}

#[pymethods]
impl HostBuffer {
    /// Acquires the buffer. With `any_order`, Fortran-contiguous arrays are accepted too.
    #[new]
    #[pyo3(signature = (object, writable, any_order = false))]
    pub(crate) fn new(object: &Bound<'_, PyAny>, writable: bool, any_order: bool) -> Result<Self> {
        let py = object.py();
        let order = if any_order { ffi::PyBUF_ANY_CONTIGUOUS } else { ffi::PyBUF_C_CONTIGUOUS };
        let flags = order | if writable { ffi::PyBUF_WRITABLE } else { 0 };
        let mut buffer = Box::new(ffi::Py_buffer::new());
        // SAFETY: `buffer` is a live local and `object` a live object.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *buffer, flags) } == 0 {
            // The protocol has no negative lengths.
            let (address, nbytes, readonly) = (buffer.buf.addr(), buffer.len.unsigned_abs(), buffer.readonly != 0);
            return Ok(Self { buffer: Buffer(buffer), address, nbytes, readonly, writable });
        }
        let error = PyErr::fetch(py);
        // NumPy raises ValueError where the protocol specifies BufferError.
        let is_of_bytes = error.is_instance_of::<PyBufferError>(py) || error.is_instance_of::<PyValueError>(py);
        if !is_of_bytes || error.is_instance(py, &class(py, "VkgdrError")?) {
            return Err(error.into());
        }
        let what = if writable { "contiguous and writable" } else { "contiguous" };
        Err(Failure::Invalid(format!("the bytes must be {what}: {}", error.value(py))))
    }
}
