//! `Listed`: a table of weak references by a number, such as `Memory::id`. Pure.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Weak references by unique numbers: nothing is kept alive. Empty in a forked child, where a thread that does not exist may
/// hold the lock.
pub(crate) struct Listed<T>(Mutex<Entries<T>>);

type Entries<T> = HashMap<u64, Weak<T>, BuildHasherDefault<Multiply>>;

impl<T> Listed<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())))
    }

    fn lock(&self) -> Option<MutexGuard<'_, Entries<T>>> {
        (!vkgdr::is_forked()).then(|| self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(&self, number: u64, entry: &Arc<T>) {
        if let Some(mut table) = self.lock() {
            table.insert(number, Arc::downgrade(entry));
        }
    }

    /// Removes an entry, unless another one has its number by now.
    pub(crate) fn remove(&self, number: u64, entry: &T) {
        let Some(mut table) = self.lock() else { return };
        if let Entry::Occupied(found) = table.entry(number)
            && std::ptr::eq(found.get().as_ptr(), entry)
        {
            found.remove();
        }
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        self.lock()?.get(&number)?.upgrade()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.lock().map_or_else(Vec::new, |table| table.values().filter_map(Weak::upgrade).collect())
    }
}

/// A hash of one number: Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
