//! What a pool is made with.
#![forbid(unsafe_code)]

use super::classes::Classes;
use crate::{Error, MemoryKind, Result};

const MIB: usize = 1 << 20;
/// Bytes. A block is never smaller.
const SMALLEST_BLOCK: usize = 64 << 10;
/// What is larger is taken for a mistake: nothing else depends on these two.
const LARGEST_BLOCK: usize = 128 << 30;
const LARGEST_PIECE: usize = 1 << 30;
/// Both sides see a block through page tables, whose smallest pages have 4 KiB.
const LARGEST_ALIGNMENT: usize = 4 << 10;
/// 64 classes for each doubling.
const MOST_LEADING_BITS: u32 = 6;

/// What a [`Pool`](super::Pool) is made with. All sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PoolOptions {
    kind: MemoryKind,
    block_len: usize,
    largest_piece: usize,
    leading_bits: u32,
    alignment: usize,
}

impl Default for PoolOptions {
    /// Mapped memory, with the defaults of every option.
    fn default() -> Self {
        Self::new(MemoryKind::default())
    }
}

impl PoolOptions {
    /// A pool of a kind of memory, with the defaults of every other option.
    pub const fn new(kind: MemoryKind) -> Self {
        Self { kind, block_len: 32 * MIB, largest_piece: 4 * MIB, leading_bits: 2, alignment: 64 }
    }

    /// The size of the blocks that the pool asks the drivers for, from 64 KiB to 128 GiB; 32 MiB by default. It is rounded
    /// up to whole alignments. Less than 4 MiB needs a smaller [`largest_piece`](Self::largest_piece), too. Where there is
    /// no room for a whole block any more, smaller ones are made.
    pub const fn block_len(mut self, bytes: usize) -> Self {
        self.block_len = bytes;
        self
    }

    /// The largest piece of a block, at least 256 bytes and at most a block and 1 GiB; 4 MiB by default. It is rounded up
    /// to whole alignments. What is larger gets an allocation of its own, which is freed when it is dropped.
    pub const fn largest_piece(mut self, bytes: usize) -> Self {
        self.largest_piece = bytes;
        self
    }

    /// How finely sizes are told apart, 0 to 6; 2 by default. A length is rounded up to the next number of which at most
    /// so many bits after the first are set: with 2 bits there are 4 sizes for each doubling and a piece wastes less than
    /// 20 % of its size, with 4 bits 16 sizes and less than 6 %. More sizes keep more free memory in small lots.
    pub const fn leading_bits(mut self, bits: u32) -> Self {
        self.leading_bits = bits;
        self
    }

    /// What the addresses of pieces are multiples of, on both sides: a power of two from 64 to 4096; 64 by default.
    /// With the default, pieces of 1 KiB and more are aligned to 256 bytes on the device. The host's address has at
    /// least the alignment of Vulkan's mapping, 64 bytes (`minMemoryMapAlignment`), whatever is asked for.
    pub const fn alignment(mut self, bytes: usize) -> Self {
        self.alignment = bytes;
        self
    }

    pub(super) const fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The size classes and the length of a block, for memory whose flushes are rounded to `granule` bytes.
    pub(super) fn plan(&self, granule: usize) -> Result<(Classes, usize)> {
        let refuse = |option, value, allowed| Err(Error::PoolOption { option, value, allowed });
        let Self { block_len, largest_piece, leading_bits, alignment, .. } = *self;
        if leading_bits > MOST_LEADING_BITS {
            return refuse("leading_bits", leading_bits as usize, "0 to 6");
        }
        if !alignment.is_power_of_two() || !(64..=LARGEST_ALIGNMENT).contains(&alignment) {
            return refuse("alignment", alignment, "a power of two from 64 to 4096");
        }
        // Vulkan's atoms are powers of two (VkPhysicalDeviceLimits::nonCoherentAtomSize): no flush of a piece leaves it.
        let alignment = alignment.max(granule);
        if !(SMALLEST_BLOCK..=LARGEST_BLOCK).contains(&block_len) {
            return refuse("block_len", block_len, "from 64 KiB to 128 GiB");
        }
        let block_len = block_len.next_multiple_of(alignment);
        if !(256..=block_len.min(LARGEST_PIECE)).contains(&largest_piece) {
            return refuse("largest_piece", largest_piece, "at least 256 and at most a block and 1 GiB");
        }
        let largest = largest_piece.next_multiple_of(alignment);
        let classes = Classes::new(leading_bits, alignment, largest);
        // The largest class is rounded up, too.
        let largest_size = classes.size(classes.count() - 1);
        Ok((classes, block_len.max(largest_size.next_multiple_of(alignment))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_be_are_refused_by_name() {
        let base = PoolOptions::default();
        for (name, options) in [
            ("leading_bits", base.leading_bits(7)),
            ("alignment", base.alignment(0)),
            ("alignment", base.alignment(32)),
            ("alignment", base.alignment(96)),
            ("alignment", base.alignment(8 << 10)),
            ("block_len", base.block_len(0)),
            ("block_len", base.block_len(usize::MAX)),
            ("largest_piece", base.largest_piece(0)),
            ("largest_piece", base.largest_piece(usize::MAX)),
            ("largest_piece", base.block_len(1 << 20)),
        ] {
            let error = options.plan(64).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|text| text.contains(name)), "{options:?}: {error:?}");
        }
    }

    #[test]
    fn a_block_holds_the_largest_piece() -> Result<()> {
        for bits in 0..=6 {
            for (block, largest) in [(64 << 10, 64 << 10), (100_000, 65_537), (1 << 20, 700_001)] {
                for alignment in [64, 256, 4096] {
                    let options = PoolOptions::default().leading_bits(bits).block_len(block).largest_piece(largest);
                    let (classes, len) = options.alignment(alignment).plan(256)?;
                    let size = classes.of(largest).map(|class| classes.size(class));
                    assert!(size.is_some_and(|size| (largest..=len).contains(&size)), "{options:?}: {size:?}");
                    assert!(len.is_multiple_of(alignment) && len >= block);
                }
            }
        }
        Ok(())
    }
}
