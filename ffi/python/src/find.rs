//! Lookup of memory by address or allocation id, and views of memory that other libraries allocated.
#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::allocation::Allocation;
use crate::error::{Failure, Result, in_bytes, number};
use crate::memory_view::MemoryView;
use crate::raw_stream::NULL_STREAM;

/// A view of `size` bytes at a device address; None if neither the first nor the last lies in memory of vkgdr. An error if
/// only a part of them does.
#[pyfunction]
pub(crate) fn find_device(address: u64, size: usize) -> Result<Option<MemoryView>> {
    if let Some(found) = Allocation::find_device(address, size) {
        return Ok(MemoryView::found(found, size));
    }
    let Some((used, offset)) = Allocation::overlapping(address, size) else { return Ok(None) };
    let whole = used.allocation().len;
    if MemoryView::found((used, 0), whole).is_none() {
        return Ok(None);
    }
    Err(match offset {
        Some(offset) => vkgdr::Error::OutOfRange { offset, len: size, size: whole }.into(),
        None => Failure::Invalid(format!(
            "the range of {} at device address {address:#x} begins before memory of vkgdr and ends within it",
            in_bytes(size)
        )),
    })
}

/// A view of `size` bytes at a host address; None unless they lie in one live allocation of vkgdr.
#[pyfunction]
pub(crate) fn find_host(address: usize, size: usize) -> Option<MemoryView> {
    Allocation::find_host(address, size).and_then(|found| MemoryView::found(found, size))
}

/// A view from an address of the device or of the host to the end of the allocation that contains it.
#[pyfunction]
pub(crate) fn find_address(address: u64) -> Option<MemoryView> {
    Allocation::find(address).and_then(|(used, offset)| {
        let len = used.allocation().len - offset;
        MemoryView::found((used, offset), len)
    })
}

/// A view of the whole allocation with this id.
#[pyfunction]
pub(crate) fn find_id(id: &Bound<'_, PyAny>) -> Result<Option<MemoryView>> {
    let id = number(id, "a memory handle")?;
    Ok(Allocation::with_id(id).and_then(|used| {
        let len = used.allocation().len;
        MemoryView::found((used, 0), len)
    }))
}

/// The CUDA device of an address, queried in the context of `within`, or in the current context.
fn device_of(address: u64, within: Option<&MemoryView>) -> Result<Option<i32>> {
    Ok(match within {
        Some(view) => view.stream(NULL_STREAM)?.pointer_device(address)?,
        None => vkgdr::pointer_device(address)?,
    })
}

/// A view of device memory that another library allocated and that `keep` keeps alive.
#[pyfunction]
#[pyo3(signature = (device_ptr, size, readonly, keep, within = None))]
pub(crate) fn foreign(
    device_ptr: u64,
    size: usize,
    readonly: bool,
    keep: Py<PyAny>,
    within: Option<&MemoryView>,
) -> Result<MemoryView> {
    // Before the driver is asked, which needs a context.
    if size > 0 && device_ptr == 0 {
        return Err(Failure::Invalid(format!("the null pointer is not the address of {}", in_bytes(size))));
    }
    if device_ptr.checked_add(size as u64).is_none() {
        let text =
            format!("the range of {} at device address {device_ptr:#x} exceeds the address space", in_bytes(size));
        return Err(Failure::Invalid(text));
    }
    let device = if size == 0 { Some(0) } else { device_of(device_ptr, within)? };
    let Some(device) = device else {
        return Err(Failure::Invalid(format!("{device_ptr:#x} is not the address of CUDA device memory")));
    };
    Ok(MemoryView::foreign(device, device_ptr, size, readonly, keep))
}

/// The CUDA device of an address; None for host addresses and addresses unknown to CUDA.
#[pyfunction]
#[pyo3(signature = (address, within = None))]
pub(crate) fn pointer_device(address: u64, within: Option<&MemoryView>) -> Result<Option<i32>> {
    device_of(address, within)
}
