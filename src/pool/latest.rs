//! What a thread used last, to be had again without a search.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::ptr::NonNull;

/// Where the value of the key is that was used last. For one thread, without a destructor: what has one takes longer to
/// reach.
pub(super) struct Latest<T> {
    key: Cell<u32>,
    value: Cell<NonNull<T>>,
}

impl<T> Latest<T> {
    pub(super) const fn new() -> Self {
        Self { key: Cell::new(0), value: Cell::new(NonNull::dangling()) }
    }

    /// The value of a key, which must not be 0, if that was used last.
    #[inline]
    pub(super) fn get(&self, key: u32) -> Option<NonNull<T>> {
        debug_assert!(key != 0);
        if self.key.get() == key { Some(self.value.get()) } else { None }
    }

    pub(super) fn set(&self, key: u32, value: NonNull<T>) {
        self.value.set(value);
        self.key.set(key);
    }

    /// To be called before a value goes.
    pub(super) fn forget(&self) {
        self.key.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_that_was_used_last_has_a_value() {
        let (one, two) = (NonNull::from(&10), NonNull::from(&20));
        let latest = Latest::new();
        let known = || [1, 2].map(|key| latest.get(key));
        assert_eq!(known(), [None, None]);
        latest.set(1, one);
        assert_eq!(known(), [Some(one), None]);
        latest.set(2, two);
        assert_eq!(known(), [None, Some(two)]);
        latest.forget();
        assert_eq!(known(), [None, None]);
    }
}
