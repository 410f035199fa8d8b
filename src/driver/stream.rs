//! Streams that this crate creates, which belong to the context that was current then, and the patterns that CUDA fills memory
//! with.
#![expect(unsafe_code, reason = "passes its live handles to the driver")]

use std::ffi::c_uint;
use std::ptr;

use cudarc::driver::sys::{self, CUstream};

use super::Handle;
use super::cuda::{call, cuda};
use crate::Result;
use crate::report::log_failure;

/// A stream that is not ordered with any other. Its context must be current in every call.
#[derive(Debug)]
pub(crate) struct OwnedStream(Handle<CUstream>);

impl OwnedStream {
    pub(crate) fn new() -> Result<Self> {
        const FLAGS: c_uint = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        let (cuda, mut stream) = (cuda()?, ptr::null_mut());
        call!(cuda, cuStreamCreate(&raw mut stream, FLAGS))?;
        Ok(Self(Handle(stream)))
    }

    pub(crate) const fn raw(&self) -> CUstream {
        self.0.0
    }

    /// Waits for all work of the stream.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live.
        unsafe { cuda()?.stream_synchronize(self.0.0) }
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        log_failure("a CUDA stream", cuda().and_then(|cuda| call!(cuda, cuStreamDestroy_v2(self.0.0))));
    }
}

/// A value that a fill repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillPattern {
    /// A byte.
    One(u8),
    /// Two bytes.
    Two(u16),
    /// Four bytes.
    Four(u32),
}

impl FillPattern {
    /// The smallest value that repeats to `pattern`; `None` if CUDA cannot fill with it at this address. The address
    /// must be a multiple of the value's size (`cuMemsetD16Async`, `cuMemsetD32Async`).
    #[must_use]
    pub fn of(pattern: &[u8], address: u64) -> Option<Self> {
        let one = || repeated(pattern).map(|[byte]| Self::One(byte));
        let two = || repeated(pattern).map(u16::from_ne_bytes).map(Self::Two);
        let four = || repeated(pattern).map(u32::from_ne_bytes).map(Self::Four);
        one().or_else(two).or_else(four).filter(|unit| address.is_multiple_of(unit.size() as u64))
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Two(_) => 2,
            Self::Four(_) => 4,
        }
    }
}

/// The bytes that repeat to the pattern.
fn repeated<const SIZE: usize>(pattern: &[u8]) -> Option<[u8; SIZE]> {
    let (units, rest) = pattern.as_chunks();
    let first = units.first()?;
    (rest.is_empty() && units.iter().all(|unit| unit == first)).then_some(*first)
}

#[cfg(test)]
mod tests {
    use super::FillPattern::{self, Four, One, Two};

    #[test]
    fn patterns_are_made_of_the_smallest_value_that_there_is() {
        let (two, four) = (Two(u16::from_ne_bytes([1, 2])), Four(u32::from_ne_bytes([1, 2, 3, 4])));
        let known: [(&[u8], u64, Option<FillPattern>); 12] = [
            (&[7], 1, Some(One(7))),
            (&[0; 8], 3, Some(One(0))),
            (&[9; 3], 0, Some(One(9))),
            (&[1, 2, 1, 2, 1, 2], 2, Some(two)),
            (&[1, 2], 3, None),
            (&[1, 2, 3, 4], 4, Some(four)),
            (&[1, 2, 3, 4, 1, 2, 3, 4], 8, Some(four)),
            (&[1, 2, 3, 4], 2, None),
            (&[1, 2, 3], 0, None),
            (&[1, 2, 3, 4, 1, 2], 0, None),
            (&[1, 2, 3, 4, 5, 6, 7, 8], 0, None),
            (&[], 0, None),
        ];
        for (pattern, address, expected) in known {
            assert_eq!(FillPattern::of(pattern, address), expected, "{pattern:?} at {address}");
        }
    }
}
