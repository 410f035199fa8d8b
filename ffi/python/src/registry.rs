//! Things by a number, such as the first of the addresses that they take. Pure.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Things by a number. Weak, so that being registered keeps nothing alive.
pub(crate) struct Registry<T>(Mutex<BTreeMap<u64, Weak<T>>>);

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, number: u64, thing: &Arc<T>) {
        self.table().insert(number, Arc::downgrade(thing));
    }

    pub(crate) fn remove(&self, number: u64) {
        self.table().remove(&number);
    }

    /// The thing with a number, or with the nearest below it.
    pub(crate) fn at_or_before(&self, number: u64) -> Option<Arc<T>> {
        self.table().range(..=number).next_back()?.1.upgrade()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.table().values().filter_map(Weak::upgrade).collect()
    }
}
