//! Imports DLPack tensors of other libraries as memory.
#![expect(unsafe_code, reason = "reads and deletes C structures")]

use std::ffi::CStr;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;

use super::abi::{
    CUDA, IS_PADDED, LEGACY, LEGACY_USED, Managed, ManagedVersioned, READ_ONLY, Tensor, VERSION, VERSIONED,
    VERSIONED_USED,
};
use super::export;
use crate::error::{Failure, Result, in_bytes};
use crate::find::find_device;
use crate::memory_view::MemoryView;

/// A tensor taken from its capsule.
enum Taken {
    Legacy(*mut Managed),
    Versioned(*mut ManagedVersioned),
}

/// Deletes a tensor on drop.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
struct Tensors(Taken);

impl Taken {
    /// Whether this package exported the tensor.
    fn is_ours(&self) -> bool {
        match *self {
            // SAFETY: the tensor lives while the capsule does.
            Self::Legacy(managed) => unsafe { (*managed).deleter }.is_some_and(export::is_delete_legacy),
            // SAFETY: as above.
            Self::Versioned(managed) => unsafe { (*managed).deleter }.is_some_and(export::is_delete_versioned),
        }
    }
}

// SAFETY: DLPack's deleters may run on any thread.
unsafe impl Send for Tensors {}
// SAFETY: only `drop` uses the pointer.
unsafe impl Sync for Tensors {}

impl Drop for Tensors {
    fn drop(&mut self) {
        match self.0 {
            Taken::Legacy(managed) => {
                // SAFETY: taken from its capsule, so this value owns it and it is live.
                if let Some(deleter) = unsafe { (*managed).deleter } {
                    // SAFETY: called once.
                    unsafe { deleter(managed) };
                }
            }
            Taken::Versioned(managed) => {
                // SAFETY: as above.
                if let Some(deleter) = unsafe { (*managed).deleter } {
                    // SAFETY: called once.
                    unsafe { deleter(managed) };
                }
            }
        }
    }
}

/// The pointer of a capsule; None unless the object is a capsule of this name.
fn peek<T>(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> Option<*mut T> {
    // SAFETY: a live object and a static name.
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: valid under this name.
    Some(unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) }.cast())
}

fn rename(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: a live capsule and a static name.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(capsule.py()))
    }
}

/// Takes a CUDA tensor from a capsule, as a view of its bytes: a range of our memory if it lies in one.
#[pyfunction]
pub(crate) fn dlpack_import(capsule: &Bound<'_, PyAny>) -> Result<MemoryView> {
    // Two threads must not take the same tensor.
    with_critical_section(capsule, || import(capsule))
}

fn import(capsule: &Bound<'_, PyAny>) -> Result<MemoryView> {
    let (tensor, taken, flags, used) = if let Some(managed) = peek::<ManagedVersioned>(capsule, VERSIONED) {
        // SAFETY: the tensor lives while the capsule does; the version is the first field in every version.
        let version = unsafe { (*managed).version };
        if version.major != VERSION.major {
            return Err(Failure::Buffer(format!(
                "DLPack version {}.{} is not supported",
                version.major, version.minor
            )));
        }
        // SAFETY: the tensor lives while the capsule does, and has a supported version.
        let flags = unsafe { (*managed).flags };
        // SAFETY: as above.
        let tensor = unsafe { &raw const (*managed).tensor };
        (tensor, Taken::Versioned(managed), flags, VERSIONED_USED)
    } else if let Some(managed) = peek::<Managed>(capsule, LEGACY) {
        // SAFETY: the tensor lives while the capsule does.
        let tensor = unsafe { &raw const (*managed).tensor };
        (tensor, Taken::Legacy(managed), 0, LEGACY_USED)
    } else {
        return Err(PyTypeError::new_err("expected a DLPack capsule whose tensor was not taken yet").into());
    };
    // SAFETY: the tensor lives while the capsule does.
    let tensor = unsafe { &*tensor };
    if tensor.device.kind != CUDA {
        return Err(Failure::Buffer(format!("the tensor is on DLPack device type {}, not CUDA", tensor.device.kind)));
    }
    let readonly = flags & READ_ONLY != 0;
    let len = contiguous_bytes(tensor, flags & IS_PADDED != 0)?;
    let start = (tensor.data.addr() as u64).checked_add(tensor.byte_offset);
    let address = start.filter(|start| start.checked_add(len as u64).is_some());
    let address =
        address.ok_or_else(|| Failure::Buffer(format!("the tensor of {} exceeds the address space", in_bytes(len))))?;
    let ours = taken.is_ours();
    let device = tensor.device.id;
    rename(capsule, used)?;
    let keep = Py::new(capsule.py(), Tensors(taken))?;
    if let Some(view) = find_device(address, len)? {
        let view = if readonly { view.readonly() } else { view };
        // Another library may reuse the bytes once its tensor is deleted; our own tensors hold a use already.
        return if ours { Ok(view) } else { view.keeping(capsule.py(), keep.into_any()) };
    }
    Ok(MemoryView::foreign(device, address, len, readonly, keep.into_any()))
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
    let mut elements = 1_i64;
    if shape.iter().any(|&extent| extent < 0) {
        return Err(Failure::Buffer(format!("invalid tensor shape {shape:?}")));
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    for (axis, &extent) in shape.iter().enumerate().rev() {
        if extent > 1 && strides.get(axis).is_some_and(|&stride| stride != elements) {
            return Err(Failure::Buffer("the tensor is not in C order: make it contiguous first".into()));
        }
        elements = elements.saturating_mul(extent);
    }
    let bits = element_bits(tensor, padded)?;
    let bytes = usize::try_from(elements).ok().and_then(|count| count.checked_mul(bits)).map(|bits| bits.div_ceil(8));
    bytes.ok_or_else(|| {
        Failure::Buffer(format!("a tensor of {elements} elements of {bits} bits exceeds the address space"))
    })
}

/// The distance of neighbouring elements in bits.
fn element_bits(tensor: &Tensor, padded: bool) -> Result<usize> {
    let (bits, lanes) = (usize::from(tensor.dtype.bits), usize::from(tensor.dtype.lanes));
    match (padded && bits < 8, lanes) {
        (false, _) => Ok(bits * lanes),
        (true, 1) => Ok(8),
        // dlpack.h does not say whether the lanes are padded, or the vector.
        (true, _) => Err(Failure::Buffer(format!("padded vectors of {lanes} lanes of {bits} bits are not supported"))),
    }
}
