//! `Base`, the native base class of memory objects, and `HostView`: the buffer protocol, the array interfaces and the fast
//! accessors.
#![expect(unsafe_code, reason = "the buffer protocol")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};
use pyo3::{PyTraverseError, PyVisit, ffi, intern};
use vkgdr::Memory;

use crate::error::{Failure, Result, Size, in_bytes};
use crate::memory_view::MemoryView;
use crate::stream::{LEGACY_STREAM, NULL_STREAM};

/// The native base class of every memory object.
///
/// The class has no fields, so that it can be combined with another extension class, such as pycuda's, by multiple
/// inheritance. The instance attribute `_view` holds the memory.
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
        view.get().with(|_| Ok(view.get().len))
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
        view_of(slf)?.get().with(|bytes| Ok(bytes.kind().to_string()))
    }

    /// The CUDA device number.
    #[getter]
    fn device(slf: Slf<'_, '_>) -> Result<i32> {
        view_of(slf)?.get().with(|bytes| Ok(bytes.device()))
    }

    /// Whether host and device see each other's writes without flush and invalidate.
    #[getter]
    fn is_coherent(slf: Slf<'_, '_>) -> Result<bool> {
        view_of(slf)?.get().with(|bytes| Ok(bytes.is_coherent()))
    }

    /// The granularity of flush and invalidate, in bytes; 1 for coherent memory.
    #[getter]
    fn non_coherent_atom_size(slf: Slf<'_, '_>) -> Result<usize> {
        view_of(slf)?.get().with(|bytes| Ok(bytes.memory().map_or(1, Memory::non_coherent_atom_size)))
    }

    /// Whether views of the memory are read-only.
    #[getter]
    fn readonly(slf: Slf<'_, '_>) -> Result<bool> {
        let view = view_of(slf)?;
        view.get().with(|_| Ok(view.get().readonly))
    }

    /// Makes the CPU's writes to `size` bytes at `offset` visible to the device; by default to the end of the memory.
    ///
    /// The range may start and end anywhere: it is rounded outwards to whole atoms. Bytes that the device wrote to the
    /// rest of these atoms may be lost, unless they were invalidated before the CPU wrote, as `map` and
    /// `copy_from_host` do. On coherent memory, flush only orders the CPU's stores, for a kernel that is running.
    #[pyo3(signature = (offset = Size(0), size = None), text_signature = "($self, offset=0, size=None)")]
    fn flush(slf: Slf<'_, '_>, offset: Size, size: Option<Size>) -> Result<()> {
        view_of(slf)?.get().synchronize(slf.py(), (offset.0, size.map(|size| size.0)), Memory::flush)
    }

    /// Makes the device's writes to `size` bytes at `offset` visible to the CPU; by default to the end of the memory.
    ///
    /// The device's work must have finished. The range is rounded outwards to whole atoms; CPU writes to these atoms
    /// that were not flushed may be lost.
    #[pyo3(signature = (offset = Size(0), size = None), text_signature = "($self, offset=0, size=None)")]
    fn invalidate(slf: Slf<'_, '_>, offset: Size, size: Option<Size>) -> Result<()> {
        view_of(slf)?.get().synchronize(slf.py(), (offset.0, size.map(|size| size.0)), Memory::invalidate)
    }

    /// Free the memory. A second call does nothing.
    ///
    /// Every method and attribute then raises `FreedError`. While arrays or other views exist (`pending_views`), the
    /// pages stay until the last view is dropped. Waits for the work of the memory's context; if the memory is bound to
    /// a stream, does not wait, and the pages are released after that stream's work.
    ///
    /// Parameters
    /// ----------
    /// force : bool, optional
    ///     Release the pages although views exist, as vkgdr 0.1 does: using a view then crashes.
    ///
    /// Raises
    /// ------
    /// VkgdrError
    ///     The first error of the drivers. The remaining steps are still done.
    #[pyo3(signature = (*, force = false), text_signature = "($self, *, force=False)")]
    fn free(slf: Slf<'_, '_>, force: bool) -> Result<()> {
        let (py, view) = (slf.py(), view_of(slf)?);
        view.get().free(force && !slf.getattr(intern!(py, "_given"))?.is_truthy()?)?;
        let parent = intern!(py, "_parent");
        if slf.getattr(parent)?.is_none() { Ok(()) } else { Ok(slf.setattr(parent, py.None())?) }
    }

    /// The host view, for libraries that would take the device view of the memory object itself.
    ///
    /// It has the buffer protocol, NumPy's array interface, and DLPack on the CPU: `torch.as_tensor(memory.host)`,
    /// `jax.numpy.asarray(memory.host)`. It counts as a view, and keeps the memory alive. Raises `NoHostViewError` for
    /// memory without a host view.
    #[getter]
    fn host(slf: Slf<'_, '_>) -> Result<HostView> {
        let view = view_of(slf)?.get().again(slf.py())?;
        view.visible()?;
        Ok(HostView { view: Py::new(slf.py(), view)? })
    }

    /// NumPy's array interface, version 3, of the host view.
    #[getter]
    fn __array_interface__<'py>(slf: Slf<'_, 'py>) -> Result<Bound<'py, PyDict>> {
        host_interface(slf.py(), view_of(slf)?.get())
    }

    /// The CUDA Array Interface, version 3, of the device view.
    #[getter]
    fn __cuda_array_interface__<'py>(slf: Slf<'_, 'py>) -> Result<Bound<'py, PyDict>> {
        let (py, view) = (slf.py(), view_of(slf)?);
        let view = view.get();
        // The interface forbids 0 as a stream.
        let stream = match view.bound_stream(py)? {
            Some(stream) if stream.eq(NULL_STREAM)? => Some(PyInt::new(py, LEGACY_STREAM).into_any()),
            other => other,
        };
        let address = view.device_address().map(|address| if view.len == 0 { 0 } else { address })?;
        let interface = array_interface(py, view.len, "|u1", address, view.readonly)?;
        interface.set_item("strides", py.None())?;
        interface.set_item("stream", stream)?;
        Ok(interface)
    }

    unsafe fn __getbuffer__(slf: Slf<'_, '_>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter passes a structure to fill in.
        unsafe { export(slf, view_of(slf), buffer, flags) }
    }

    unsafe fn __releasebuffer__(&self, buffer: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter calls this once for each buffer.
        unsafe { release(buffer) };
    }
}

