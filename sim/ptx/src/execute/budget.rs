//! The memory of calls, of which all warps of a launch together have a limited amount: a recursion that does not end is a
//! fault before the machine's memory is used up.

use std::sync::atomic::{AtomicU64, Ordering};

/// The limit on the registers, the local memory and the return addresses of calls, in bytes, next to the memory of the
/// resident blocks.
const MOST_BYTES: u64 = 1 << 30;

/// The bytes that are in use.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: AtomicU64,
}

impl Budget {
    /// Makes room for `len` elements, more at once than they need so that growth is rare; returns the bytes that it took, or
    /// `None` if so many are not left.
    pub(super) fn grow<T>(&self, vector: &mut Vec<T>, len: usize) -> Option<u64> {
        let capacity = vector.capacity();
        if len <= capacity {
            return Some(0);
        }
        [len.max(capacity.saturating_mul(2)), len].into_iter().find_map(|larger| {
            let bytes = (larger - capacity).saturating_mul(size_of::<T>()) as u64;
            self.take(bytes)?;
            vector.reserve_exact(larger - vector.len());
            Some(bytes)
        })
    }

    fn take(&self, bytes: u64) -> Option<()> {
        if self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= MOST_BYTES {
            return Some(());
        }
        self.give_back(bytes);
        None
    }

    /// Returns bytes that [`grow`](Self::grow) took.
    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, MOST_BYTES};

    #[test]
    fn vectors_grow_until_the_bytes_of_all_are_used_up() {
        let budget = Budget::default();
        budget.used.store(MOST_BYTES - 100, super::Ordering::Relaxed);
        let (mut words, mut bytes) = (Vec::<u64>::new(), Vec::<u8>::new());
        assert_eq!(budget.grow(&mut words, 4), Some(32));
        assert_eq!(budget.grow(&mut words, 3), Some(0));
        assert_eq!(budget.grow(&mut words, 5), Some(32), "twice as many");
        assert_eq!(budget.grow(&mut words, 9), Some(8), "twice as many are not left");
        assert_eq!(budget.grow(&mut bytes, 29), None);
        assert_eq!(budget.grow(&mut bytes, 28), Some(28));
        budget.give_back(28);
        assert_eq!(budget.grow(&mut words, 12), Some(24));
        assert_eq!((words.capacity(), bytes.capacity()), (12, 28));
    }
}
