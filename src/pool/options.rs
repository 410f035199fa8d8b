//! The options of a pool, and the plan that follows from them.
#![forbid(unsafe_code)]

use super::classes::Classes;
use crate::{Error, MemoryKind, Result};

const MIB: usize = 1 << 20;
/// The smallest block, in bytes.
const SMALLEST_BLOCK: usize = 64 << 10;
/// The largest block and chunk, in bytes: larger values are taken for mistakes.
const LARGEST_BLOCK: usize = 128 << 30;
const LARGEST_CHUNK: usize = 1 << 30;
/// Both sides map a block through page tables, with pages of at least 4 KiB.
const LARGEST_ALIGNMENT: usize = 4 << 10;
/// The sizes of a doubling from 64 bytes on are whole bytes apart.
const MAX_CLASSES_PER_DOUBLING: u32 = 64;

/// Options of a [`Pool`](super::Pool). All sizes are in bytes.
///
/// A pool divides blocks into chunks, one for each memory. [`Pool::new`](super::Pool::new) checks the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PoolOptions {
    kind: MemoryKind,
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
        Self { kind, block_len: 32 * MIB, largest_chunk: 4 * MIB, classes_per_doubling: 4, alignment: 64 }
    }

    /// The size of the blocks that the pool allocates from the drivers, 64 KiB to 128 GiB; 32 MiB by default.
    ///
    /// It is rounded up to a multiple of the alignment and to at least the largest size class. Less than 4 MiB requires
    /// a smaller [`largest_chunk`](Self::largest_chunk), too. When memory runs out, the pool allocates smaller blocks.
    pub const fn block_len(mut self, bytes: usize) -> Self {
        self.block_len = bytes;
        self
    }

    /// The longest allocation that is served from a block: from 256 bytes to the size of a block, at most 1 GiB; 4 MiB
    /// by default.
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
    /// Device addresses are multiples of it. So are offsets from the block's host mapping, of which Vulkan guarantees
    /// an alignment of 64 bytes only (`minMemoryMapAlignment`). Ask for 256 where a kernel or a library needs the
    /// alignment of `cudaMalloc`: chunks need not be aligned to more than this value, however long they are.
    pub const fn alignment(mut self, bytes: usize) -> Self {
        self.alignment = bytes;
        self
    }

    pub(super) const fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The size classes and the length of a block, for memory with atoms of `granularity` bytes.
    pub(super) fn plan(&self, granularity: usize) -> Result<(Classes, usize)> {
        let refuse = |option, value, allowed| Err(Error::PoolOption { option, value, allowed });
        let Self { block_len, largest_chunk, classes_per_doubling, alignment, .. } = *self;
        if !classes_per_doubling.is_power_of_two() || classes_per_doubling > MAX_CLASSES_PER_DOUBLING {
            let allowed = "a power of two from 1 to 64";
            return refuse("classes_per_doubling", classes_per_doubling as usize, allowed);
        }
        if !alignment.is_power_of_two() || !(64..=LARGEST_ALIGNMENT).contains(&alignment) {
            return refuse("alignment", alignment, "a power of two from 64 to 4096");
        }
        // So that no flush leaves its chunk. Atoms are powers of two (VkPhysicalDeviceLimits::nonCoherentAtomSize).
        let alignment = alignment.max(granularity);
        if !(SMALLEST_BLOCK..=LARGEST_BLOCK).contains(&block_len) {
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
        Ok((classes, block_len.max(largest_size.next_multiple_of(alignment))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_block_holds_the_largest_chunk() -> Result<()> {
        for bits in 0..=6 {
            for (block, largest) in [(64 << 10, 64 << 10), (100_000, 65_537), (1 << 20, 700_001)] {
                for alignment in [64, 256, 4096] {
                    let options =
                        PoolOptions::default().classes_per_doubling(1 << bits).block_len(block).largest_chunk(largest);
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
