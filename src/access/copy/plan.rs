//! Which accesses to shared memory a copy makes: a head, whole lines, a tail. Pure.
//!
//! Every access is aligned to its own width, a power of two, and lies within one line. Whole lines are accessed by
//! whatever is widest. What is left of the first and of the last line is written by the fewest stores that reach its
//! bytes and no others, and read by loads of one width that cover it and may reach more of the line: a load from
//! write-combined memory costs the same whatever its width.
#![forbid(unsafe_code)]

use crate::allocation::LINE;

/// Bytes within one line, not all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// From the copy's first byte.
    pub(super) offset: usize,
    pub(super) len: usize,
    /// From the line's first byte.
    at: usize,
}

/// How a copy touches the shared bytes. Whole lines lie between the head and the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) head: Part,
    pub(super) lines: usize,
    pub(super) tail: Part,
}

/// A store, aligned to its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Store {
    /// From the copy's first byte.
    pub(super) offset: usize,
    /// In bytes, a power of two.
    pub(super) width: usize,
}

/// Loads of one width side by side, each aligned to it, that together reach all of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cover {
    /// How many bytes of the first load lie before the part.
    pub(super) skip: usize,
    pub(super) loads: usize,
}

impl Plan {
    /// The plan for `len` shared bytes at `address`, of which only the place within its line matters.
    #[inline]
    pub(super) const fn new(address: usize, len: usize) -> Self {
        let at = address % LINE;
        let to_next_line = (LINE - at) % LINE;
        let head = if to_next_line < len { to_next_line } else { len };
        let lines = (len - head) / LINE;
        let tail = (len - head) % LINE;
        Self {
            head: Part { offset: 0, len: head, at },
            lines,
            tail: Part { offset: head + lines * LINE, len: tail, at: 0 },
        }
    }
}

