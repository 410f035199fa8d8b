//! `__dlpack__`: exports memory as DLPack tensors.
#![expect(unsafe_code, reason = "fills and frees C structures")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use vkgdr::{CopyPtr, Extent, PitchedPtr};

use super::abi::{
    CPU, CUDA, DataType, Device, IS_COPIED, LEGACY, Managed, ManagedVersioned, READ_ONLY, Tensor, UINT, VERSION,
    VERSIONED,
};
use super::order::{consumers, order};
use crate::allocation::{Allocation, Use};
use crate::base::{Base, view_of};
use crate::error::{Failure, Result};
use crate::event::leak;
use crate::fallible_vec::zeroes;
use crate::host_view::HostView;
use crate::kept::bound_handle;
use crate::memory_view::MemoryView;
use crate::raw_stream::{NULL_STREAM, Stream, as_address};
use crate::storage::Storage;
use crate::transfer::is_idle;

/// The owner of a tensor's bytes. Holds no Python object, since any thread may delete the tensor.
enum Owner {
    Memory {
        _used: Use,
    },
    /// A copy on the host.
    Bytes {
        _bytes: Box<[u64]>,
    },
}

/// A tensor and the data that it points to.
#[repr(C)]
struct Exported<T> {
    managed: T,
    /// The shape, and then the strides.
    _dims: Vec<i64>,
    _owner: Owner,
}

/// The data type of a tensor's elements, its shape and its strides in elements, and the offset of its first element.
struct Layout {
    dtype: DataType,
    /// The shape, and then the strides.
    dims: Vec<i64>,
    first: usize,
}

impl Layout {
    /// One dimension of bytes.
    fn bytes(len: usize) -> Self {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        Self { dtype: DataType { code: UINT, bits: 8, lanes: 1 }, dims: vec![len, 1], first: 0 }
    }
}

/// The bytes of a tensor to be made.
struct Contents {
    address: usize,
    len: usize,
    device: Device,
    flags: u64,
    owner: Owner,
}

#[pymethods]
impl Base {
    /// The device of `__dlpack__`: `(kDLCUDA, device number)`.
    fn __dlpack_device__(slf: &Bound<'_, Self>) -> Result<(c_int, i32)> {
        Ok((CUDA, view_of(slf)?.get().live()?.device))
    }

    /// The bytes as a DLPack capsule.
    ///
    /// The device view by default; `dl_device=(1, 0)` gives the host view, or a host copy of memory that has none.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(c_int, c_int)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let view = view_of(slf)?;
        let layout = Layout::bytes(view.get().len());
        export(slf.py(), view.get(), layout, stream, max_version, dl_device, copy)
    }
}

/// A view as the capsule of a strided tensor. `dtype` is DLPack's code and the bits of an element, `strides` are in elements,
/// `first` is the offset of the first element in bytes; the tensor must lie within the view.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "a tensor's layout, and the arguments of `__dlpack__`")]
pub(crate) fn dlpack_export<'py>(
    py: Python<'py>,
    view: &MemoryView,
    dtype: (u8, u8),
    shape: Vec<i64>,
    strides: Vec<i64>,
    first: usize,
    stream: Option<i64>,
    max_version: Option<(u32, u32)>,
    dl_device: Option<(c_int, c_int)>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    if shape.len() != strides.len() || first > view.len() {
        return Err(Failure::Invalid(format!("no tensor has the shape {shape:?} and the strides {strides:?}")));
    }
    let (code, bits) = dtype;
    let layout = Layout { dtype: DataType { code, bits, lanes: 1 }, dims: [shape, strides].concat(), first };
    export(py, view, layout, stream, max_version, dl_device, copy)
}

fn export<'py>(
    py: Python<'py>,
    view: &MemoryView,
    layout: Layout,
    stream: Option<i64>,
    max_version: Option<(u32, u32)>,
    dl_device: Option<(c_int, c_int)>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>> {
    let here = view.live()?.device;
    let contents = match dl_device.unwrap_or((CUDA, here)) {
        (CUDA, id) if id == here => on_device(py, view, stream, copy == Some(true))?,
        (CPU, 0) => on_host(py, view, stream, copy)?,
        (kind, id) => {
            let text =
                format!("the memory is on DLPack device (2, {here}) or, for the CPU, (1, 0), not ({kind}, {id})");
            return Err(Failure::Buffer(text));
        }
    };
    capsule(py, contents, layout, max_version.is_some_and(|(major, _)| major >= 1))
}

#[pymethods]
impl HostView {
    /// The device of `__dlpack__`: `(kDLCPU, 0)`.
    #[staticmethod]
    fn __dlpack_device__() -> (c_int, i32) {
        (CPU, 0)
    }

