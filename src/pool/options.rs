//! [`PoolOptions`], and the size classes that follow from them.
#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

use crate::{Error, MemoryKind, Result};

/// The binary logarithm of the smallest chunk's size: a cache line, so that no two chunks share one.
const SMALLEST: u32 = 6;
/// In bytes. Larger blocks and chunks are taken for mistakes.
const BLOCKS: RangeInclusive<usize> = 64 << 10..=128 << 30;
const LARGEST_CHUNK: usize = 1 << 30;
/// Both sides map a block through page tables, with pages of at least 4 KiB.
const ALIGNMENTS: RangeInclusive<usize> = 64..=4 << 10;

/// Options of a [`Pool`](super::Pool). All sizes are in bytes.
///
/// A pool divides blocks into chunks, one for each memory. [`Pool::new`](super::Pool::new) checks the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PoolOptions {
    pub(super) kind: MemoryKind,
    block_len: usize,
    largest_chunk: usize,
    classes_per_doubling: u32,
    alignment: usize,
}

impl Default for PoolOptions {
    /// Mapped memory, and the defaults of all options.
    fn default() -> Self {
        Self::new(MemoryKind::default())
    }
}

impl PoolOptions {
    /// A kind of memory, and the defaults of all other options.
    pub const fn new(kind: MemoryKind) -> Self {
        Self { kind, block_len: 32 << 20, largest_chunk: 4 << 20, classes_per_doubling: 4, alignment: 64 }
    }

    /// The size of the blocks that the pool allocates from the drivers, 64 KiB to 128 GiB; 32 MiB by default.
    ///
    /// It is rounded up to a multiple of the alignment and to at least the largest size class. Less than 4 MiB requires
    /// a smaller [`largest_chunk`](Self::largest_chunk), too. When memory runs out, the pool allocates smaller blocks.
    pub const fn block_len(mut self, bytes: usize) -> Self {
        self.block_len = bytes;
        self
    }

    /// The longest allocation served from a block: from 256 bytes to the size of a block, at most 1 GiB; 4 MiB by
    /// default.
    ///
    /// It is rounded up to a multiple of the alignment. Longer memory gets a dedicated allocation, which is freed when
    /// it is dropped.
    pub const fn largest_chunk(mut self, bytes: usize) -> Self {
        self.largest_chunk = bytes;
        self
    }

    /// The number of size classes for each doubling of the length: a power of two from 1 to 64; 4 by default.
    ///
    /// A length is rounded up to a multiple of the alignment, and then to the size of its class. With 4 classes for each
    /// doubling, rounding wastes less than 20 % of a chunk, with 16 less than 6 %; the alignment may waste more. Free
    /// chunks serve only their own class: more classes can leave more memory free but unused.
    pub const fn classes_per_doubling(mut self, classes: u32) -> Self {
        self.classes_per_doubling = classes;
        self
    }

    /// The alignment of chunks: a power of two from 64 to 4096; 64 by default. It is raised to Vulkan's
    /// `nonCoherentAtomSize`, so that no flush of one chunk touches another.
    ///
    /// Device addresses are multiples of it, unless the driver aligns the block or longer memory to less. Without Vulkan, CUDA
    /// aligns them to 256 bytes at least. Offsets from the block's host mapping are multiples, too; Vulkan guarantees that
    /// mapping an alignment of 64 bytes only (`minMemoryMapAlignment`). Ask for 256 where a kernel or a library needs the
    /// alignment of `cudaMalloc`. Chunks need not be aligned to more than this value, however long they are.
    pub const fn alignment(mut self, bytes: usize) -> Self {
        self.alignment = bytes;
        self
    }

    /// The size classes and the length of a block, for memory whose sizes are multiples of `unit`.
    pub(super) fn plan(&self, unit: usize) -> Result<(Classes, usize)> {
        let refuse = |option, value, allowed| Err(Error::PoolOption { option, value, allowed });
        let Self { block_len, largest_chunk, classes_per_doubling, alignment, .. } = *self;
        if !classes_per_doubling.is_power_of_two() || classes_per_doubling > 1 << SMALLEST {
            let allowed = "a power of two from 1 to 64";
            return refuse("classes_per_doubling", classes_per_doubling as usize, allowed);
        }
        if !alignment.is_power_of_two() || !ALIGNMENTS.contains(&alignment) {
            return refuse("alignment", alignment, "a power of two from 64 to 4096");
        }
        // So that no flush leaves its chunk. Atoms are powers of two (VkPhysicalDeviceLimits::nonCoherentAtomSize).
        let alignment = alignment.max(unit);
        if !BLOCKS.contains(&block_len) {
            return refuse("block_len", block_len, "from 64 KiB to 128 GiB");
        }
        let block_len = block_len.next_multiple_of(alignment);
        if !(256..=block_len.min(LARGEST_CHUNK)).contains(&largest_chunk) {
            return refuse("largest_chunk", largest_chunk, "at least 256, and at most the size of a block and 1 GiB");
        }
        let largest = largest_chunk.next_multiple_of(alignment);
        let classes = Classes::new(classes_per_doubling.ilog2(), alignment, largest);
        // The largest size class may be larger than the largest length.
        let largest_size = classes.size(classes.count() - 1);
        Ok((classes, block_len.max(largest_size)))
    }
}

