//! Tables of weak references: `Addresses`, ordered by an address, and `Slots`, unordered and faster. Pure.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A table, and the one of a forked child: the inherited lock may be held by a thread that does not exist in the child.
struct Tables<T> {
    table: Mutex<T>,
    in_child: Mutex<T>,
}

impl<T> Tables<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        let table = if vkgdr::is_forked() { &self.in_child } else { &self.table };
        table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Weak references by an address: registration keeps nothing alive.
pub(crate) struct Addresses<T>(Tables<BTreeMap<u64, Weak<T>>>);

impl<T> Addresses<T> {
    pub(crate) const fn new() -> Self {
        Self(Tables { table: Mutex::new(BTreeMap::new()), in_child: Mutex::new(BTreeMap::new()) })
    }

    pub(crate) fn add(&self, address: u64, entry: &Arc<T>) {
        self.0.lock().insert(address, Arc::downgrade(entry));
    }

    /// Removes an entry, unless its address was reused by another one.
    pub(crate) fn remove(&self, address: u64, entry: &T) {
        let mut table = self.0.lock();
        if table.get(&address).is_some_and(|found| std::ptr::eq(found.as_ptr(), entry)) {
            table.remove(&address);
        }
    }

    /// The entry with the largest address not above `address`.
    pub(crate) fn at_or_before(&self, address: u64) -> Option<Arc<T>> {
        self.0.lock().range(..=address).next_back()?.1.upgrade()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().values().filter_map(Weak::upgrade).collect()
    }
}

struct Slab<T> {
    entries: Vec<Weak<T>>,
    vacant: Vec<usize>,
}

impl<T> Slab<T> {
    const fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new() }
    }
}

/// Weak references, each in a slot of its own.
pub(crate) struct Slots<T>(Tables<Slab<T>>);

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self(Tables { table: Mutex::new(Slab::new()), in_child: Mutex::new(Slab::new()) })
    }

    /// Adds the entry that `make` returns for its slot.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> Arc<T>) -> Arc<T> {
        let mut slab = self.0.lock();
        let slot = slab.vacant.pop().unwrap_or(slab.entries.len());
        let entry = make(slot);
        let weak = Arc::downgrade(&entry);
        if let Some(place) = slab.entries.get_mut(slot) {
            *place = weak
        } else {
            slab.entries.push(weak)
        }
        entry
    }

    /// Removes an entry from its slot. In a forked child the slots of the parent's entries belong to others.
    pub(crate) fn remove(&self, slot: usize, entry: &T) {
        let mut slab = self.0.lock();
        if let Some(place) = slab.entries.get_mut(slot)
            && std::ptr::eq(place.as_ptr(), entry)
        {
            *place = Weak::new();
            slab.vacant.push(slot);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().entries.iter().filter_map(Weak::upgrade).collect()
    }
}
