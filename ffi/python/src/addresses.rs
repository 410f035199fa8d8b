//! `Addresses`: weak references by the addresses at which memory begins. Pure.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Weak references by address: nothing is kept alive. Empty in a forked child, where a thread that does not exist may hold the
/// lock.
pub(crate) struct Addresses<T>(Mutex<BTreeMap<u64, Weak<T>>>);

impl<T> Addresses<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn lock(&self) -> Option<MutexGuard<'_, BTreeMap<u64, Weak<T>>>> {
        (!vkgdr::is_forked()).then(|| self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(&self, start: u64, entry: &Arc<T>) {
        if let Some(mut table) = self.lock() {
            table.insert(start, Arc::downgrade(entry));
        }
    }

    /// Removes an entry, unless another one begins there by now.
    pub(crate) fn remove(&self, start: u64, entry: &T) {
        let Some(mut table) = self.lock() else { return };
        if let Entry::Occupied(found) = table.entry(start)
            && std::ptr::eq(found.get().as_ptr(), entry)
        {
            found.remove();
        }
    }

    /// The entry that begins last of those that begin at an address or before it, and the distance from there.
    pub(crate) fn last_until(&self, address: u64) -> Option<(Arc<T>, u64)> {
        let table = self.lock()?;
        let (start, entry) = table.range(..=address).next_back()?;
        Some((entry.upgrade()?, address - start))
    }

    /// All entries; one with two addresses twice.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.lock().map_or_else(Vec::new, |table| table.values().filter_map(Weak::upgrade).collect())
    }
}
