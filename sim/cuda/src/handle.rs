//! Opaque handles: pointer-sized values that are looked up in a table and never dereferenced.
//!
//! Each value is issued once in the life of the process, so a stale handle never denotes a newer object.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::code::Code;
use crate::sync::lock;

// Above small constants such as CU_STREAM_LEGACY, and not an address that Linux maps.
const FIRST: usize = 0x1000_0000_0000;
const STEP: usize = 0x40;

static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(FIRST);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A handle that was never issued before.
pub(crate) fn next() -> usize {
    NEXT_HANDLE.fetch_add(STEP, Ordering::Relaxed)
}

/// Whether `handle` was ever issued; its object may be gone.
pub(crate) fn was_issued(handle: usize) -> bool {
    handle >= FIRST && handle < NEXT_HANDLE.load(Ordering::Relaxed) && (handle - FIRST).is_multiple_of(STEP)
}

/// A number that is unique in the process: context, stream and buffer ids.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// The live objects of one kind, by handle. What is removed is returned, to be dropped with the table
/// unlocked: a destructor may be the program's.
pub(crate) struct Handles<T> {
    objects: LazyLock<Mutex<HashMap<usize, T>>>,
    /// The error for a handle without an object.
    missing: Code,
}

impl<T> Handles<T> {
    pub(crate) const fn new(missing: Code) -> Handles<T> {
        Handles { objects: LazyLock::new(Mutex::default), missing }
    }

    /// The objects by handle, locked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<usize, T>> {
        lock(&self.objects)
    }

    /// The number of live objects.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Gives an object a new handle.
    pub(crate) fn insert(&self, object: T) -> usize {
        let handle = next();
        self.insert_at(handle, object);
        handle
    }

    /// Adds an object that has a handle.
    pub(crate) fn insert_at(&self, handle: usize, object: T) {
        self.lock().insert(handle, object);
    }

    pub(crate) fn remove(&self, handle: usize) -> Result<T, Code> {
        self.lock().remove(&handle).ok_or(self.missing)
    }

    /// Removes the objects that `gone` accepts.
    pub(crate) fn remove_where(&self, gone: impl Fn(&T) -> bool) -> Vec<(usize, T)> {
        self.lock().extract_if(|_, object| gone(object)).collect()
    }
}

impl<T: Clone> Handles<T> {
    pub(crate) fn find(&self, handle: usize) -> Option<T> {
        self.lock().get(&handle).cloned()
    }

    pub(crate) fn get(&self, handle: usize) -> Result<T, Code> {
        self.find(handle).ok_or(self.missing)
    }
}
