//! What the threads of a pool share: its blocks, the spans in them, and a list of the free chunks of each class.
//!
//! A span belongs to one class and is carved into chunks on demand. A span of which every chunk is free is dissolved when
//! another class needs its room. Nothing here calls a driver: the caller adds blocks, and drops what is evicted without a
//! lock.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use super::classes::Classes;
use crate::access::copy::HostAccess;
use crate::memory::block::Block;
use crate::memory::chunk::{Chunk, FreeChunk};
use crate::report::report;
use crate::stream::binding::Binding;

/// Bytes of a span of small chunks, about.
const SPAN_LEN: usize = 64 << 10;

/// Chunks and blocks that the arena does not keep. Dropping them may call the drivers.
#[derive(Debug, Default)]
pub(super) struct Evicted {
    chunks: Vec<FreeChunk>,
    /// Unused blocks, which the device has finished with.
    idle_blocks: Vec<Arc<Block>>,
    /// Blocks that go with the last chunk in use.
    used_blocks: Vec<Arc<Block>>,
}

impl Drop for Evicted {
    fn drop(&mut self) {
        // Each holds its block.
        self.chunks.clear();
        for block in self.idle_blocks.drain(..).filter_map(Arc::into_inner) {
            if let Err(error) = block.release(&Binding::immediate()) {
                report!(Warn, "releasing a block of a pool: {error}");
            }
        }
    }
}

/// The free ranges of a block, joined where they touch.
///
/// A linear search: a block has tens to hundreds of spans, which come and go rarely.
#[derive(Debug)]
struct FreeRanges {
    /// Length by offset.
    free: BTreeMap<usize, usize>,
    len: usize,
}

impl FreeRanges {
    /// A block of `len` bytes, all of it free.
    fn new(len: usize) -> Self {
        Self { free: BTreeMap::from([(0, len)]), len }
    }

    /// The offset of `len` bytes that were free, in the smallest range that has them.
    fn take(&mut self, len: usize) -> Option<usize> {
        let fitting = self.free.iter().filter(|&(_, &free)| free >= len);
        let (&offset, &free) = fitting.min_by_key(|&(_, free)| free)?;
        self.free.remove(&offset);
        if free > len {
            self.free.insert(offset + len, free - len);
        }
        Some(offset)
    }

    /// Gives back what [`take`](Self::take) gave.
    fn give(&mut self, offset: usize, len: usize) {
        let (mut start, mut end) = (offset, offset + len);
        if let Some((&before, &free)) = self.free.range(..offset).next_back() {
            debug_assert!(before + free <= offset, "given back twice");
            if before + free == offset {
                start = before;
            }
        }
        debug_assert!(self.free.range(offset..end).next().is_none(), "given back twice");
        if let Some(free) = self.free.remove(&end) {
            end += free;
        }
        self.free.insert(start, end - start);
    }

    /// Whether all of the block is free.
    fn is_whole(&self) -> bool {
        self.free.get(&0) == Some(&self.len)
    }
}

/// A block and the ranges of it that belong to no span.
#[derive(Debug)]
struct ArenaBlock {
    block: Arc<Block>,
    host_access: HostAccess,
    free: FreeRanges,
    len: usize,
}

#[derive(Debug)]
struct Span {
    block: usize,
    offset: usize,
    len: usize,
    class: usize,
    /// Chunks that were made, of at most `capacity`, and how many of them are free here.
    carved: usize,
    free: usize,
    capacity: usize,
}

impl Span {
    const fn is_idle(&self) -> bool {
        self.free == self.carved
    }
}

#[derive(Debug, Default)]
struct FreeList {
    chunks: Vec<FreeChunk>,
    /// The span from which more can be carved.
    carving: Option<usize>,
}

/// The blocks of a pool.
#[derive(Debug)]
pub(super) struct Arena {
    classes: Classes,
    free_lists: Vec<FreeList>,
    /// Blocks and spans keep their indices; empty places are used again.
    blocks: Vec<Option<ArenaBlock>>,
    spans: Vec<Option<Span>>,
    vacant_spans: Vec<usize>,
    idle_spans: usize,
    managed_bytes: usize,
    free_chunks: usize,
    /// Whether free chunks are kept.
    holding: bool,
    /// Whether the last clone of the pool was dropped.
    closed: bool,
}

impl Arena {
    pub(super) fn new(classes: Classes) -> Self {
        Self {
            classes,
            free_lists: (0..classes.count()).map(|_| FreeList::default()).collect(),
            blocks: Vec::new(),
            spans: Vec::new(),
            vacant_spans: Vec::new(),
            idle_spans: 0,
            managed_bytes: 0,
            free_chunks: 0,
            holding: true,
            closed: false,
        }
    }

