//! The patterns that CUDA can fill memory with: a value of one, two or four bytes. Calls no driver.
#![forbid(unsafe_code)]

/// A value that a fill repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillPattern {
    One(u8),
    Two(u16),
    Four(u32),
}

impl FillPattern {
    /// The smallest value that repeats to `pattern`; `None` if CUDA cannot fill with it at this address, which must be a
    /// multiple of the value's size (`cuMemsetD16Async`, `cuMemsetD32Async`).
    pub(crate) fn of(pattern: &[u8], address: u64) -> Option<Self> {
        let one = || repeated(pattern).map(|[byte]| Self::One(byte));
        let two = || repeated(pattern).map(u16::from_ne_bytes).map(Self::Two);
        let four = || repeated(pattern).map(u32::from_ne_bytes).map(Self::Four);
        one().or_else(two).or_else(four).filter(|unit| address.is_multiple_of(unit.size() as u64))
    }

    /// The size in bytes.
    pub(crate) const fn size(self) -> usize {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_are_made_of_the_smallest_value_that_there_is() {
        let four = u32::from_ne_bytes([1, 2, 3, 4]);
        let known: [(&[u8], Option<FillPattern>); 9] = [
            (&[7], Some(FillPattern::One(7))),
            (&[0; 8], Some(FillPattern::One(0))),
            (&[9; 3], Some(FillPattern::One(9))),
            (&[1, 2, 1, 2, 1, 2], Some(FillPattern::Two(u16::from_ne_bytes([1, 2])))),
            (&[1, 2, 3, 4], Some(FillPattern::Four(four))),
            (&[1, 2, 3, 4, 1, 2, 3, 4], Some(FillPattern::Four(four))),
            (&[1, 2, 3], None),
            (&[1, 2, 3, 4, 5, 6, 7, 8], None),
            (&[], None),
        ];
        for (pattern, expected) in known {
            assert_eq!(FillPattern::of(pattern, 0x1000), expected, "{pattern:?}");
        }
    }

    #[test]
    fn a_value_begins_at_a_multiple_of_its_size() {
        let begins = |pattern: &[u8]| [0, 1, 2, 3, 4].map(|address| FillPattern::of(pattern, address).is_some());
        assert_eq!(begins(&[5]), [true; 5]);
        assert_eq!(begins(&[5, 6]), [true, false, true, false, true]);
        assert_eq!(begins(&[5, 6, 7, 8]), [true, false, false, false, true]);
    }

    proptest! {
        #[test]
        fn repeating_the_value_gives_the_pattern(pattern in prop::collection::vec(0..2_u8, 1..24)) {
            let Some(unit) = FillPattern::of(&pattern, 0) else { return Ok(()) };
            let bytes = match unit {
                FillPattern::One(value) => vec![value],
                FillPattern::Two(value) => value.to_ne_bytes().to_vec(),
                FillPattern::Four(value) => value.to_ne_bytes().to_vec(),
            };
            prop_assert_eq!(bytes.len(), unit.size());
            prop_assert_eq!(bytes.repeat(pattern.len() / unit.size()), pattern);
        }
    }
}