impl Part {
    /// The fewest stores of at most `widest` bytes, a power of two, that reach these bytes and no others.
    #[inline]
    pub(super) fn stores(self, widest: usize) -> impl Iterator<Item = Store> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let left = self.len - done;
            if left == 0 {
                return None;
            }
            let (offset, at) = (self.offset + done, self.at + done);
            // The largest power of two that divides the place, and the largest within what is left.
            let (aligned, fits) = (1 << (at | LINE).trailing_zeros(), 1 << left.ilog2());
            let width = widest.min(aligned).min(fits);
            done += width;
            Some(Store { offset, width })
        })
    }

    /// The fewest loads of `width` bytes, a power of two, that reach all of these bytes.
    #[inline]
    pub(super) const fn cover(self, width: usize) -> Cover {
        let skip = self.at % width;
        Cover { skip, loads: if self.len == 0 { 0 } else { (skip + self.len).div_ceil(width) } }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

    /// Every access of a write to `len` bytes at `at`, as place from the first line's start and width.
    fn stores(at: usize, len: usize, widest: usize) -> Vec<(usize, usize)> {
        let plan = Plan::new(at, len);
        let part = |part: Part| part.stores(widest).map(|store| (at + store.offset, store.width)).collect::<Vec<_>>();
        [part(plan.head), lines(plan, at, widest), part(plan.tail)].concat()
    }

    /// The same of a read.
    fn loads(at: usize, len: usize, width: usize) -> Vec<(usize, usize)> {
        let plan = Plan::new(at, len);
        let part = |part: Part| {
            let cover = part.cover(width);
            (0..cover.loads).map(|load| (at + part.offset - cover.skip + load * width, width)).collect::<Vec<_>>()
        };
        [part(plan.head), lines(plan, at, width), part(plan.tail)].concat()
    }

    fn lines(plan: Plan, at: usize, width: usize) -> Vec<(usize, usize)> {
        let start = at + plan.head.len;
        (0..plan.lines * LINE / width).map(|access| (start + access * width, width)).collect()
    }

    /// How often each byte is accessed.
    fn touched(accesses: &[(usize, usize)], bytes: usize) -> Vec<u8> {
        let mut touched = vec![0; bytes];
        for &(place, width) in accesses {
            assert!(width.is_power_of_two() && place.is_multiple_of(width), "{width} bytes at {place}");
            assert!(place / LINE == (place + width - 1) / LINE, "{width} bytes at {place} cross a line");
            touched[place..place + width].iter_mut().for_each(|count| *count += 1);
        }
        touched
    }

    /// The fewest aligned accesses of any power of two up to `widest` that reach `len` bytes at `at` and no others, by
    /// trying all.
    fn fewest(at: usize, len: usize, widest: usize) -> usize {
        let mut best = vec![0; len + 1];
        for left in 1..=len {
            let place = at + len - left;
            let possible = WIDTHS.iter().filter(|&&w| w <= widest && w <= left && place.is_multiple_of(w));
            best[left] = 1 + possible.map(|w| best[left - w]).min().unwrap_or(usize::MAX / 2);
        }
        best[len]
    }

    fn check(at: usize, len: usize, width: usize) {
        let what = format!("{len} bytes at {at}, {width} wide");
        let wanted = |place: usize| (at..at + len).contains(&place);
        let bytes = (at + len).next_multiple_of(LINE);

        let stores = stores(at, len, width);
        let exactly = (0..bytes).map(|place| u8::from(wanted(place)));
        assert!(touched(&stores, bytes).into_iter().eq(exactly), "{what}: {stores:?}");

        let loads = loads(at, len, width);
        let touched = touched(&loads, bytes);
        assert!(touched.iter().all(|&count| count <= 1), "{what}: twice: {loads:?}");
        assert!((0..bytes).all(|place| !wanted(place) || touched[place] == 1), "{what}: {loads:?}");
        let blocks = if len == 0 { 0 } else { (at + len - 1) / width - at / width + 1 };
        assert_eq!(loads.len(), blocks, "{what}: more loads than blocks");
    }

    #[test]
    fn every_access_is_aligned_within_a_line_and_reaches_what_it_should() {
        for at in (0..LINE).chain([LINE, 2 * LINE - 1]) {
            for len in 0..=300 {
                for width in WIDTHS {
                    check(at, len, width);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn large_copies_are_planned_alike(at in 0..LINE, len in 0..100_000_usize, width in prop::sample::select(&WIDTHS[..])) {
            check(at, len, width);
        }

        #[test]
        fn no_addresses_overflow(address: usize, len: usize) {
            let plan = Plan::new(address, len);
            prop_assert_eq!(plan.head.len + plan.lines * LINE + plan.tail.len, len);
            prop_assert_eq!(plan.tail.offset, len - plan.tail.len);
        }
    }

    #[test]
    fn no_other_stores_are_fewer() {
        for at in 0..LINE {
            for len in 0..=200 {
                for widest in WIDTHS {
                    let found = stores(at, len, widest).len();
                    assert_eq!(found, fewest(at, len, widest), "{len} bytes at {at}, {widest} wide");
                }
            }
        }
    }

    /// Each way through the plan: head, lines and tail, each there or not.
    #[test]
    fn a_plan_has_the_parts_that_its_bytes_need() {
        let table = [
            // At, length; head, lines, tail.
            ((0, 0), (0, 0, 0)),
            ((5, 0), (0, 0, 0)),
            ((0, 5), (0, 0, 5)),
            ((0, 64), (0, 1, 0)),
            ((0, 128), (0, 2, 0)),
            ((0, 130), (0, 2, 2)),
            ((3, 5), (5, 0, 0)),
            ((59, 5), (5, 0, 0)),
            ((60, 5), (4, 0, 1)),
            ((1, 126), (63, 0, 63)),
            ((1, 127), (63, 1, 0)),
            ((63, 65), (1, 1, 0)),
            ((63, 66), (1, 1, 1)),
            ((64 + 63, 66), (1, 1, 1)),
        ];
        for ((at, len), expected) in table {
            let plan = Plan::new(at, len);
            assert_eq!((plan.head.len, plan.lines, plan.tail.len), expected, "{len} bytes at {at}");
        }
        let widths = |at, len, widest| stores(at, len, widest).into_iter().map(|(_, width)| width).collect::<Vec<_>>();
        assert_eq!(widths(1, 63, 16), [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(widths(1, 63, 32), [1, 2, 4, 8, 16, 32]);
        assert_eq!(widths(0, 63, 32), [32, 16, 8, 4, 2, 1]);
        assert_eq!(widths(6, 3, 32), [2, 1]);
        assert_eq!(widths(60, 8, 64), [4, 4]);
        assert_eq!(Plan::new(15, 2).head.cover(16), Cover { skip: 15, loads: 2 });
        assert_eq!(Plan::new(15, 2).head.cover(32), Cover { skip: 15, loads: 1 });
        assert_eq!(Plan::new(15, 0).head.cover(32), Cover { skip: 15, loads: 0 });
        assert_eq!(Plan::new(0, 33).tail.cover(32), Cover { skip: 0, loads: 2 });
    }

    /// The accesses of a read by alignment ramps: each as wide as `widths` and the place allow.
    fn ramp(at: usize, len: usize, widths: &[usize]) -> usize {
        let (mut place, end, mut accesses) = (at, at + len, 0);
        while place < end {
            let fits = |width: &&usize| place.is_multiple_of(**width) && place + **width <= end;
            place += widths.iter().filter(fits).max().copied().unwrap_or(1);
            accesses += 1;
        }
        accesses
    }

    /// Our accesses ÷ those of ramps, summed over every start within a line that is not a multiple of 16.
    fn ratio(len: usize, width: usize, ramps: &[usize]) -> f64 {
        let starts = || (0..LINE).filter(|at| !at.is_multiple_of(16));
        let ours: usize = starts().map(|at| loads(at, len, width).len()).sum();
        let theirs: usize = starts().map(|at| ramp(at, len, ramps)).sum();
        f64::from(u32::try_from(ours).unwrap_or(u32::MAX)) / f64::from(u32::try_from(theirs).unwrap_or(0))
    }

    #[test]
    fn an_unaligned_read_makes_at_most_half_the_accesses_of_alignment_ramps() {
        for len in [3, 7, 15, 31, 63] {
            for width in [16, 32, 64] {
                // Bytes up to a word, words up to 16 bytes.
                let ratio = ratio(len, width, &[1, 8, 16]);
                eprintln!("{len} bytes, {width} wide: {ratio:.3}");
                assert!(ratio <= 0.5, "{len} bytes, {width} wide: {ratio}");
            }
        }
    }

    /// As gdrcopy does it. Three bytes are two accesses there, and here one, or two where they cross loads.
    #[test]
    fn an_unaligned_read_makes_about_half_the_accesses_of_ramps_through_every_width() {
        for (len, most) in [
            (3, [0.57, 0.54, 0.52]),
            (7, [0.47, 0.40, 0.37]),
            (15, [0.49, 0.37, 0.31]),
            (31, [0.59, 0.40, 0.30]),
            (63, [0.71, 0.43, 0.29]),
        ] {
            for (width, most) in [16, 32, 64].into_iter().zip(most) {
                let ratio = ratio(len, width, &[1, 2, 4, 8, 16]);
                eprintln!("{len} bytes, {width} wide: {ratio:.3}");
                assert!(ratio <= most, "{len} bytes, {width} wide: {ratio}");
            }
        }
    }
}
