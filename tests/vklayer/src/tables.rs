//! What a layer keeps of its instances and devices, found again by the dispatch word of a handle.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Values by dispatch word.
pub(crate) struct Tables<T>(RwLock<BTreeMap<usize, Arc<T>>>);

impl<T> Tables<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    pub(crate) fn insert(&self, key: usize, table: T) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::new(table));
    }

    pub(crate) fn get(&self, key: usize) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).map(Arc::clone)
    }

    pub(crate) fn remove(&self, key: usize) -> Option<Arc<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
    }
}
