//! How many hold a piece.
//!
//! `tests/handover` runs this file under loom, with loom's atomics in the place of the standard library's.
#![forbid(unsafe_code)]

use super::atomic::{AtomicU32, Ordering};

/// A count of shares. Each is given up once.
#[derive(Debug)]
pub(crate) struct Shares(AtomicU32);

impl Shares {
    /// So many that no thread can make the others before this one stops.
    const MOST: u32 = u32::MAX / 2;

    pub(crate) fn one() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Whether the caller's share is the only one. If so it stays that, since nobody else could make another, and what the
    /// others did before they gave up theirs is seen.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// Makes another share. For who has one.
    pub(crate) fn add(&self) {
        // Relaxed: whoever gets the share gets it from the caller.
        if self.0.fetch_add(1, Ordering::Relaxed) > Self::MOST {
            std::process::abort();
        }
    }

    /// Gives the caller's share up. Tells whether it was the last: then what the others did before is seen.
    #[inline]
    pub(crate) fn give_up(&self) -> bool {
        // The only share need not be counted: nobody will look.
        self.is_one() || self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
