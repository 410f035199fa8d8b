//! `StreamHandle` and `EventHandle`: native base classes of `Stream` and `TimedEvent` in `vkgdr.stream`.
//!
//! They destroy what they own with the last reference.
//! Not with a finalizer: the garbage collector runs those of a cycle before it drops any of its objects, and the memory bound to
//! a stream still records an event on it when it is dropped.
#![expect(unsafe_code, reason = "destroys streams and events")]

use pyo3::prelude::*;
use vkgdr::Vkgdr;
use vkgdr::cudarc::driver::result;
use vkgdr::cudarc::driver::sys::CUevent;

use crate::detached::{Detached, detached, is_ending};
use crate::error::Result;
use crate::handle::gpu_of;
use crate::raw_stream::{as_address, raw_stream};

/// The context in which this package made a stream or an event: a handle's, which it keeps alive, or one that the program has
/// current and that outlives what is made there.
struct Context(Option<Detached<Vkgdr>>);

impl Context {
    fn of(owner: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        Ok(Self(owner.map(gpu_of).transpose()?.map(Detached::new)))
    }

    /// Runs `destroy`; not in a forked child, to which nothing belongs, and not after a reset of the handle's context.
    fn destroy(&self, destroy: impl FnOnce() + Send) {
        if vkgdr::is_forked() || self.0.is_none() && is_ending() {
            return;
        }
        detached(|| {
            if !self.0.as_ref().is_some_and(|owner| owner.context_is_destroyed()) {
                destroy();
            }
        });
    }
}

/// A `CUstream`.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct StreamHandle {
    handle: u64,
    owned: bool,
    context: Context,
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
    #[pyo3(signature = (handle, owned = false, owner = None))]
    fn new(handle: u64, owned: bool, owner: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        Ok(Self { handle, owned, context: Context::of(owner)? })
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
        if self.owned {
            self.context.destroy(|| {
                // SAFETY: `vkgdr.stream` created the stream for this object alone, which cannot be copied.
                let _ = unsafe { result::stream::destroy(raw_stream(self.handle)) };
            });
        }
    }
}

/// A `CUevent` that this object owns.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct EventHandle {
    handle: u64,
    context: Context,
}

#[pymethods]
impl EventHandle {
    #[new]
    fn new(handle: u64, owner: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        Ok(Self { handle, context: Context::of(owner)? })
    }

    #[getter]
    const fn _handle(&self) -> u64 {
        self.handle
    }
}

impl Drop for EventHandle {
    fn drop(&mut self) {
        self.context.destroy(|| {
            let event: CUevent = std::ptr::with_exposed_provenance_mut(as_address(self.handle));
            // SAFETY: `vkgdr.stream` created the event for this object alone, which cannot be copied.
            let _ = unsafe { result::event::destroy(event) };
        });
    }
}

/// Raises an error in a child that was forked after the driver was loaded.
#[pyfunction]
pub(crate) fn check_process() -> Result<()> {
    if vkgdr::is_forked() { Err(vkgdr::Error::Forked.into()) } else { Ok(()) }
}
