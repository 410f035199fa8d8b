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
}