    /// The bytes as a DLPack capsule, after the bound stream's work.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(c_int, c_int)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        if let Some((kind, id)) = dl_device.filter(|&device| device != (CPU, 0)) {
            let text = format!("a host view is on DLPack device (1, 0), the CPU, not on ({kind}, {id})");
            return Err(Failure::Buffer(text));
        }
        let contents = on_host(py, self.view(), stream, copy)?;
        let layout = Layout::bytes(contents.len);
        capsule(py, contents, layout, max_version.is_some_and(|(major, _)| major >= 1))
    }
}

/// The device view, ordered before later work on the consumer's stream.
fn on_device(py: Python<'_>, view: &MemoryView, stream: Option<i64>, copy: bool) -> Result<Contents> {
    let consumer = match stream {
        Some(-1) => None,
        None => Some(1),
        Some(0) => return Err(PyValueError::new_err("stream 0 is ambiguous: use 1, 2 or a stream handle").into()),
        Some(other) => {
            Some(u64::try_from(other).map_err(|_| PyValueError::new_err(format!("{other} is not a CUDA stream")))?)
        }
    };
    let device = Device { kind: CUDA, id: view.live()?.device };
    let readonly = if view.is_readonly() { READ_ONLY } else { 0 };
    if copy && view.len() > 0 {
        return copy_on_device(py, view, consumer.unwrap_or(1), device);
    }
    if let Some(consumer) = consumer {
        view.with_streams(py, |storage| order(view, storage, consumer))?;
    }
    let owner = Owner::Memory { _used: view.join()? };
    // A device address: provenance does not matter.
    let address = as_address(view.device_address()?);
    // Nothing shares the bytes of an empty copy.
    let flags = if copy { IS_COPIED } else { readonly };
    Ok(Contents { address, len: view.len(), device, flags, owner })
}

/// A copy in the memory's context, whichever is current. The context of other libraries' memory is unknown.
fn copy_on_device(py: Python<'_>, view: &MemoryView, stream: u64, device: Device) -> Result<Contents> {
    let (from, len) = (view.device_address()?, view.len());
    let used = view.with_streams(py, |storage| {
        let original = storage.memory().ok_or_else(|| {
            let text = "the memory was allocated by another library: only that can copy it for copy=True";
            Failure::Buffer(text.into())
        })?;
        original.wait_for_stream()?;
        let queue = view.stream(stream)?;
        let memory = original.allocate_beside(len)?;
        let to = PitchedPtr::linear(CopyPtr::Device(memory.device_ptr()));
        let from = PitchedPtr::linear(CopyPtr::Device(from));
        // SAFETY: both ranges have `len` bytes, and both allocations live until the copy is done.
        let queued = unsafe { queue.copy(to, from, Extent::linear(len)) };
        let copied = queued.and_then(|()| queue.synchronize());
        if copied.is_err() {
            // The copy may be under way, and the source's release must wait for it.
            let _ = storage.note_use(queue, &Stream::of(stream));
        }
        copied?;
        let copy = Allocation::of(memory, false);
        let storage = copy.allocation().storage()?;
        consumers(view, stream)?
            .into_iter()
            .try_for_each(|consumer| storage.note_use(consumer, &Stream::of(stream)))?;
        Ok(copy)
    })?;
    let address = as_address(used.allocation().device_ptr()?);
    Ok(Contents { address, len, device, flags: IS_COPIED, owner: Owner::Memory { _used: used } })
}

/// The host view or a host copy, after the bound stream's work.
fn on_host(py: Python<'_>, view: &MemoryView, stream: Option<i64>, copy: Option<bool>) -> Result<Contents> {
    if let Some(stream) = stream {
        return Err(PyValueError::new_err(format!("the CPU has no streams: stream must be None, not {stream}")).into());
    }
    let device = Device { kind: CPU, id: 0 };
    let (len, used) = (view.len(), view.join()?);
    let visible = view.host_address()?;
    let copy = match (visible, copy) {
        (None, Some(false)) => {
            let kind = view.live()?.kind;
            return Err(Failure::Buffer(format!(
                "{kind} memory has no host view: copy=False is impossible on the CPU"
            )));
        }
        (None, _) => true,
        (Some(_), copy) => copy == Some(true),
    };
    view.wait_for_bound(py)?;
    if let Some(address) = visible
        && !copy
    {
        view.invalidate_range(py, 0, None)?;
        let flags = if view.is_readonly() { READ_ONLY } else { 0 };
        return Ok(Contents { address, len, device, flags, owner: Owner::Memory { _used: used } });
    }
    let mut bytes = zeroes::<u64>(len.div_ceil(8))?.into_boxed_slice();
    // The bytes stay where they are.
    let address = bytes.as_mut_ptr().expose_provenance();
    let bytes = view.with_streams(py, |storage| copy_to_host(view, storage, bytes, len))?;
    Ok(Contents { address, len, device, flags: IS_COPIED, owner: Owner::Bytes { _bytes: bytes } })
}

