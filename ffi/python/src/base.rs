//! `Base`, the native base class of memory objects: the buffer protocol, the array interfaces and the fast accessors. And
//! `HostBuffer`: the contiguous bytes of any Python object with the buffer protocol.
#![expect(unsafe_code, reason = "the buffer protocol")]

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::slice;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyInt, PyMemoryView};
use pyo3::{ffi, intern};
use vkgdr::{Memory, MemoryTypeInfo};

use crate::allocation::Allocation;
use crate::device::{Vkgdr, of_vulkan};
use crate::error::{Failure, Result, Size, class};
use crate::memory_view::{MemoryView, parts_of};
use crate::stream::{LEGACY_STREAM, NULL_STREAM};

/// The native base class of memory objects, whose attribute `_view` holds the bytes. It has no fields, so that a class can inherit
/// from another extension class, too.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct Base;

/// The view of a memory object.
pub(crate) fn view_of<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, MemoryView>> {
    Ok(object.getattr(intern!(object.py(), "_view"))?.cast_into::<MemoryView>().map_err(PyErr::from)?)
}

fn parts_of_object<T>(slf: &Bound<'_, PyAny>, read: impl FnOnce(&MemoryView, &Allocation) -> Result<T>) -> Result<T> {
    parts_of(&view_of(slf)?, read)
}

fn memory_type(allocation: &Allocation) -> Result<Option<MemoryTypeInfo>> {
    allocation.with(|memory| Ok(memory.map(Memory::memory_type)))
}

/// An array interface, NumPy's or CUDA's, of bytes.
fn interface<'py>(py: Python<'py>, view: &MemoryView, typestr: &str, address: u64) -> PyResult<Bound<'py, PyDict>> {
    let interface = [("typestr", typestr)].into_py_dict(py)?;
    interface.set_item("shape", (view.len,))?;
    interface.set_item("data", (address, view.readonly))?;
    interface.set_item("version", 3)?;
    Ok(interface)
}

#[pymethods]
impl Base {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self
    }

    fn __len__(slf: &Bound<'_, Self>) -> Result<usize> {
        parts_of_object(slf, |view, _| Ok(view.len))
    }

    /// NumPy's array interface, version 3, of the host view.
    #[getter]
    fn __array_interface__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyDict>> {
        let view = view_of(slf)?;
        Ok(interface(slf.py(), view.get(), "|V1", view.get().visible()? as u64)?)
    }

    // One dimension of bytes, which the buffer keeps, also after `free()`.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, buffer: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter passes a structure to fill in; on an error this field is null.
        unsafe { (*buffer).obj = null_mut() };
        let view = view_of(slf)?;
        let view = view.get();
        // Never null: some consumers treat a null pointer as an error, even for an empty buffer.
        let start = with_exposed_provenance_mut(view.visible()?.max(align_of::<u64>()));
        let (len, readonly) = (isize::try_from(view.len).unwrap_or(isize::MAX), c_int::from(view.readonly));
        let kept = Box::new(view.share()?);
        // SAFETY: a live exporter, and a structure to fill in.
        if unsafe { ffi::PyBuffer_FillInfo(buffer, slf.as_ptr(), start, len, readonly, flags) } != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        // SAFETY: filled in above; the field is the exporter's own.
        unsafe { (*buffer).internal = Box::into_raw(kept).cast() };
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, buffer: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter passes a structure that was filled in above, once.
        let kept = unsafe { (*buffer).internal }.cast::<MemoryView>();
        // Null where a subclass has a `__buffer__` of its own, from Python 3.12 on.
        if !kept.is_null() {
            // SAFETY: allocated above, and dropped once.
            drop(unsafe { Box::from_raw(kept) });
        }
    }
}

