//! CUDA's handles and addresses, which Python has as numbers, and [`Stream`].
#![forbid(unsafe_code)]

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use vkgdr::cudarc::driver::sys::CUstream;

/// The null stream handle: the legacy default stream of the current context.
pub(crate) const NULL_STREAM: u64 = 0;
/// The handle `CU_STREAM_LEGACY` (cuda.h), the same stream as the null handle.
pub(crate) const LEGACY_STREAM: u64 = 1;
/// `CU_STREAM_PER_THREAD` (cuda.h), a stream to which memory cannot be bound.
pub(crate) const PER_THREAD_STREAM: u64 = 2;

/// A stream that Python passes: its handle, and the objects that keep it alive; none if its owner does.
pub(crate) struct Stream {
    pub(crate) handle: u64,
    pub(crate) objects: Vec<Py<PyAny>>,
}

impl Stream {
    /// A stream that its owner keeps alive.
    pub(crate) const fn of(handle: u64) -> Self {
        Self { handle, objects: Vec::new() }
    }

    /// CUDA's handle.
    pub(crate) fn raw(&self) -> CUstream {
        raw_stream(self.handle)
    }
}

impl<'py> FromPyObject<'_, 'py> for Stream {
    type Error = PyErr;

    /// Of a number: that of `vkgdr._stream_handle.number_of` has objects.
    fn extract(number: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let handle = number.extract()?;
        if number.is_exact_instance_of::<PyInt>() {
            return Ok(Self::of(handle));
        }
        let objects = number.getattr_opt(intern!(number.py(), "_objects"))?;
        Ok(Self { handle, objects: objects.map_or_else(|| Ok(Vec::new()), |objects| objects.extract())? })
    }
}

/// A stream handle as CUDA's pointer type.
pub(crate) fn raw_stream(handle: u64) -> CUstream {
    std::ptr::with_exposed_provenance_mut(as_address(handle))
}

/// A device address or a handle as a pointer-sized integer.
#[expect(clippy::cast_possible_truncation, reason = "CUDA supports 64-bit systems only")]
pub(crate) const fn as_address(number: u64) -> usize {
    number as usize
}