/// Copies a whole view with CUDA to the first of `bytes`, which it returns, and waits.
fn copy_to_host(view: &MemoryView, storage: &Storage, mut bytes: Box<[u64]>, len: usize) -> Result<Box<[u64]>> {
    if len == 0 {
        // Empty memory has no context to copy in.
        return Ok(bytes);
    }
    let handle = storage.memory().and_then(bound_handle).unwrap_or(NULL_STREAM);
    let queue = view.stream(handle)?;
    let to = PitchedPtr::linear(CopyPtr::Host(bytes.as_mut_ptr().cast()));
    let from = PitchedPtr::linear(CopyPtr::Device(view.device_address()?));
    // SAFETY: there are `len` bytes at both addresses; the memory is held, and the bytes are kept until the copy is done.
    let queued = unsafe { queue.copy(to, from, Extent::linear(len)) };
    if let Err(error) = queued.and_then(|()| queue.synchronize()) {
        // The copy may be under way.
        let _ = storage.note_use(queue, &Stream::of(handle));
        if !is_idle(queue) {
            leak(bytes);
        }
        return Err(error.into());
    }
    Ok(bytes)
}

/// Makes a capsule, versioned or legacy.
fn capsule(py: Python<'_>, contents: Contents, layout: Layout, versioned: bool) -> Result<Bound<'_, PyAny>> {
    let flags = contents.flags;
    if versioned {
        let make = |tensor, context| ManagedVersioned {
            version: VERSION,
            context,
            deleter: Some(delete::<ManagedVersioned>),
            flags,
            tensor,
        };
        return wrap(py, contents, layout, make, VERSIONED);
    }
    if flags & READ_ONLY != 0 {
        let text = "the memory is read-only, which needs DLPack 1.0: pass max_version=(1, 0)";
        return Err(Failure::Buffer(text.into()));
    }
    let make = |tensor, context| Managed { tensor, context, deleter: Some(delete::<Managed>) };
    wrap(py, contents, layout, make, LEGACY)
}

/// Puts a tensor and the data that it points to on the heap, and wraps it in a capsule.
fn wrap<'py, T>(
    py: Python<'py>,
    contents: Contents,
    layout: Layout,
    make: impl FnOnce(Tensor, *mut c_void) -> T,
    name: &'static CStr,
) -> Result<Bound<'py, PyAny>> {
    let Contents { address, len, device, owner, .. } = contents;
    let Layout { dtype, mut dims, first } = layout;
    let ndim = dims.len() / 2;
    let shape = dims.as_mut_ptr();
    let tensor = Tensor {
        // DLPack requires a null pointer for an empty tensor.
        data: if len == 0 { null_mut() } else { with_exposed_provenance_mut(address + first) },
        device,
        ndim: c_int::try_from(ndim).unwrap_or(c_int::MAX),
        dtype,
        shape,
        strides: shape.wrapping_add(ndim),
        byte_offset: 0,
    };
    let exported = Box::new(Exported { managed: make(tensor, null_mut()), _dims: dims, _owner: owner });
    let exported = Box::into_raw(exported);
    // SAFETY: `exported` was just allocated; its first field is the structure named by the capsule.
    let managed = unsafe { &raw mut (*exported).managed };
    // SAFETY: the name is static, and the destructor frees what this function allocated.
    let capsule = unsafe { ffi::PyCapsule_New(managed.cast(), name.as_ptr(), Some(destroy)) };
    if capsule.is_null() {
        // SAFETY: allocated above, and not shared yet.
        drop(unsafe { Box::from_raw(exported) });
    }
    // SAFETY: a new reference, or null with an exception set.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?)
}

/// The deleter of a tensor; callable from any thread, attached to the interpreter or not.
unsafe extern "C" fn delete<T>(managed: *mut T) {
    if !managed.is_null() {
        // SAFETY: `managed` is the first field of an `Exported`, which `wrap` allocated; it is deleted once.
        drop(unsafe { Box::from_raw(managed.cast::<Exported<T>>()) });
    }
}

/// Whether a deleter is this package's.
pub(super) fn is_delete_legacy(deleter: unsafe extern "C" fn(*mut Managed)) -> bool {
    std::ptr::fn_addr_eq(deleter, delete::<Managed> as unsafe extern "C" fn(*mut Managed))
}

/// The same as [`is_delete_legacy`], for versioned tensors.
pub(super) fn is_delete_versioned(deleter: unsafe extern "C" fn(*mut ManagedVersioned)) -> bool {
    std::ptr::fn_addr_eq(deleter, delete::<ManagedVersioned> as unsafe extern "C" fn(*mut ManagedVersioned))
}

/// The destructor of a capsule: deletes the tensor unless a consumer took it, and thereby renamed the capsule.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    for (name, versioned) in [(LEGACY, false), (VERSIONED, true)] {
        // SAFETY: the interpreter passes the capsule that is being destroyed.
        if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: valid under this name.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
        if versioned {
            // SAFETY: the tensor, which `wrap` allocated, was not taken by a consumer.
            unsafe { delete(managed.cast::<ManagedVersioned>()) };
        } else {
            // SAFETY: as above.
            unsafe { delete(managed.cast::<Managed>()) };
        }
    }
}