    /// The bytes of all blocks.
    pub(super) const fn managed_bytes(&self) -> usize {
        self.managed_bytes
    }

    /// The number of free chunks here.
    pub(super) const fn free_chunks(&self) -> usize {
        self.free_chunks
    }

    pub(super) const fn keeps_free_chunks(&self) -> bool {
        self.holding && !self.closed
    }

    /// Adds up to `count` free chunks to `into`, as many as there are without a new block. Tells whether there was any.
    pub(super) fn take(&mut self, class: usize, count: usize, into: &mut Vec<FreeChunk>, out: &mut Evicted) -> bool {
        let before = into.len();
        self.take_free(class, count, into);
        if into.len() == before {
            if self.free_lists[class].carving.is_none() && !self.open_span(class) && self.idle_spans > 0 {
                self.dissolve(out);
                self.open_span(class);
            }
            self.carve(class, count, into);
        }
        into.len() > before
    }

    fn take_free(&mut self, class: usize, count: usize, into: &mut Vec<FreeChunk>) {
        let free = &mut self.free_lists[class].chunks;
        let rest = free.len() - free.len().min(count);
        self.free_chunks -= free.len() - rest;
        for chunk in free.drain(rest..) {
            if let Some(Some(span)) = self.spans.get_mut(chunk.span() as usize) {
                self.idle_spans -= usize::from(span.is_idle());
                span.free -= 1;
            }
            into.push(chunk);
        }
    }

    /// Makes new chunks of the span that is being carved.
    fn carve(&mut self, class: usize, count: usize, into: &mut Vec<FreeChunk>) {
        let size = self.classes.size(class);
        let Some(place) = self.free_lists[class].carving else { return };
        let Some(Some(span)) = self.spans.get_mut(place) else { return };
        let Some(Some(block)) = self.blocks.get(span.block) else { return };
        let count = count.min(span.capacity - span.carved);
        if count == 0 {
            return;
        }
        self.idle_spans -= usize::from(span.is_idle());
        for _ in 0..count {
            let offset = span.offset + span.carved * size;
            into.push(Chunk::new(block.block.clone(), offset, block.host_access, as_u32(place), as_u16(class)));
            span.carved += 1;
        }
        if span.carved == span.capacity {
            self.free_lists[class].carving = None;
        }
    }

    /// The bytes of a span of a class.
    pub(super) fn span_len(&self, class: usize) -> usize {
        let size = self.classes.size(class);
        (SPAN_LEN / size).max(1) * size
    }

    /// Takes room for a span from a block that has it.
    fn open_span(&mut self, class: usize) -> bool {
        let (size, len) = (self.classes.size(class), self.span_len(class));
        let mut room = |len| {
            let mut blocks = self.blocks.iter_mut().enumerate();
            blocks.find_map(|(index, block)| block.as_mut()?.free.take(len).map(|offset| (index, offset, len)))
        };
        // Where there is no room for a whole span there may be some for a chunk.
        let Some((block, offset, len)) = room(len).or_else(|| room(size)) else { return false };
        let span = Some(Span { block, offset, len, class, carved: 0, free: 0, capacity: len / size });
        let place = self.vacant_spans.pop().unwrap_or(self.spans.len());
        match self.spans.get_mut(place) {
            Some(vacant) => *vacant = span,
            None => self.spans.push(span),
        }
        self.free_lists[class].carving = Some(place);
        self.idle_spans += 1;
        true
    }

    /// Adds a block, of which every byte is free. `host_access` is [`Block::host_access`] of it, which may log.
    pub(super) fn add_block(&mut self, block: Arc<Block>, host_access: HostAccess) {
        let len = block.allocation().len();
        let block = Some(ArenaBlock { block, host_access, free: FreeRanges::new(len), len });
        match self.blocks.iter_mut().find(|block| block.is_none()) {
            Some(vacant) => *vacant = block,
            None => self.blocks.push(block),
        }
        self.managed_bytes += len;
    }

    /// Takes free chunks back. Returns the bytes of the blocks that are not kept.
    pub(super) fn put(&mut self, chunks: impl IntoIterator<Item = FreeChunk>, evicted: &mut Evicted) -> usize {
        for chunk in chunks {
            let (true, Some(Some(span))) = (!self.closed, self.spans.get_mut(chunk.span() as usize)) else {
                evicted.chunks.push(chunk);
                continue;
            };
            span.free += 1;
            self.idle_spans += usize::from(span.is_idle());
            self.free_lists[chunk.class() as usize].chunks.push(chunk);
            self.free_chunks += 1;
        }
        if !self.holding && self.idle_spans > 0 { self.trim(0, evicted) } else { 0 }
    }

