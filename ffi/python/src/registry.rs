//! Things by a number, such as the first of the addresses that they take. Pure.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

type Table<T> = Mutex<BTreeMap<u64, Weak<T>>>;

/// Things by a number. Weak, so that being registered keeps nothing alive.
pub(crate) struct Registry<T> {
    table: Table<T>,
    /// A forked child's own: the inherited lock may be held by a thread that the child does not have.
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

    pub(crate) fn add(&self, number: u64, thing: &Arc<T>) {
        self.table().insert(number, Arc::downgrade(thing));
    }

    /// Takes a thing out, unless its number is another's by now.
    pub(crate) fn remove(&self, number: u64, thing: &T) {
        let mut table = self.table();
        if table.get(&number).is_some_and(|found| std::ptr::eq(found.as_ptr(), thing)) {
            table.remove(&number);
        }
    }

    /// The thing with a number, or with the nearest below it.
    pub(crate) fn at_or_before(&self, number: u64) -> Option<Arc<T>> {
        self.table().range(..=number).next_back()?.1.upgrade()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.table().values().filter_map(Weak::upgrade).collect()
    }
}
