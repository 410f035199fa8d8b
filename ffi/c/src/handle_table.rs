//! Handles of dedicated memory by their first device address, as numbers.
//!
//! Memory of a pool is not in the table: a handle of it is made of the address of its chunk.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::CUdeviceptr;

static HANDLES: Mutex<BTreeMap<CUdeviceptr, usize>> = Mutex::new(BTreeMap::new());

/// None in a forked child, where another thread of the parent may hold the lock for ever.
fn handles() -> Option<MutexGuard<'static, BTreeMap<CUdeviceptr, usize>>> {
    (!vkgdr_rs::is_forked()).then(|| HANDLES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Records the handle of an allocation.
pub(crate) fn add(device_ptr: CUdeviceptr, handle: usize) {
    if let Some(mut handles) = handles() {
        handles.insert(device_ptr, handle);
    }
}

/// Removes the handle of an allocation, before it is freed. Another may be at the address: CUDA reuses those of a destroyed
/// context.
pub(crate) fn remove(device_ptr: CUdeviceptr, handle: usize) {
    if let Some(mut handles) = handles()
        && let Entry::Occupied(found) = handles.entry(device_ptr)
        && *found.get() == handle
    {
        found.remove();
    }
}

/// The handle of the allocation that begins at an address.
pub(crate) fn find(device_ptr: CUdeviceptr) -> Option<usize> {
    handles().and_then(|handles| handles.get(&device_ptr).copied())
}
