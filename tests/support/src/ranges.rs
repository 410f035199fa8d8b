//! Edge cases of ranges, at which arithmetic may overflow.

use std::ops::Bound::{self, Excluded, Included, Unbounded};

const MAX: usize = usize::MAX;

/// A range of indices, in its most general form.
pub type Range = (Bound<usize>, Bound<usize>);

/// Ranges that are not within `size` bytes, or end before they start.
#[must_use]
pub fn outside(size: usize) -> Vec<Range> {
    vec![
        (Included(0), Excluded(size + 1)),
        (Included(0), Included(size)),
        (Unbounded, Excluded(size + 1)),
        (Unbounded, Included(size)),
        (Included(size), Excluded(size + 1)),
        (Included(size), Included(size)),
        (Included(size + 1), Unbounded),
        (Excluded(size), Unbounded),
        (Included(size + 1), Excluded(size + 1)),
        (Included(size - 1), Excluded(size + 1)),
        (Included(0), Excluded(MAX)),
        (Included(0), Included(MAX)),
        (Unbounded, Excluded(MAX)),
        (Unbounded, Included(MAX)),
        (Unbounded, Included(MAX - 1)),
        (Included(1), Included(MAX)),
        (Included(MAX), Unbounded),
        (Included(MAX), Excluded(MAX)),
        (Included(MAX), Included(MAX)),
        (Included(MAX), Excluded(0)),
        (Included(MAX), Included(0)),
        (Included(MAX - 1), Excluded(MAX)),
        (Excluded(MAX), Unbounded),
        (Excluded(MAX), Excluded(MAX)),
        (Excluded(MAX), Included(MAX)),
        (Excluded(MAX), Excluded(0)),
        (Excluded(MAX - 1), Included(MAX)),
        // Reversed.
        (Included(5), Excluded(3)),
        (Included(5), Included(3)),
        (Included(1), Excluded(0)),
        (Excluded(5), Excluded(5)),
        (Included(size), Excluded(0)),
    ]
}

/// Fails unless the error tells why a range of [`outside`] is invalid: it is reversed, or beyond `size` bytes.
#[track_caller]
pub fn assert_refused(error: &vkgdr::Error, range: Range, size: usize) {
    let start = match range.0 {
        Included(start) => start,
        Excluded(start) => start.saturating_add(1),
        Unbounded => 0,
    };
    let end = match range.1 {
        Included(end) => Some(end.saturating_add(1)),
        Excluded(end) => Some(end),
        Unbounded => None,
    };
    match (error, end) {
        (vkgdr::Error::ReversedRange { start: found, end: before }, Some(end)) if start > end => {
            assert_eq!((*found, *before), (start, end), "{range:?}");
            crate::assert_says(error, &["ends before it starts"]);
        }
        (vkgdr::Error::OutOfRange { size: found, .. }, end) if end.is_none_or(|end| start <= end) => {
            assert_eq!(*found, size, "{range:?}");
            crate::assert_says(error, &["out of range", &format!("has {size} bytes")]);
        }
        _ => panic!("{range:?} of {size} bytes: {error}"),
    }
}

/// Empty ranges within `size` bytes.
#[must_use]
pub fn empty(size: usize) -> Vec<Range> {
    vec![
        (Included(0), Excluded(0)),
        (Unbounded, Excluded(0)),
        (Included(size), Unbounded),
        (Included(size), Excluded(size)),
        (Excluded(size - 1), Unbounded),
        (Excluded(size - 1), Included(size - 1)),
        (Included(7), Included(6)),
    ]
}

/// Offsets and lengths that are not within `size` bytes.
#[must_use]
pub fn offsets_outside(size: usize) -> Vec<(usize, usize)> {
    vec![
        (0, size + 1),
        (1, size),
        (size, 1),
        (size - 1, 2),
        (size + 1, 0),
        (size + 1, 1),
        (MAX, 0),
        (MAX, 1),
        (MAX, 2),
        (MAX, MAX),
        (MAX - 1, 2),
        (0, MAX),
        (1, MAX),
        (size, MAX),
        (size, MAX - size + 1),
        (MAX - size + 1, size),
        (MAX / 2 + 1, MAX / 2 + 1),
    ]
}

/// Every offset and length around the borders of atoms and around the end of `size` bytes.
#[must_use]
pub fn around_atoms(size: usize, atom: usize) -> Vec<(usize, usize)> {
    let mut edges: Vec<usize> = [0, atom, 2 * atom, size / 2 / atom * atom, size / atom * atom, size]
        .iter()
        .flat_map(|edge| [edge.saturating_sub(1), *edge, edge + 1])
        .filter(|edge| *edge <= size)
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let from = |start: usize| edges.iter().filter(move |end| **end >= start).map(move |end| (start, end - start));
    edges.iter().copied().flat_map(from).collect()
}
