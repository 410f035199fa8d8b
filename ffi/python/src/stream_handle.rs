//! `StreamHandle`: the native base class of `vkgdr.stream.Stream`, which destroys its stream with the last reference.
//!
//! Not with a finalizer: the garbage collector runs those of a cycle before it drops any of its objects, and the memory bound to
//! the stream still records an event on it when it is dropped.
#![expect(unsafe_code, reason = "destroys streams")]

use pyo3::prelude::*;
use vkgdr::cudarc::driver::result;

use crate::detached::detached;
use crate::error::Result;
use crate::memory_view::raw_stream;

/// A `CUstream`, and whether this object owns it.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct StreamHandle {
    handle: u64,
    owned: bool,
}

impl StreamHandle {
    /// Whether the stream ends with this object, and not before.
    pub(crate) const fn is_owned(&self) -> bool {
        self.owned
    }
}

#[pymethods]
impl StreamHandle {
    #[new]
    #[pyo3(signature = (handle, owned = false))]
    const fn new(handle: u64, owned: bool) -> Self {
        Self { handle, owned }
    }

    #[getter]
    const fn _handle(&self) -> u64 {
        self.handle
    }

    #[getter]
    const fn _owned(&self) -> bool {
        self.is_owned()
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if self.owned && !vkgdr::is_forked() {
            detached(|| {
                // Fails where the context, and the stream with it, are gone.
                // SAFETY: `vkgdr.stream` created the stream for this object alone, which cannot be copied.
                let _ = unsafe { result::stream::destroy(raw_stream(self.handle)) };
            });
        }
    }
}

/// Raises an error in a child that was forked after the driver was loaded.
#[pyfunction]
pub(crate) fn check_process() -> Result<()> {
    if vkgdr::is_forked() { Err(vkgdr::Error::Forked.into()) } else { Ok(()) }
}