    /// Evicts every span of which all chunks are free.
    fn dissolve(&mut self, evicted: &mut Evicted) {
        let before = evicted.chunks.len();
        let mut touched = vec![false; self.free_lists.len()];
        for span in self.spans.iter().flatten().filter(|span| span.is_idle()) {
            touched[span.class] = true;
        }
        let is_idle = |spans: &[Option<Span>], place: usize| matches!(&spans[place], Some(span) if span.is_idle());
        for (list, _) in self.free_lists.iter_mut().zip(touched).filter(|(_, touched)| *touched) {
            evicted.chunks.extend(list.chunks.extract_if(.., |chunk| is_idle(&self.spans, chunk.span() as usize)));
            list.chunks.shrink_to_fit();
            list.carving = list.carving.filter(|&place| !is_idle(&self.spans, place));
        }
        self.free_chunks -= evicted.chunks.len() - before;
        for (place, span) in self.spans.iter_mut().enumerate() {
            let Some(Span { block, offset, len, .. }) = span.take_if(|span| span.is_idle()) else { continue };
            self.vacant_spans.push(place);
            if let Some(Some(block)) = self.blocks.get_mut(block) {
                block.free.give(offset, len);
            }
        }
        self.idle_spans = 0;
        if self.vacant_spans.len() == self.spans.len() {
            (self.spans, self.vacant_spans) = Default::default();
        }
    }

    /// Evicts unused blocks, until no more than `keep` bytes are managed. Returns the bytes evicted. The device has
    /// finished with them: chunks come here only then.
    pub(super) fn trim(&mut self, keep: usize, evicted: &mut Evicted) -> usize {
        let before = self.managed_bytes;
        if before <= keep {
            return 0;
        }
        self.dissolve(evicted);
        for place in &mut self.blocks {
            if self.managed_bytes > keep
                && let Some(block) = place.take_if(|block| block.free.is_whole())
            {
                self.managed_bytes -= block.len;
                evicted.idle_blocks.push(block.block);
            }
        }
        before - self.managed_bytes
    }

    /// Keeps no free chunk from now on.
    pub(super) fn stop_holding(&mut self) {
        self.holding = false;
    }

    /// Evicts everything, and keeps nothing from now on. Chunks in use keep their blocks.
    pub(super) fn close(&mut self, evicted: &mut Evicted) {
        self.closed = true;
        self.trim(0, evicted);
        for list in &mut self.free_lists {
            evicted.chunks.append(&mut std::mem::take(&mut list.chunks));
        }
        evicted.used_blocks.extend(self.blocks.drain(..).flatten().map(|block| block.block));
        self.spans.clear();
        self.vacant_spans.clear();
        (self.free_chunks, self.managed_bytes) = (0, 0);
    }
}

/// At most 64 classes for each of less than 64 doublings.
fn as_u16(class: usize) -> u16 {
    u16::try_from(class).unwrap_or(u16::MAX)
}

/// A span has 64 bytes at least: their number fits for 256 GiB.
fn as_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 64;

    proptest! {
        /// Against a map of single bytes. A number takes so many bytes, or gives back what was taken before.
        #[test]
        fn free_ranges_agree_with_a_map_of_bytes(trace in prop::collection::vec((any::<bool>(), 1..20_usize), 1..200)) {
            let mut ranges = FreeRanges::new(LEN);
            let mut bytes = [false; LEN];
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (take, number) in trace {
                if take {
                    let fits = bytes.chunk_by(|a, b| a == b).any(|run| !run[0] && run.len() >= number);
                    let offset = ranges.take(number);
                    prop_assert_eq!(offset.is_some(), fits);
                    if let Some(offset) = offset {
                        prop_assert!(bytes[offset..offset + number].iter().all(|used| !used), "overlap");
                        bytes[offset..offset + number].fill(true);
                        taken.push((offset, number));
                    }
                } else if !taken.is_empty() {
                    let (offset, len) = taken.swap_remove(number % taken.len());
                    ranges.give(offset, len);
                    bytes[offset..offset + len].fill(false);
                }
                prop_assert_eq!(ranges.is_whole(), taken.is_empty());
            }
            for (offset, len) in taken {
                ranges.give(offset, len);
            }
            prop_assert!(ranges.is_whole());
            prop_assert_eq!(ranges.take(LEN), Some(0));
        }
    }

    #[test]
    fn the_smallest_range_that_fits_is_used() {
        let mut ranges = FreeRanges::new(100);
        let taken: Vec<_> = (0..5).filter_map(|_| ranges.take(20)).collect();
        assert_eq!(taken, [0, 20, 40, 60, 80]);
        ranges.give(0, 20);
        ranges.give(40, 20);
        ranges.give(60, 20);
        assert_eq!(ranges.take(10), Some(0));
        assert_eq!(ranges.take(40), Some(40));
        assert_eq!(ranges.take(11), None);
    }
}
