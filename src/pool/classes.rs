//! The size classes of a pool's slots: a few for each doubling, from 64 bytes on. Calls no driver.
#![forbid(unsafe_code)]

/// The binary logarithm of the smallest slot's size: a cache line, so that no two slots share one.
const SMALLEST: u32 = 6;

/// The size classes of a pool. Class 0 is the smallest; the sizes of a doubling are evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Classes {
    /// Each doubling has `1 << bits` classes.
    bits: u32,
    alignment: usize,
    largest: usize,
}

impl Classes {
    /// Classes for 1 to `largest` bytes. `bits` is at most [`SMALLEST`], `alignment` is a power of two, and `largest`
    /// is a multiple of `alignment` and at least the smallest slot's size.
    pub(super) const fn new(bits: u32, alignment: usize, largest: usize) -> Self {
        debug_assert!(bits <= SMALLEST && alignment.is_power_of_two());
        debug_assert!(largest.is_multiple_of(alignment) && largest >= 1 << SMALLEST);
        Self { bits, alignment, largest }
    }

    /// The class for `len` bytes; `None` for 0 and for more than the largest length.
    #[inline]
    pub(super) const fn of(&self, len: usize) -> Option<usize> {
        if len == 0 || len > self.largest {
            return None;
        }
        // The index of the last byte, after rounding up to the alignment.
        let last = (len - 1) | (self.alignment - 1);
        if last < 1 << SMALLEST {
            return Some(0);
        }
        let doubling = last.ilog2();
        // The leading bit, which all sizes of the doubling share, and the step within the doubling.
        let leading = last >> (doubling - self.bits);
        Some((((doubling - SMALLEST) as usize) << self.bits) + leading - (1 << self.bits) + 1)
    }

    /// The bytes of a slot of a class: a multiple of the alignment for each class that [`of`](Self::of) returns.
    pub(super) const fn size(&self, class: usize) -> usize {
        let Some(rank) = class.checked_sub(1) else { return 1 << SMALLEST };
        let doubling = (rank >> self.bits) + SMALLEST as usize;
        let step = rank & ((1 << self.bits) - 1);
        ((1 << self.bits) + step + 1) << (doubling - self.bits as usize)
    }

    /// The number of classes.
    pub(super) fn count(&self) -> usize {
        self.of(self.largest).map_or(0, |class| class + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGEST: usize = 8 << 20;

    /// The smallest size that fits, found by trying all.
    fn naive(classes: &Classes, len: usize) -> Option<usize> {
        (0..classes.count())
            .map(|class| classes.size(class))
            .find(|&size| size.is_multiple_of(classes.alignment) && size >= len)
    }

    fn options() -> impl Strategy<Value = Classes> {
        (0..=6_u32, 6..=16_u32).prop_map(|(bits, alignment)| Classes::new(bits, 1 << alignment, LARGEST))
    }

    proptest! {
        #[test]
        fn a_length_gets_the_smallest_aligned_size_that_holds_it(
            classes in options(),
            len in prop_oneof![1..5000_usize, 1..=LARGEST],
        ) {
            let found = classes.of(len).map(|class| classes.size(class));
            prop_assert_eq!(found, naive(&classes, len));
        }

        #[test]
        fn waste_is_bounded_by_the_number_of_classes(bits in 2..=6_u32, len in 256..=LARGEST) {
            let classes = Classes::new(bits, 64, LARGEST);
            let size = classes.of(len).map_or(0, |class| classes.size(class));
            let waste = size - len;
            prop_assert!(waste < (len >> bits).max(64), "{len} bytes get {size}");
            prop_assert!(waste * 4 <= size, "more than 25 %: {len} bytes get {size}");
        }

        #[test]
        fn a_longer_length_never_gets_a_smaller_class(classes in options(), one in 1..=LARGEST, other in 1..=LARGEST) {
            let (short, long) = (one.min(other), one.max(other));
            prop_assert!(classes.of(short) <= classes.of(long));
        }
    }

    #[test]
    fn every_size_is_its_own_class() {
        for bits in 0..=6 {
            let classes = Classes::new(bits, 1, LARGEST);
            for class in 0..classes.count() {
                assert_eq!(classes.of(classes.size(class)), Some(class), "{bits} bits");
                assert_eq!(classes.of(classes.size(class) + 1), (class + 1 < classes.count()).then_some(class + 1));
            }
        }
    }

    #[test]
    fn four_classes_for_each_doubling() {
        let classes = Classes::new(2, 64, 1024);
        let sizes: Vec<_> = (0..classes.count()).map(|class| classes.size(class)).collect();
        assert_eq!(sizes[..4], [64, 80, 96, 112]);
        assert_eq!(sizes[8..], [256, 320, 384, 448, 512, 640, 768, 896, 1024]);
        assert_eq!((classes.of(0), classes.of(1), classes.of(1024), classes.of(1025)), (None, Some(0), Some(16), None));
        let used: Vec<_> = (1..=256).filter_map(|len| classes.of(len)).map(|class| classes.size(class)).collect();
        assert_eq!([used[0], used[63], used[64], used[128], used[192]], [64, 64, 128, 192, 256]);
    }

    #[test]
    fn chunks_of_a_kibibyte_and_more_are_aligned_to_256_bytes() {
        let classes = Classes::new(2, 64, LARGEST);
        for len in 1..LARGEST.min(64 << 10) {
            let size = classes.of(len).map_or(0, |class| classes.size(class));
            assert!(size.is_multiple_of(if size >= 1024 { 256 } else { 64 }), "{size}");
        }
    }
}