/// The size classes of a pool: a few for each doubling, from 64 bytes on, evenly spaced. Class 0 is the smallest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Classes {
    /// Each doubling has `1 << bits` classes.
    bits: u32,
    alignment: usize,
    largest: usize,
}

impl Classes {
    /// Classes for 1 to `largest` bytes. `bits` is at most [`SMALLEST`], `alignment` is a power of two, and `largest`
    /// is a multiple of `alignment` and at least the smallest chunk's size.
    pub(super) const fn new(bits: u32, alignment: usize, largest: usize) -> Self {
        debug_assert!(bits <= SMALLEST && alignment.is_power_of_two());
        debug_assert!(largest.is_multiple_of(alignment) && largest >= 1 << SMALLEST);
        Self { bits, alignment, largest }
    }

    /// The class for `len` bytes; `None` for 0 and for more than the largest length.
    #[inline]
    pub(super) const fn of(&self, len: usize) -> Option<usize> {
        if len == 0 || len > self.largest {
            return None;
        }
        // The index of the last byte, after rounding up to the alignment.
        let last = (len - 1) | (self.alignment - 1);
        if last < 1 << SMALLEST {
            return Some(0);
        }
        let doubling = last.ilog2();
        // The leading bit, which all sizes of the doubling share, and the step within the doubling.
        let leading = last >> (doubling - self.bits);
        Some((((doubling - SMALLEST) as usize) << self.bits) + leading - (1 << self.bits) + 1)
    }

    /// The bytes of a chunk of a class: a multiple of the alignment for each class that [`of`](Self::of) returns.
    pub(super) const fn size(&self, class: usize) -> usize {
        let Some(rank) = class.checked_sub(1) else { return 1 << SMALLEST };
        let doubling = (rank >> self.bits) + SMALLEST as usize;
        let step = rank & ((1 << self.bits) - 1);
        ((1 << self.bits) + step + 1) << (doubling - self.bits as usize)
    }

    /// The number of classes.
    pub(super) fn count(&self) -> usize {
        self.of(self.largest).map_or(0, |class| class + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGEST: usize = 8 << 20;

    proptest! {
        /// Against the smallest size that fits, found by trying all.
        #[test]
        fn a_length_gets_the_smallest_aligned_size_that_holds_it(
            (bits, alignment) in (0..=6_u32, 6..=16_u32),
            len in prop_oneof![1..5000_usize, 1..=LARGEST],
        ) {
            let classes = Classes::new(bits, 1 << alignment, LARGEST);
            let sizes = (0..classes.count()).map(|class| classes.size(class));
            let naive = sizes.filter(|size| size.is_multiple_of(classes.alignment)).find(|&size| size >= len);
            prop_assert_eq!(classes.of(len).map(|class| classes.size(class)), naive);
        }

        #[test]
        fn a_block_holds_the_largest_chunk(
            (bits, alignment) in (0..=6_u32, 6..=12_u32),
            (block, largest) in (65_536..1_048_576_usize, 256..=65_536_usize),
        ) {
            let options = PoolOptions::default().classes_per_doubling(1 << bits).alignment(1 << alignment);
            let (classes, len) = options.block_len(block).largest_chunk(largest).plan(256)?;
            let size = classes.of(largest).map(|class| classes.size(class));
            prop_assert!(size.is_some_and(|size| (largest..=len).contains(&size)), "{size:?}");
            prop_assert!(len.is_multiple_of(1 << alignment) && len >= block);
        }
    }

    #[test]
    fn four_classes_for_each_doubling() {
        let classes = Classes::new(2, 64, 1024);
        let sizes: Vec<_> = (0..classes.count()).map(|class| classes.size(class)).collect();
        assert_eq!(sizes[..4], [64, 80, 96, 112]);
        assert_eq!(sizes[8..], [256, 320, 384, 448, 512, 640, 768, 896, 1024]);
        assert_eq!((classes.of(0), classes.of(1), classes.of(1024), classes.of(1025)), (None, Some(0), Some(16), None));
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let base = PoolOptions::default();
        for (name, options) in [
            ("classes_per_doubling", base.classes_per_doubling(0)),
            ("classes_per_doubling", base.classes_per_doubling(3)),
            ("classes_per_doubling", base.classes_per_doubling(128)),
            ("alignment", base.alignment(0)),
            ("alignment", base.alignment(32)),
            ("alignment", base.alignment(96)),
            ("alignment", base.alignment(8 << 10)),
            ("block_len", base.block_len(0)),
            ("block_len", base.block_len(usize::MAX)),
            ("largest_chunk", base.largest_chunk(0)),
            ("largest_chunk", base.largest_chunk(usize::MAX)),
            ("largest_chunk", base.block_len(1 << 20)),
        ] {
            let error = options.plan(64).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|text| text.contains(name)), "{options:?}: {error:?}");
        }
    }
}