attributes! { Base by parts_of_object:
    /// The number of bytes.
    nbytes: usize = |view, _allocation| view.len;
    /// The device address of the first byte.
    device_ptr: u64 = |view, allocation| allocation.device_ptr()? + view.offset as u64;
    /// The host address of the first byte; None for memory without a host view.
    host_ptr: Option<usize> = |view, allocation| allocation.host_ptr()?.map(|start| start + view.offset);
    /// The number of bytes.
    size: usize = |view, _allocation| view.len;
    /// The kind of memory: "mapped", "host" or "device".
    kind: String = |_view, allocation| allocation.kind.to_string();
    /// The CUDA device number.
    device: i32 = |_view, allocation| allocation.device;
    /// Whether host and device see each other's writes without flush and invalidate.
    is_coherent: bool = |_view, allocation| allocation.is_coherent()?;
    /// The granularity of flush and invalidate, in bytes; 1 for coherent memory.
    non_coherent_atom_size: usize =
        |_view, allocation| allocation.with(|memory| Ok(memory.map_or(1, Memory::non_coherent_atom_size)))?;
    /// Whether views of the memory are read-only.
    readonly: bool = |view, _allocation| view.readonly;
    /// The CUDA context as a number; None for memory of another library.
    context: Option<usize> = |_view, allocation| allocation.context()?;
    /// The offset of the first byte in its allocation, in bytes.
    offset: usize = |view, _allocation| view.offset;
    /// The allocation's id, unique in the process and never reused; see `from_handle`, for memory of this package.
    handle: u64 = |view, _allocation| view.key().0;
    /// Identity of the bytes, to share them without a copy: `handle`, `offset` and `nbytes`.
    __vkgdr_memory__: (u64, usize, usize) = |view, _allocation| view.key();
    /// The index of the Vulkan memory type; None for memory that does not come from Vulkan.
    memory_type_index: Option<u32> = |_view, allocation| memory_type(allocation)?.and_then(|it| of_vulkan(it.index));
    /// The index of the Vulkan memory heap; None for memory that does not come from Vulkan.
    heap_index: Option<u32> = |_view, allocation| memory_type(allocation)?.and_then(|it| of_vulkan(it.heap));
    /// The Vulkan memory type's property flags, such as ``DEVICE_LOCAL``; none for another library's memory.
    property_flags: Vec<String> = |_view, allocation| memory_type(allocation)?.iter().flat_map(MemoryTypeInfo::property_names).collect();
}

#[pymethods]
impl Base {
    /// Makes the CPU's writes to `size` bytes at `offset` visible to the device; by default to the end of the memory.
    ///
    /// The range may start and end anywhere: it is rounded outwards to whole atoms. Bytes that the device wrote to the
    /// rest of these atoms may be lost, unless invalidated before the CPU wrote, as `map` and `copy_from_host` do. On
    /// coherent memory, flush only orders the CPU's stores, for a kernel that is running.
    #[pyo3(signature = (offset = Size(0), size = None), text_signature = "($self, offset=0, size=None)")]
    fn flush(slf: &Bound<'_, Self>, offset: Size, size: Option<Size>) -> Result<()> {
        view_of(slf)?.get().synchronize(slf.py(), (offset.0, size.map(|size| size.0)), Memory::flush)
    }

    /// Makes the device's writes to `size` bytes at `offset` visible to the CPU; by default to the end of the memory.
    ///
    /// The device's work must have finished. The range is rounded outwards to whole atoms; CPU writes to these atoms
    /// that were not flushed may be lost.
    #[pyo3(signature = (offset = Size(0), size = None), text_signature = "($self, offset=0, size=None)")]
    fn invalidate(slf: &Bound<'_, Self>, offset: Size, size: Option<Size>) -> Result<()> {
        view_of(slf)?.get().synchronize(slf.py(), (offset.0, size.map(|size| size.0)), Memory::invalidate)
    }

    /// Free the memory. A second call does nothing.
    ///
    /// What needs the bytes then raises `FreedError`. While arrays or other views exist (`pending_views`), the
    /// pages stay until the last view is dropped. Waits for the work of the memory's context. If the memory is bound to
    /// a stream, does not wait, and the pages are released after that stream's work.
    ///
    /// With `force` the pages of the whole allocation are released although views exist, as by vkgdr 0.1. Using a view then
    /// crashes, or shows what a pool lends next. Memory of another library is not freed: its other views stay. The drivers' first
    /// error is raised as a `VkgdrError` at the end.
    #[pyo3(signature = (*, force = false), text_signature = "($self, *, force=False)")]
    fn free(slf: &Bound<'_, Self>, force: bool) -> Result<()> {
        let (py, view) = (slf.py(), view_of(slf)?);
        view.get().free(force && !slf.getattr(intern!(py, "_given"))?.is_truthy()?)?;
        let parent = intern!(py, "_parent");
        if slf.getattr(parent)?.is_none() { Ok(()) } else { Ok(slf.setattr(parent, py.None())?) }
    }

    /// The GPU's handle; None for freed memory and for memory of another library.
    ///
    /// Where that of the allocation is unknown or was closed, it is a new one that is equal; of empty memory the closed one.
    #[getter]
    fn owner(slf: &Bound<'_, Self>) -> Result<Option<Py<Vkgdr>>> {
        let (py, Ok(allocation)) = (slf.py(), view_of(slf)?.get().live()) else { return Ok(None) };
        let gpu = allocation.with(|memory| Ok(memory.map(|memory| memory.owner().clone()))).ok().flatten();
        let known = allocation.owner.as_ref().filter(|owner| gpu.is_none() || owner.get().gpu().is_ok());
        let new = |gpu| Py::new(py, Vkgdr::of(gpu));
        Ok(known.map(|owner| Ok(owner.clone_ref(py))).or_else(|| gpu.map(new)).transpose()?)
    }

