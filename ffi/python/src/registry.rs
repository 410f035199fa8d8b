//! An ordered table of weak references by a number, such as the first address of an allocation. Pure.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

type Table<T> = Mutex<BTreeMap<u64, Weak<T>>>;

/// Weak references by a number: registration keeps nothing alive.
pub(crate) struct Registry<T> {
    table: Table<T>,
    /// The table of a forked child: the inherited lock may be held by a thread that does not exist in the child.
    in_child: Table<T>,
}

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self { table: Mutex::new(BTreeMap::new()), in_child: Mutex::new(BTreeMap::new()) }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<T>>> {
        let table = if vkgdr::is_forked() { &self.in_child } else { &self.table };
        table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, number: u64, entry: &Arc<T>) {
        self.table().insert(number, Arc::downgrade(entry));
    }

    /// Removes an entry, unless its number was reused by another one.
    pub(crate) fn remove(&self, number: u64, entry: &T) {
        let mut table = self.table();
        if table.get(&number).is_some_and(|found| std::ptr::eq(found.as_ptr(), entry)) {
            table.remove(&number);
        }
    }

    /// The entry with the largest number not above `number`.
    pub(crate) fn at_or_before(&self, number: u64) -> Option<Arc<T>> {
        self.table().range(..=number).next_back()?.1.upgrade()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.table().values().filter_map(Weak::upgrade).collect()
    }
}
