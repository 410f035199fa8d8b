//! Numbers decoded from the fuzzer's bytes.
#![forbid(unsafe_code)]

/// The remaining bytes, followed by zeros.
#[derive(Default)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit.max(1)
    }

    pub(crate) fn word(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }

    /// An offset or a size: an edge case, or any.
    pub(crate) fn number(&mut self, len: usize) -> usize {
        match self.byte() % 8 {
            0 => 0,
            1 => len,
            2 => len.wrapping_add(1),
            3 => len / 2,
            4 => usize::MAX - self.below(4),
            5 => usize::MAX / 2 + self.below(3),
            6 => self.below(len.max(1)),
            _ => self.word(),
        }
    }
}