/// The host view of memory: the buffer protocol, NumPy's array interface, and DLPack on the CPU.
#[pyclass(frozen, module = "vkgdr")]
pub(crate) struct HostView {
    view: Py<MemoryView>,
}

impl HostView {
    pub(crate) fn view(&self) -> &MemoryView {
        self.view.get()
    }
}

#[pymethods]
impl HostView {
    fn __len__(&self) -> Result<usize> {
        self.view().with(|_| Ok(self.view().len))
    }

    /// The number of bytes.
    #[getter]
    fn nbytes(&self) -> Result<usize> {
        self.__len__()
    }

    /// NumPy's array interface, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        host_interface(py, self.view())
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter passes a structure to fill in.
        unsafe { export(slf, Ok(slf.get().view.bind(slf.py()).clone()), buffer, flags) }
    }

    unsafe fn __releasebuffer__(&self, buffer: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter calls this once for each buffer.
        unsafe { release(buffer) };
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.view)
    }

    fn __repr__(&self) -> String {
        match self.view().visible() {
            Ok(address) => format!("<vkgdr.HostView: {} at {address:#x}>", in_bytes(self.view().len)),
            Err(_) => "<vkgdr.HostView: freed>".to_owned(),
        }
    }
}

fn host_interface<'py>(py: Python<'py>, view: &MemoryView) -> Result<Bound<'py, PyDict>> {
    array_interface(py, view.len, "|V1", view.visible()? as u64, view.readonly)
}

/// An array interface, NumPy's or CUDA's, version 3, of bytes.
fn array_interface<'py>(
    py: Python<'py>,
    len: usize,
    element: &str,
    address: u64,
    readonly: bool,
) -> Result<Bound<'py, PyDict>> {
    let interface = PyDict::new(py);
    interface.set_item("shape", (len,))?;
    interface.set_item("typestr", element)?;
    interface.set_item("data", (address, readonly))?;
    interface.set_item("version", 3)?;
    Ok(interface)
}

/// State that lives as long as an exported buffer.
struct Export {
    /// Keeps the memory alive, also after `free()`.
    _view: MemoryView,
    shape: isize,
    stride: isize,
}

const FORMAT: &CStr = c"B";

/// Fills in the buffer of a view for its exporter: one dimension of bytes.
///
/// # Safety
///
/// `buffer` is null or points to a structure that may be written to.
unsafe fn export<T>(
    exporter: &Bound<'_, T>,
    view: Result<Bound<'_, MemoryView>>,
    buffer: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if buffer.is_null() {
        return Err(PyBufferError::new_err("the Py_buffer to fill is null"));
    }
    // SAFETY: the caller passes a structure to fill in; on an error this field is null.
    unsafe { (*buffer).obj = null_mut() };
    let view = view?;
    let view = view.get();
    // Never null: some consumers treat a null pointer as an error, even for an empty buffer.
    let address = view.visible()?.max(align_of::<u64>());
    let has = |flag: c_int| flags & flag == flag;
    if has(ffi::PyBUF_WRITABLE) && view.readonly {
        return Err(PyBufferError::new_err("the memory is read-only"));
    }
    let shape = isize::try_from(view.len).unwrap_or(isize::MAX);
    let export = Box::into_raw(Box::new(Export { _view: view.share()?, shape, stride: 1 }));
    let filled = ffi::Py_buffer {
        buf: with_exposed_provenance_mut::<c_void>(address),
        obj: exporter.clone().into_ptr(),
        len: shape,
        itemsize: 1,
        readonly: c_int::from(view.readonly),
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
