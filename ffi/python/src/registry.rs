//! Things by the range of addresses that they take, to be found by an address within. Pure.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Things by their first addresses. Weak, so that being registered keeps nothing alive.
pub(crate) struct Registry<T>(Mutex<BTreeMap<u64, Weak<T>>>);

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, address: u64, thing: &Arc<T>) {
        self.table().insert(address, Arc::downgrade(thing));
    }

    pub(crate) fn remove(&self, address: u64) {
        self.table().remove(&address);
    }

    /// The thing that begins at an address, or the nearest before it.
    pub(crate) fn at_or_before(&self, address: u64) -> Option<Arc<T>> {
        self.table().range(..=address).next_back()?.1.upgrade()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.table().values().filter_map(Weak::upgrade).collect()
    }
}
