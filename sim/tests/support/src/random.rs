//! Reproducible pseudo-random numbers and bytes.

/// Pseudo-random numbers, the same in every run (splitmix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Each seed gives another sequence.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or(0)
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// An offset and a non-zero length within `size` bytes.
    pub fn range_within(&mut self, size: usize) -> (usize, usize) {
        let offset = self.below(size);
        (offset, 1 + self.below(size - offset))
    }
}

/// Bytes that differ from their neighbours and from those of other seeds.
#[must_use]
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    Random::new(seed).bytes(len)
}
