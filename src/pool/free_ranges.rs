//! [`FreeRanges`]: the ranges of a block that belong to no span.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// The free ranges of a block, joined where they touch.
///
/// The search is linear: a block of the default length has about 500 spans, which come and go rarely.
#[derive(Debug)]
pub(super) struct FreeRanges {
    /// Length by offset.
    free: BTreeMap<usize, usize>,
    len: usize,
}

impl FreeRanges {
    /// A block of `len` bytes, all of it free.
    pub(super) fn new(len: usize) -> Self {
        Self { free: BTreeMap::from([(0, len)]), len }
    }

    /// Takes `len` bytes from the smallest range that has room for them. Returns their offset.
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let fitting = self.free.iter().filter(|&(_, &free)| free >= len);
        let (&offset, &free) = fitting.min_by_key(|&(_, free)| free)?;
        self.free.remove(&offset);
        if free > len {
            self.free.insert(offset + len, free - len);
        }
        Some(offset)
    }

    /// Gives back a range from [`take`](Self::take).
    pub(super) fn give(&mut self, offset: usize, len: usize) {
        let (mut start, mut end) = (offset, offset + len);
        if let Some((&before, &free)) = self.free.range(..offset).next_back() {
            debug_assert!(before + free <= offset, "given back twice");
            if before + free == offset {
                start = before;
            }
        }
        debug_assert!(self.free.range(offset..end).next().is_none(), "given back twice");
        if let Some(free) = self.free.remove(&end) {
            end += free;
        }
        self.free.insert(start, end - start);
    }

    /// Whether all of the block is free.
    pub(super) fn is_whole(&self) -> bool {
        self.free.get(&0) == Some(&self.len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 64;

    proptest! {
        /// Against a map of single bytes. A number takes so many bytes, or gives back what was taken before.
        #[test]
        fn free_ranges_agree_with_a_map_of_bytes(trace in prop::collection::vec((any::<bool>(), 1..20_usize), 1..200)) {
            let mut ranges = FreeRanges::new(LEN);
            let mut bytes = [false; LEN];
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (take, number) in trace {
                if take {
                    let fits = bytes.chunk_by(|a, b| a == b).any(|run| !run[0] && run.len() >= number);
                    let offset = ranges.take(number);
                    prop_assert_eq!(offset.is_some(), fits);
                    if let Some(offset) = offset {
                        prop_assert!(bytes[offset..offset + number].iter().all(|used| !used), "overlap");
                        bytes[offset..offset + number].fill(true);
                        taken.push((offset, number));
                    }
                } else if !taken.is_empty() {
                    let (offset, len) = taken.swap_remove(number % taken.len());
                    ranges.give(offset, len);
                    bytes[offset..offset + len].fill(false);
                }
                prop_assert_eq!(ranges.is_whole(), taken.is_empty());
            }
            for (offset, len) in taken {
                ranges.give(offset, len);
            }
            prop_assert!(ranges.is_whole());
            prop_assert_eq!(ranges.take(LEN), Some(0));
        }
    }

    #[test]
    fn the_smallest_range_that_fits_is_used() {
        let mut ranges = FreeRanges::new(100);
        let taken: Vec<_> = (0..5).filter_map(|_| ranges.take(20)).collect();
        assert_eq!(taken, [0, 20, 40, 60, 80]);
        ranges.give(0, 20);
        ranges.give(40, 20);
        ranges.give(60, 20);
        assert_eq!(ranges.take(10), Some(0));
        assert_eq!(ranges.take(40), Some(40));
        assert_eq!(ranges.take(11), None);
    }
}
