//! The handles of memory that the program allocated or received, as numbers, by the memory's id.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::lock::lock;

static HANDLES: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// Records the handle of memory.
pub(crate) fn add(id: u64, handle: usize) {
    lock(&HANDLES).and_then(|mut handles| handles.insert(id, handle));
}

/// Removes the handle of memory, before the memory is freed: its id may be given out again then.
pub(crate) fn remove(id: u64) {
    lock(&HANDLES).and_then(|mut handles| handles.remove(&id));
}

/// The handle of memory.
pub(crate) fn find(id: u64) -> Option<usize> {
    lock(&HANDLES)?.get(&id).copied()
}
