//! Checks and resolves ranges of bytes, without arithmetic that can overflow.
#![forbid(unsafe_code)]

use std::ops::{Bound, RangeBounds};

use crate::{Error, Result};

/// Fails unless `len` bytes at `offset` lie within `size` bytes.
#[inline]
pub(crate) fn check(offset: usize, len: usize, size: usize) -> Result<()> {
    if offset <= size && len <= size - offset { Ok(()) } else { Err(Error::OutOfRange { offset, len, size }) }
}

/// The offset and length of a range of indices within `size` bytes.
///
/// # Errors
///
/// [`Error::ReversedRange`] when the range ends before it starts, [`Error::OutOfRange`] when it is not within `size`.
pub(crate) fn resolve(range: &impl RangeBounds<usize>, size: usize) -> Result<(usize, usize)> {
    // What does not fit a `usize` is beyond every size, which is at most `isize::MAX`.
    let offset = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => size,
    };
    if offset <= end && end <= size {
        Ok((offset, end - offset))
    } else if offset > end && !matches!(range.end_bound(), Bound::Unbounded) {
        Err(Error::ReversedRange { start: offset, end })
    } else {
        Err(Error::OutOfRange { offset, len: end.saturating_sub(offset), size })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers near the places where arithmetic goes wrong.
    fn edge() -> impl Strategy<Value = usize> {
        prop_oneof![0..8_usize, (usize::MAX - 8)..=usize::MAX, any::<usize>()]
    }

    #[test]
    fn the_error_says_whether_a_range_is_reversed_or_out_of_range() {
        let refused = |range: (Bound<usize>, Bound<usize>)| resolve(&range, 10).expect_err("refused");
        let reversed = refused((Bound::Included(5), Bound::Excluded(3)));
        assert!(matches!(reversed, Error::ReversedRange { start: 5, end: 3 }), "{reversed}");
        for (start, end, len) in [(5, Bound::Excluded(12), 7), (12, Bound::Excluded(12), 0), (12, Bound::Unbounded, 0)]
        {
            let error = refused((Bound::Included(start), end));
            let expected =
                matches!(error, Error::OutOfRange { offset, len: l, size: 10 } if (offset, l) == (start, len));
            assert!(expected, "{error}");
        }
    }

    proptest! {
        #[test]
        fn check_agrees_with_unbounded_arithmetic(offset in edge(), len in edge(), size in edge()) {
            let within = offset as u128 + len as u128 <= size as u128;
            prop_assert_eq!(check(offset, len, size).is_ok(), within);
        }

        #[test]
        fn resolve_agrees_with_unbounded_arithmetic(start in edge(), end in edge(), size in edge()) {
            let size = size.min(isize::MAX as usize);
            let (s, e) = (start as u128, end as u128);
            let expect = |s: u128, e: u128| (s <= e && e <= size as u128).then(|| (s, e - s));
            let got = |r: Result<(usize, usize)>| r.ok().map(|(o, l)| (o as u128, l as u128));
            prop_assert_eq!(got(resolve(&(start..end), size)), expect(s, e));
            prop_assert_eq!(got(resolve(&(start..=end), size)), expect(s, e + 1));
            prop_assert_eq!(got(resolve(&(start..), size)), expect(s, size as u128));
            prop_assert_eq!(got(resolve(&(..end), size)), expect(0, e));
            prop_assert_eq!(got(resolve(&(..), size)), expect(0, size as u128));
            let open = (Bound::Excluded(start), Bound::Included(end));
            prop_assert_eq!(got(resolve(&open, size)), expect(s + 1, e + 1));
        }
    }
}
