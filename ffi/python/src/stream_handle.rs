//! `StreamHandle` and `EventHandle`: native base classes of `Stream` and `TimedEvent` in `vkgdr.stream`.
//!
//! They destroy what they own with the last reference.
//! Not with a finalizer: the garbage collector runs those of a cycle before it drops any of its objects, and the memory bound to
//! a stream still records an event on it when it is dropped.
#![expect(unsafe_code, reason = "destroys streams and events")]

use pyo3::prelude::*;
use vkgdr::cudarc::driver::result;
use vkgdr::cudarc::driver::sys::CUevent;

use crate::error::Result;
use crate::own_context::OwnContext;
use crate::raw_stream::{as_address, raw_stream};

/// A `CUstream`.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct StreamHandle {
    handle: u64,
    /// The context of a stream that this object owns.
    context: Option<Py<OwnContext>>,
}

impl StreamHandle {
    /// Whether the stream ends with this object, and not before.
    pub(crate) const fn is_owned(&self) -> bool {
        self.context.is_some()
    }
}

#[pymethods]
impl StreamHandle {
    #[new]
    #[pyo3(signature = (handle, context = None))]
    const fn new(handle: u64, context: Option<Py<OwnContext>>) -> Self {
        Self { handle, context }
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
        if let Some(context) = &self.context {
            context.get().destroy(|| {
                // SAFETY: `vkgdr.stream` created the stream in this context, for this object alone, which cannot be copied.
                let _ = unsafe { result::stream::destroy(raw_stream(self.handle)) };
            });
        }
    }
}

/// A `CUevent` that this object owns.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct EventHandle {
    handle: u64,
    context: Py<OwnContext>,
}

#[pymethods]
impl EventHandle {
    #[new]
    const fn new(handle: u64, context: Py<OwnContext>) -> Self {
        Self { handle, context }
    }

    #[getter]
    const fn _handle(&self) -> u64 {
        self.handle
    }
}

impl Drop for EventHandle {
    fn drop(&mut self) {
        self.context.get().destroy(|| {
            let event: CUevent = std::ptr::with_exposed_provenance_mut(as_address(self.handle));
            // SAFETY: `vkgdr.stream` created the event in this context, for this object alone, which cannot be copied.
            let _ = unsafe { result::event::destroy(event) };
        });
    }
}

/// Raises an error in a child that was forked after the driver was loaded.
#[pyfunction]
pub(crate) fn check_process() -> Result<()> {
    if vkgdr::is_forked() { Err(vkgdr::Error::Forked.into()) } else { Ok(()) }
}
