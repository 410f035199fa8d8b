//! `HostView`: an object with the host's interfaces of memory only, for libraries that prefer the device's.
#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::error::Result;
use crate::memory_view::MemoryView;

/// The host view of memory: the buffer protocol, NumPy's array interface, and DLPack on the CPU.
#[pyclass(frozen, module = "vkgdr")]
pub(crate) struct HostView {
    view: Py<MemoryView>,
}

impl HostView {
    /// Wraps a view, which must have a host view.
    pub(crate) fn of(py: Python<'_>, view: MemoryView) -> Result<Self> {
        view.visible()?;
        Ok(Self { view: Py::new(py, view)? })
    }

    pub(crate) fn view(&self) -> &MemoryView {
        self.view.get()
    }
}

#[pymethods]
impl HostView {
    fn __len__(&self) -> Result<usize> {
        self.view().live()?;
        Ok(self.view().len())
    }

    /// The number of bytes.
    #[getter]
    fn nbytes(&self) -> Result<usize> {
        self.__len__()
    }

    /// NumPy's array interface, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        array_interface(py, self.view())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.view)
    }

    fn __repr__(&self) -> String {
        match self.view().visible() {
            Ok(address) => format!("<vkgdr.HostView: {} at {address:#x}>", crate::error::in_bytes(self.view().len())),
            Err(_) => "<vkgdr.HostView: freed>".to_owned(),
        }
    }
}

/// NumPy's array interface, version 3, of a host view.
pub(crate) fn array_interface<'py>(py: Python<'py>, view: &MemoryView) -> Result<Bound<'py, PyDict>> {
    let interface = PyDict::new(py);
    interface.set_item("shape", (view.len(),))?;
    interface.set_item("typestr", "|V1")?;
    interface.set_item("data", (view.visible()?, view.is_readonly()))?;
    interface.set_item("version", 3)?;
    Ok(interface)
}
