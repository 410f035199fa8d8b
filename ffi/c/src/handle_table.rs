//! The handles of memory that the program allocated or received, as numbers, by the memory's id.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

static HANDLES: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// None in a forked child, where another thread of the parent may hold the lock for ever.
fn handles() -> Option<MutexGuard<'static, BTreeMap<u64, usize>>> {
    (!vkgdr_rs::is_forked()).then(|| HANDLES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Records the handle of memory.
pub(crate) fn add(id: u64, handle: usize) {
    if let Some(mut handles) = handles() {
        handles.insert(id, handle);
    }
}

/// Removes the handle of memory, before the memory is freed: its id may be given out again then.
pub(crate) fn remove(id: u64) {
    if let Some(mut handles) = handles() {
        handles.remove(&id);
    }
}

/// The handle of memory.
pub(crate) fn find(id: u64) -> Option<usize> {
    handles().and_then(|handles| handles.get(&id).copied())
}
