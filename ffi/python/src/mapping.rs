//! `Mapping`: the host view of CUDA memory that another library allocated.
#![expect(unsafe_code, reason = "makes an alias of memory that others hold")]

use std::os::fd::IntoRawFd;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use vkgdr::{MappingFlags, Memory};

use crate::detached::Detached;
use crate::error::{Result, Size, in_bytes, number};
use crate::handle;

/// CUDA memory of another library, mapped for the CPU: NumPy's array interface, and both addresses.
#[pyclass(frozen, module = "vkgdr")]
pub(crate) struct Mapping {
    // The order of the fields unmaps the memory before its owner may free it.
    memory: Detached<Memory>,
    readonly: bool,
    /// An object that keeps the memory alive.
    keep: Option<Py<PyAny>>,
}

#[pymethods]
impl Mapping {
    #[new]
    #[pyo3(signature = (owner, device_ptr, size, *, keep = None, readonly = false, force_pcie = false))]
    fn new(
        owner: &Bound<'_, PyAny>,
        device_ptr: &Bound<'_, PyAny>,
        size: Size,
        keep: Option<Py<PyAny>>,
        readonly: bool,
        force_pcie: bool,
    ) -> Result<Self> {
        let (py, gpu) = (owner.py(), handle::gpu_of(owner)?);
        let address: u64 = number(device_ptr, "a device address")?;
        let flags = if force_pcie { MappingFlags::FORCE_PCIE } else { MappingFlags::empty() };
        // SAFETY: plain bytes to Python, whose memory `keep` or the caller keeps alive.
        let memory = py.detach(|| unsafe { Memory::map_existing_with(&gpu, address, size.0, flags) })?;
        Ok(Self { memory: Detached::new(memory), readonly, keep })
    }

    #[getter]
    fn device_ptr(&self) -> u64 {
        self.memory.device_ptr()
    }

    #[getter]
    fn host_ptr(&self) -> usize {
        self.memory.host_ptr().map_or(0, |pointer| pointer.addr().get())
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.len()
    }

    fn __len__(&self) -> usize {
        self.nbytes()
    }

    #[getter]
    fn is_cached(&self) -> bool {
        self.memory.is_cached()
    }

    #[getter]
    fn readonly(&self) -> bool {
        self.readonly
    }

    fn is_current(&self, py: Python<'_>) -> Result<bool> {
        Ok(py.detach(|| self.memory.is_current())?)
    }

    /// Orders the CPU's writes before its later stores, as the device sees them.
    fn flush(&self) -> Result<()> {
        Ok(self.memory.flush(..)?)
    }

    fn invalidate(&self) -> Result<()> {
        Ok(self.memory.invalidate(..)?)
    }

    /// The descriptor, the offset and the size for `ibv_reg_dmabuf_mr`.
    fn dma_buf(&self, py: Python<'_>) -> Result<(i32, u64, usize)> {
        let dma_buf = py.detach(|| self.memory.dma_buf())?;
        Ok((dma_buf.fd.into_raw_fd(), dma_buf.offset, dma_buf.len))
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", (self.nbytes(),))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.host_ptr(), self.readonly))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.keep.as_ref().map_or(Ok(()), |keep| visit.call(keep))
    }

    fn __repr__(&self) -> String {
        let (host, device) = (self.host_ptr(), self.device_ptr());
        format!("<vkgdr.Mapping: {} at {host:#x}, device address {device:#x}>", in_bytes(self.nbytes()))
    }
}
