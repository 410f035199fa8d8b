//! DLPack: exports memory as tensors of bytes or of arrays, and imports tensors of other libraries.
//!
//! The constants and structures are those of dlpack.h, version 1.1 (github.com/dmlc/dlpack). The crate dlpark has them, too: 11,000
//! lines, whose interface changed four times in 2026 (0.7 to 0.10). Its exporter refuses `copy=True` and another `dl_device`, and its
//! test of the layout counts the strides of axes of extent 1.
#![expect(unsafe_code, reason = "fills, reads and frees C structures")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyByteArray, PyCapsule};
use vkgdr::{Memory, in_bytes};

use crate::allocation::Allocation;
use crate::base::HostBuffer;
use crate::error::{Failure, Result};
use crate::interpreter::attached_anew;
use crate::memory_view::{MemoryView, find};
use crate::stream::{LEGACY_STREAM, Stream, as_address, bound_handle};
use crate::transfer::{Side, copy_all};

/// `kDLCPU`
const CPU: c_int = 1;
/// `kDLCUDA`
const CUDA: c_int = 2;
/// `DLPACK_FLAG_BITMASK_READ_ONLY`
const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`
const IS_COPIED: u64 = 2;
/// `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`: elements of less than a byte lie in a byte each
const IS_PADDED: u64 = 4;

/// `DLDataType`
#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    /// `DLDevice`: the kind and the number.
    device: [c_int; 2],
    ndim: c_int,
    dtype: DataType,
    shape: *mut i64,
    /// In elements; null means C order.
    strides: *mut i64,
    /// In bytes.
    byte_offset: u64,
}

/// The `deleter` of both structures below, which each takes a pointer to itself.
type Deleter = unsafe extern "C" fn(*mut c_void);

/// `DLManagedTensor`
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<Deleter>,
}

/// The version of exported tensors, a `DLPackVersion`: the major and the minor one.
const VERSION: [u32; 2] = [1, 1];

/// `DLManagedTensorVersioned`
#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<Deleter>,
    flags: u64,
    tensor: Tensor,
}

/// The names of capsules before and after a consumer takes the tensor.
const LEGACY: &CStr = c"dltensor";
const LEGACY_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// The error for a view that cannot be exported or imported.
fn refused(text: impl Into<String>) -> Failure {
    PyBufferError::new_err(text.into()).into()
}

// ---- Export ---------------------------------------------------------------------------------------------------------

/// A tensor in either structure, and what it points to.
#[repr(C)]
struct Exported<T> {
    managed: T,
    /// The shape, the strides, and what keeps the bytes. Any thread may drop it, attached to the interpreter or not.
    _kept: (Vec<i64>, Vec<i64>, Box<dyn Send>),
}

/// DLPack's code and the bits of a tensor's elements, its shape, its strides in elements, the offset of its first one in bytes.
pub(crate) type Layout = ((u8, u8), Vec<i64>, Vec<i64>, usize);

/// A view as the capsule of a strided tensor, which must lie within the view.
#[pyfunction]
pub(crate) fn dlpack_export<'py>(
    view: &Bound<'py, MemoryView>,
    layout: Layout,
    stream: Option<i64>,
    max_version: Option<(u32, u32)>,
    dl_device: Option<(c_int, c_int)>,
    copy: Option<bool>,
) -> Result<Bound<'py, PyCapsule>> {
    let (py, here) = (view.py(), view.get().live()?.device);
    let (kind, id) = dl_device.unwrap_or((CUDA, here));
    let (address, is_copy, owner) = match (kind, id) {
        (CUDA, id) if id == here => on_device(view, stream, copy == Some(true))?,
        (CPU, 0) => on_host(view, copy)?,
        _ => {
            let known = format!("the memory is on DLPack device (2, {here}) or, for the CPU, (1, 0)");
            return Err(refused(format!("{known}, not ({kind}, {id})")));
        }
    };
    let flags = match is_copy {
        true => IS_COPIED,
        false if view.get().readonly => READ_ONLY,
        false => 0,
    };
    let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
    if flags & READ_ONLY != 0 && !is_versioned {
        return Err(refused("the memory is read-only, which needs DLPack 1.0: pass max_version=(1, 0)"));
    }
    let ((code, bits), mut shape, mut strides, first) = layout;
    let tensor = Tensor {
        // DLPack requires a null pointer for an empty tensor.
        data: if view.get().len == 0 { null_mut() } else { with_exposed_provenance_mut(address + first) },
        device: [kind, id],
        ndim: c_int::try_from(shape.len()).unwrap_or(c_int::MAX),
        dtype: DataType { code, bits, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let (context, kept) = (null_mut(), (shape, strides, owner));
    let (pointer, name) = if is_versioned {
        let deleter = Some(delete::<ManagedVersioned> as Deleter);
        (lend(ManagedVersioned { version: VERSION, context, deleter, flags, tensor }, kept), VERSIONED)
    } else {
        (lend(Managed { tensor, context, deleter: Some(delete::<Managed>) }, kept), LEGACY)
    };
    // SAFETY: the destructor takes such a tensor under this name.
    Ok(unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destroy)) }?)
}

/// Allocates an exported tensor, for `delete`.
fn lend<T>(managed: T, _kept: (Vec<i64>, Vec<i64>, Box<dyn Send>)) -> NonNull<c_void> {
    NonNull::from(Box::leak(Box::new(Exported { managed, _kept }))).cast()
}

/// The device view, or a copy of it, ordered before later work on the consumer's stream.
fn on_device(side: &Bound<'_, MemoryView>, stream: Option<i64>, copy: bool) -> Result<(usize, bool, Box<dyn Send>)> {
    let consumer = match stream {
        Some(-1) => None,
        None => Some(LEGACY_STREAM),
        Some(0) => return Err(PyValueError::new_err("stream 0 is ambiguous: use 1, 2 or a stream handle").into()),
        Some(other) => {
            Some(u64::try_from(other).map_err(|_| PyValueError::new_err(format!("{other} is not a CUDA stream")))?)
        }
    };
    // Nothing shares the bytes of an empty copy.
    let side = if copy && side.get().len > 0 { copy_of(side, consumer)? } else { side.clone() };
    let (view, allocation) = (side.get(), side.get().live()?);
    if let Some(consumer) = consumer {
        allocation.run(side.py(), |memory| order(view, &allocation, memory, consumer))?;
    }
    // A device address: provenance does not matter.
    Ok((as_address(view.device_address()?), copy, Box::new(view.share()?)))
}

/// A copy in the memory's context, whichever is current. The context of other libraries' memory is unknown.
fn copy_of<'py>(side: &Bound<'py, MemoryView>, consumer: Option<u64>) -> Result<Bound<'py, MemoryView>> {
    let (py, len) = (side.py(), side.get().len);
    let memory = side.get().live()?.run(py, |memory| {
        let foreign = "the memory was allocated by another library: only that can copy it for copy=True";
        let original = memory.ok_or_else(|| refused(foreign))?;
        original.wait_for_stream()?;
        Ok(original.allocate_beside(len)?)
    })?;
    let copy = Bound::new(py, MemoryView::whole(Allocation::of(memory, false, None)))?;
    let stream = Stream::of(consumer.unwrap_or(LEGACY_STREAM));
    copy_all(py, Side::Device(copy.clone()), Side::Device(side.clone()), len, Some(stream))?;
    Ok(copy)
}

/// The host view or a host copy, after the bound stream's work. A stream that a consumer names has nothing to wait for.
fn on_host(side: &Bound<'_, MemoryView>, copy: Option<bool>) -> Result<(usize, bool, Box<dyn Send>)> {
    let (py, view) = (side.py(), side.get());
    let (len, used) = (view.len, view.share()?);
    let visible = view.visible().ok();
    if visible.is_none() && copy == Some(false) {
        let kind = view.live()?.kind;
        return Err(refused(format!("{kind} memory has no host view: copy=False is impossible on the CPU")));
    }
    view.wait_for_stream(py)?;
    if let Some(address) = visible.filter(|_| copy != Some(true)) {
        view.synchronize(py, (0, None), Memory::invalidate)?;
        return Ok((address, false, Box::new(used)));
    }
    let bytes = py.get_type::<PyByteArray>().call1((len,))?;
    let copy = Bound::new(py, HostBuffer::new(&bytes, true, false)?)?;
    if len > 0 {
        copy_all(py, Side::Host(copy.clone()), Side::Device(side.clone()), len, None)?;
    }
    Ok((copy.get().address().expose_provenance(), true, Box::new(copy.unbind())))
}

/// Records that the consumer's streams use the memory, and makes them wait for the work submitted to the bound one.
/// The release waits for the consumer's work then, in whichever context: its deleter may run before that has finished.
fn order(view: &MemoryView, allocation: &Allocation, memory: Option<&Memory>, consumer: u64) -> Result<()> {
    // Another library's memory, or none: neither is it bound, nor is it freed here.
    let Some(memory) = memory else { return Ok(()) };
    let bound = bound_handle(memory);
    for follower in view.streams_named(consumer)? {
        if bound == Some(consumer) && follower.context() == memory.context() {
            continue;
        }
        // Before the wait: a call that fails may still have made the stream wait.
        allocation.note_use(Some(memory), follower, &Stream::of(consumer))?;
        if let Some(bound) = bound {
            follower.wait(&view.stream(bound)?.record()?)?;
        }
    }
    Ok(())
}

/// The deleter of either structure; callable from any thread, attached to the interpreter or not.
unsafe extern "C" fn delete<T>(managed: *mut c_void) {
    if !managed.is_null() {
        // SAFETY: `lend` allocated it, of which the structure is the first field, and it is deleted once.
        let mut exported = Some(unsafe { Box::from_raw(managed.cast::<Exported<T>>()) });
        // What it keeps goes at once if this thread is attached; else PyO3 lets the next attached thread drop Python's objects.
        attached_anew(|_| drop(exported.take()));
    }
}

/// Deletes the tensor of a capsule that no consumer renamed.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    for name in [LEGACY, VERSIONED] {
        // SAFETY: the interpreter passes the capsule that is being destroyed.
        if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: valid under this name.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
        let deleter = if name == LEGACY {
            // SAFETY: of the structure of this name.
            unsafe { (*managed.cast::<Managed>()).deleter }
        } else {
            // SAFETY: as above.
            unsafe { (*managed.cast::<ManagedVersioned>()).deleter }
        };
        if let Some(deleter) = deleter {
            // SAFETY: no consumer took the tensor; deleted once.
            unsafe { deleter(managed) };
        }
    }
}

// ---- Import ---------------------------------------------------------------------------------------------------------

/// The structure of a capsule; None unless the object is a capsule of this name.
fn peek<'a, T>(capsule: &'a Bound<'_, PyAny>, name: &CStr) -> Option<&'a T> {
    let managed = capsule.cast::<PyCapsule>().ok()?.pointer_checked(Some(name)).ok()?;
    // SAFETY: the structure lives while the capsule has this name.
    Some(unsafe { managed.cast::<T>().as_ref() })
}

/// Takes a CUDA tensor from a capsule, as a view of its bytes: a range of our memory if it lies in one.
#[pyfunction]
pub(crate) fn dlpack_import(capsule: &Bound<'_, PyAny>) -> Result<MemoryView> {
    // Two threads must not take the same tensor.
    with_critical_section(capsule, || {
        // The version is the first field in every version.
        let (tensor, managed, flags, name, used) = if let Some(&[major, minor]) = peek::<[u32; 2]>(capsule, VERSIONED) {
            if major != VERSION[0] {
                return Err(refused(format!("DLPack version {major}.{minor} is not supported")));
            }
            let managed = peek::<ManagedVersioned>(capsule, VERSIONED).expect("has this name");
            (&managed.tensor, NonNull::from(managed).cast(), managed.flags, VERSIONED, VERSIONED_USED)
        } else if let Some(managed) = peek::<Managed>(capsule, LEGACY) {
            (&managed.tensor, NonNull::from(managed).cast(), 0, LEGACY, LEGACY_USED)
        } else {
            return Err(PyTypeError::new_err("expected a DLPack capsule whose tensor was not taken yet").into());
        };
        let [kind, device] = tensor.device;
        if kind != CUDA {
            return Err(refused(format!("the tensor is on DLPack device type {kind}, not CUDA")));
        }
        let readonly = flags & READ_ONLY != 0;
        let len = contiguous_bytes(tensor, flags & IS_PADDED != 0)?;
        let start = (tensor.data.addr() as u64).checked_add(tensor.byte_offset);
        let address = start.filter(|start| start.checked_add(len as u64).is_some());
        let address =
            address.ok_or_else(|| refused(format!("the tensor of {} exceeds the address space", in_bytes(len))))?;
        // SAFETY: a live capsule and a static name.
        if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
            return Err(PyErr::fetch(capsule.py()).into());
        }
        // SAFETY: as above; taken from a capsule of this name.
        let keep = unsafe { PyCapsule::new_with_pointer_and_destructor(capsule.py(), managed, name, Some(destroy)) }?;
        if let Some(view) = find(address, Some(len), readonly)? {
            // Another library may reuse the bytes once its tensor is deleted.
            return view.keeping(keep.into_any().unbind());
        }
        Ok(MemoryView::foreign(device, address, len, readonly, keep.into_any().unbind()))
    })
}

/// The number of bytes of a tensor in C order. Where its elements are `padded`, those of less than a byte have one each.
fn contiguous_bytes(tensor: &Tensor, padded: bool) -> Result<usize> {
    let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
    let dims = |pointer: *mut i64| match (ndim, pointer.is_null()) {
        (0, _) | (_, true) => &[][..],
        // SAFETY: DLPack guarantees `ndim` elements.
        _ => unsafe { std::slice::from_raw_parts(pointer, ndim) },
    };
    let (shape, strides) = (dims(tensor.shape), dims(tensor.strides));
    if shape.iter().any(|&extent| extent < 0) {
        return Err(refused(format!("invalid tensor shape {shape:?}")));
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let mut elements = 1_i64;
    for (axis, &extent) in shape.iter().enumerate().rev() {
        if extent > 1 && strides.get(axis).is_some_and(|&stride| stride != elements) {
            return Err(refused("the tensor is not in C order: make it contiguous first"));
        }
        elements = elements.saturating_mul(extent);
    }
    // The distance of neighbouring elements.
    let bits = match (usize::from(tensor.dtype.bits), usize::from(tensor.dtype.lanes)) {
        (..8, 1) if padded => 8,
        // dlpack.h does not say whether the lanes are padded, or the vector.
        (bits @ ..8, lanes) if padded => {
            return Err(refused(format!("padded vectors of {lanes} lanes of {bits} bits are not supported")));
        }
        (bits, lanes) => bits * lanes,
    };
    let bytes = usize::try_from(elements).ok().and_then(|count| count.checked_mul(bits)).map(|bits| bits.div_ceil(8));
    bytes.ok_or_else(|| refused(format!("a tensor of {elements} elements of {bits} bits exceeds the address space")))
}