    /// Whether the memory was freed.
    #[getter]
    fn freed(slf: &Bound<'_, Self>) -> Result<bool> {
        Ok(view_of(slf)?.get().live().is_err())
    }

    /// The number of other views of the allocation: arrays, tensors, regions.
    #[getter]
    fn pending_views(slf: &Bound<'_, Self>) -> Result<usize> {
        Ok(view_of(slf)?.get().others())
    }

    /// Wait for the bound stream and remove the binding.
    fn unbind_stream(slf: &Bound<'_, Self>) -> Result<()> {
        view_of(slf)?.get().live()?.run_ours(slf.py(), |memory| Ok(memory.unbind_stream()?))
    }

    /// The CUDA Array Interface, version 3, of the device view.
    #[getter]
    fn __cuda_array_interface__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyDict>> {
        let (py, view) = (slf.py(), view_of(slf)?);
        let view = view.get();
        // The interface forbids 0 as a stream.
        let stream = match view.bound_stream(py)? {
            Some(stream) if stream.eq(NULL_STREAM)? => Some(PyInt::new(py, LEGACY_STREAM).into_any()),
            other => other,
        };
        let address = view.device_address().map(|address| if view.len == 0 { 0 } else { address })?;
        let interface = interface(py, view, "|u1", address)?;
        interface.set_item("strides", py.None())?;
        interface.set_item("stream", stream)?;
        Ok(interface)
    }
}

/// Contiguous bytes of a Python object, which do not move while this lives.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct HostBuffer {
    /// Acquired, and released on drop. PyO3's own buffers ask for a format, which NumPy does not have for dates.
    buffer: Box<ffi::Py_buffer>,
    #[pyo3(get)]
    address: usize,
    #[pyo3(get)]
    pub(crate) nbytes: usize,
    /// Whether the object's own view is read-only; never if the bytes were asked for to be written.
    #[pyo3(get)]
    pub(crate) readonly: bool,
}

// SAFETY: the exporter keeps the bytes in place until the buffer is released, on whichever thread.
unsafe impl Send for HostBuffer {}
// SAFETY: as above; the structure itself is never modified.
unsafe impl Sync for HostBuffer {}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // Once the interpreter has ended the exporter no longer exists.
        let _ = Python::try_attach(|_| {
            // SAFETY: filled in by `PyObject_GetBuffer`, released once, and this thread is attached.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.buffer) };
        });
    }
}

impl HostBuffer {
    pub(crate) fn address(&self) -> *mut u8 {
        if self.nbytes == 0 { NonNull::dangling().as_ptr() } else { self.buffer.buf.cast() }
    }

    /// The bytes. If another thread writes to them during a copy, the copy has a mix of old and new bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the exporter keeps `len` contiguous bytes there until the buffer is released.
        unsafe { slice::from_raw_parts(self.address(), self.nbytes) }
    }
}

#[pymethods]
impl HostBuffer {
    /// Acquires the buffer. With `any_order`, Fortran-contiguous arrays are accepted too.
    #[new]
    #[pyo3(signature = (object, writable, any_order = false))]
    pub(crate) fn new(object: &Bound<'_, PyAny>, writable: bool, any_order: bool) -> Result<Self> {
        let py = object.py();
        let in_memoryview =
            object.cast::<PyMemoryView>().ok().map(|view| view.getattr(intern!(py, "obj"))).transpose()?;
        let dtype = in_memoryview.as_ref().unwrap_or(object).getattr_opt(intern!(py, "dtype"))?;
        let has_objects = dtype.map(|dtype| dtype.getattr_opt(intern!(py, "hasobject"))).transpose()?.flatten();
        if has_objects.map_or(Ok(false), |has| has.is_truthy())? {
            return Err(Failure::Invalid("the bytes must not be references to Python objects".into()));
        }
        let order = if any_order { ffi::PyBUF_ANY_CONTIGUOUS } else { ffi::PyBUF_C_CONTIGUOUS };
        let flags = order | if writable { ffi::PyBUF_WRITABLE } else { 0 };
        let mut buffer = Box::new(ffi::Py_buffer::new());
        // SAFETY: `buffer` is a live local and `object` a live object.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *buffer, flags) } == 0 {
            // The protocol has no negative lengths.
            let (address, nbytes, readonly) = (buffer.buf.addr(), buffer.len.unsigned_abs(), buffer.readonly != 0);
            return Ok(Self { buffer, address, nbytes, readonly });
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
