//! `Base`: the native base class of memory objects, with the fast accessors and the protocols that need a C type.
//!
//! The class has no fields, so that it can be combined with another extension class, such as pycuda's, by multiple
//! inheritance. The instance attribute `_view` holds the memory.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};

use crate::error::{Failure, Result, Size};
use crate::host_view::{HostView, array_interface};
use crate::memory_view::MemoryView;
use crate::raw_stream::{LEGACY_STREAM, NULL_STREAM};

/// The native base class of every memory object.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct Base;

/// The view of a memory object.
pub(crate) fn view_of<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, MemoryView>> {
    let py = object.py();
    match object.getattr(intern!(py, "_view")) {
        Ok(view) => Ok(view.cast_into::<MemoryView>().map_err(PyErr::from)?),
        // Not an AttributeError: NumPy would take the protocol for absent and make an object array.
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => {
            Err(Failure::Gone("the memory was never allocated"))
        }
        Err(error) => Err(error.into()),
    }
}

type Slf<'a, 'py> = &'a Bound<'py, Base>;

#[pymethods]
impl Base {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self
    }

    /// The device address of the first byte.
    #[getter]
    fn device_ptr(slf: Slf<'_, '_>) -> Result<u64> {
        view_of(slf)?.get().device_address()
    }

    /// The host address of the first byte; None for memory without a host view.
    #[getter]
    fn host_ptr(slf: Slf<'_, '_>) -> Result<Option<usize>> {
        view_of(slf)?.get().host_address()
    }

    fn __len__(slf: Slf<'_, '_>) -> Result<usize> {
        let view = view_of(slf)?;
        view.get().live()?;
        Ok(view.get().len())
    }

    /// The number of bytes.
    #[getter]
    fn nbytes(slf: Slf<'_, '_>) -> Result<usize> {
        Self::__len__(slf)
    }

    /// The number of bytes.
    #[getter]
    fn size(slf: Slf<'_, '_>) -> Result<usize> {
        Self::__len__(slf)
    }

    /// The kind of memory: "mapped", "host" or "device".
    #[getter]
    fn kind(slf: Slf<'_, '_>) -> Result<String> {
        Ok(view_of(slf)?.get().live()?.kind.to_string())
    }

    /// The CUDA device number.
    #[getter]
    fn device(slf: Slf<'_, '_>) -> Result<i32> {
        Ok(view_of(slf)?.get().live()?.device)
    }

    /// Whether host and device see each other's writes without flush and invalidate.
    #[getter]
    fn is_coherent(slf: Slf<'_, '_>) -> Result<bool> {
        Ok(view_of(slf)?.get().live()?.coherent)
    }

    /// The granularity of flush and invalidate, in bytes; 1 for coherent memory.
    #[getter]
    fn non_coherent_atom_size(slf: Slf<'_, '_>) -> Result<usize> {
        Ok(view_of(slf)?.get().live()?.atom)
    }

    /// Whether views of the memory are read-only.
    #[getter]
    fn readonly(slf: Slf<'_, '_>) -> Result<bool> {
        let view = view_of(slf)?;
        view.get().live()?;
        Ok(view.get().is_readonly())
    }

    /// Makes the CPU's writes to `size` bytes at `offset` visible to the device; by default to the end of the memory.
    ///
    /// The range may start and end anywhere: it is rounded outwards to whole atoms. Bytes that the device wrote to the
    /// rest of these atoms may be lost, unless they were invalidated before the CPU wrote, as `map` and
    /// `copy_from_host` do. On coherent memory, flush only orders the CPU's stores, for a kernel that is running.
    #[pyo3(signature = (offset = Size(0), size = None), text_signature = "($self, offset=0, size=None)")]
    fn flush(slf: Slf<'_, '_>, offset: Size, size: Option<Size>) -> Result<()> {
        view_of(slf)?.get().flush_range(slf.py(), offset.0, size.map(|size| size.0))
    }

    /// Makes the device's writes to `size` bytes at `offset` visible to the CPU; by default to the end of the memory.
    ///
    /// The device's work must have finished. The range is rounded outwards to whole atoms; CPU writes to these atoms
    /// that were not flushed may be lost.
    #[pyo3(signature = (offset = Size(0), size = None), text_signature = "($self, offset=0, size=None)")]
    fn invalidate(slf: Slf<'_, '_>, offset: Size, size: Option<Size>) -> Result<()> {
        view_of(slf)?.get().invalidate_range(slf.py(), offset.0, size.map(|size| size.0))
    }

    /// The host view, for libraries that would take the device view of the memory object itself.
    ///
    /// It has the buffer protocol, NumPy's array interface, and DLPack on the CPU: `torch.as_tensor(memory.host)`,
    /// `jax.numpy.asarray(memory.host)`. It counts as a view, and keeps the memory alive. Raises `NoHostViewError` for
    /// memory without a host view.
    #[getter]
    fn host(slf: Slf<'_, '_>) -> Result<HostView> {
        HostView::of(slf.py(), view_of(slf)?.get().again(slf.py())?)
    }

    /// NumPy's array interface, version 3, of the host view.
    #[getter]
    fn __array_interface__<'py>(slf: Slf<'_, 'py>) -> Result<Bound<'py, PyDict>> {
        array_interface(slf.py(), view_of(slf)?.get())
    }

    /// The CUDA Array Interface, version 3, of the device view.
    #[getter]
    fn __cuda_array_interface__<'py>(slf: Slf<'_, 'py>) -> Result<Bound<'py, PyDict>> {
        let view = view_of(slf)?;
        let (view, interface) = (view.get(), PyDict::new(slf.py()));
        // The interface forbids 0 as a stream.
        let stream = match view.bound_handle(slf.py())? {
            Some(stream) if stream.eq(NULL_STREAM)? => Some(PyInt::new(slf.py(), LEGACY_STREAM).into_any()),
            other => other,
        };
        interface.set_item("shape", (view.len(),))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (view.shown_address()?, view.is_readonly()))?;
        interface.set_item("strides", slf.py().None())?;
        interface.set_item("version", 3)?;
        interface.set_item("stream", stream)?;
        Ok(interface)
    }
}
