//! `Base`: what every memory object does at native speed, and the protocols that need a C type.
//!
//! The class is empty, so that it can be a base beside another extension class, as pycuda's. The instance's attribute
//! `_block` holds the memory.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::block::{Block, LEGACY_STREAM, NULL_STREAM};
use crate::error::{Failure, Result, Size};

/// The base of every memory object.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct Base;

/// The memory of a memory object.
pub(crate) fn block_of<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, Block>> {
    let py = object.py();
    match object.getattr(intern!(py, "_block")) {
        Ok(block) => Ok(block.cast_into::<Block>().map_err(PyErr::from)?),
        // Never an AttributeError: NumPy takes that for an object without the protocol, and makes an array of it.
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

    /// The first byte's address on the device.
    #[getter]
    fn device_ptr(slf: Slf<'_, '_>) -> Result<u64> {
        block_of(slf)?.get().device_address()
    }

    /// The first byte's address for the CPU; None for memory that the CPU cannot see.
    #[getter]
    fn host_ptr(slf: Slf<'_, '_>) -> Result<Option<usize>> {
        block_of(slf)?.get().host_address()
    }

    fn __len__(slf: Slf<'_, '_>) -> Result<usize> {
        let block = block_of(slf)?;
        block.get().live()?;
        Ok(block.get().len())
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
        Ok(block_of(slf)?.get().live()?.kind.to_string())
    }

    /// The CUDA device number.
    #[getter]
    fn device(slf: Slf<'_, '_>) -> Result<i32> {
        Ok(block_of(slf)?.get().live()?.device)
    }

    /// Whether host and device see each other's writes without flush and invalidate.
    #[getter]
    fn is_coherent(slf: Slf<'_, '_>) -> Result<bool> {
        Ok(block_of(slf)?.get().live()?.coherent)
    }

    /// What flushes are rounded to, in bytes: 1 where the memory is coherent.
    #[getter]
    fn non_coherent_atom_size(slf: Slf<'_, '_>) -> Result<usize> {
        Ok(block_of(slf)?.get().live()?.atom)
    }

    /// Whether arrays over the memory are read-only.
    #[getter]
    fn readonly(slf: Slf<'_, '_>) -> Result<bool> {
        let block = block_of(slf)?;
        block.get().live()?;
        Ok(block.get().is_readonly())
    }

    /// Makes the CPU's writes to `size` bytes at `offset` visible to the device; all from `offset` on by default.
    ///
    /// The range may start and end anywhere: it is rounded outwards to whole atoms. What the device wrote beside it in
    /// the same atoms may be lost, unless it was invalidated before the CPU wrote, as `map` and `copy_from_host` do.
    /// Where the memory is coherent this only orders the CPU's stores, which a kernel that is already running needs.
    #[pyo3(signature = (offset = Size(0), size = None), text_signature = "($self, offset=0, size=None)")]
    fn flush(slf: Slf<'_, '_>, offset: Size, size: Option<Size>) -> Result<()> {
        block_of(slf)?.get().flush_range(slf.py(), offset.0, size.map(|size| size.0))
    }

    /// Makes the device's writes to `size` bytes at `offset` visible to the CPU; all from `offset` on by default.
    ///
    /// The device's work must have finished. The range is rounded outwards to whole atoms, and CPU writes in those
    /// atoms that were not flushed may be lost.
    #[pyo3(signature = (offset = Size(0), size = None), text_signature = "($self, offset=0, size=None)")]
    fn invalidate(slf: Slf<'_, '_>, offset: Size, size: Option<Size>) -> Result<()> {
        block_of(slf)?.get().invalidate_range(slf.py(), offset.0, size.map(|size| size.0))
    }

    /// NumPy's array interface, version 3, over the host bytes.
    #[getter]
    fn __array_interface__<'py>(slf: Slf<'_, 'py>) -> Result<Bound<'py, PyDict>> {
        let block = block_of(slf)?;
        let (block, interface) = (block.get(), PyDict::new(slf.py()));
        interface.set_item("shape", (block.len(),))?;
        interface.set_item("typestr", "|V1")?;
        interface.set_item("data", (block.visible()?, block.is_readonly()))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    /// The CUDA Array Interface, version 3, over the device bytes.
    #[getter]
    fn __cuda_array_interface__<'py>(slf: Slf<'_, 'py>) -> Result<Bound<'py, PyDict>> {
        let block = block_of(slf)?;
        let (block, interface) = (block.get(), PyDict::new(slf.py()));
        // The interface forbids 0.
        let stream = block.bound_handle()?.map(|stream| if stream == NULL_STREAM { LEGACY_STREAM } else { stream });
        interface.set_item("shape", (block.len(),))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (block.shown_address()?, block.is_readonly()))?;
        interface.set_item("strides", slf.py().None())?;
        interface.set_item("version", 3)?;
        interface.set_item("stream", stream)?;
        Ok(interface)
    }
}
