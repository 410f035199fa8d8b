//! [`Arena`]: a pool's blocks, the spans in them, and their free chunks; behind the pool's lock.
//!
//! A span belongs to one class and is divided into chunks on demand. A span whose chunks are all free is given back when another
//! class needs its room. A chunk has a weak reference to the memory in it, for lookups. A freed chunk that the device may still
//! use is behind a fence, among those that await the context, or in the GPU's queue. Any other is in the list of its span. Nothing
//! here calls a driver: the caller adds blocks, and drops what is evicted without the lock.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use slab::Slab;

use super::options::Classes;
use crate::allocation::Allocation;
use crate::memory::{Chunk, Inner};
use crate::retire::Fence;

/// The approximate length of a span of small chunks, in bytes.
const SPAN_LEN: usize = 64 << 10;

struct ArenaBlock {
    block: Arc<Allocation>,
    /// The number of spans in it.
    spans: usize,
}

struct Span {
    block: usize,
    offset: usize,
    class: usize,
    /// The chunks made so far, at most `capacity`: the memory in each, for lookups.
    chunks: Vec<Weak<Inner>>,
    /// Those of them that are free.
    free: Vec<usize>,
    capacity: usize,
    /// Its place in its class's list, if it has room.
    place: usize,
    /// Whether it is in the list of free spans.
    is_listed: bool,
}

impl Span {
    const fn is_free(&self) -> bool {
        self.free.len() == self.chunks.len()
    }

    const fn has_room(&self) -> bool {
        !self.free.is_empty() || self.chunks.len() < self.capacity
    }
}

/// The number of the stream that memory was bound to, which may have been destroyed, and a class.
pub(super) type Key = (usize, usize);

/// A free chunk that the device may still use, until it has passed the events of the fence.
pub(super) struct Fenced {
    pub(super) fence: Fence,
    pub(super) chunk: Chunk,
}

/// The blocks of a pool and its free chunks.
#[derive(Default)]
pub(super) struct Arena {
    classes: Classes,
    blocks: Slab<ArenaBlock>,
    spans: Slab<Span>,
    /// The spans by their device addresses.
    by_address: BTreeMap<u64, usize>,
    /// The spans of each class that have a free chunk, or room for a new one.
    with_room: Vec<Vec<usize>>,
    /// Spans whose chunks were all free once. Some may be in use again.
    free_spans: Vec<usize>,
    /// The ranges of the blocks that belong to no span.
    ranges: FreeRanges,
    /// Free chunks behind events, by stream and class. One that the device has not passed moves to the end when it is asked for.
    pub(super) fenced: BTreeMap<Key, VecDeque<Fenced>>,
    /// Free chunks that wait for the whole context.
    pub(super) awaiting_context: Vec<Chunk>,
    /// Memory in use, and its requested bytes.
    pub(super) used: usize,
    pub(super) used_bytes: usize,
    /// The bytes of memory in use that has an allocation of its own.
    pub(super) dedicated_bytes: usize,
    /// Whether unused blocks are kept, and free chunks that the device may still use. Not after the end of the pool, which
    /// would never ask for those again. Read under the lock under which they are put here.
    pub(super) caching: bool,
}

impl Arena {
    pub(super) fn new(classes: Classes) -> Self {
        let with_room = vec![Vec::new(); classes.count()];
        Self { classes, with_room, caching: true, ..Self::default() }
    }

    /// The bytes of all blocks.
    pub(super) fn block_bytes(&self) -> usize {
        self.blocks.iter().map(|(_, block)| block.block.len()).sum()
    }

    /// The number of free chunks, including those that the device may still use.
    pub(super) fn free_chunks(&self) -> usize {
        self.spans.iter().map(|(_, span)| span.free.len()).sum::<usize>() + self.pending_chunks()
    }

    /// The number of free chunks that the device may still use.
    pub(super) fn pending_chunks(&self) -> usize {
        self.fenced.values().map(VecDeque::len).sum::<usize>() + self.awaiting_context.len()
    }

    /// Takes a free chunk of a class; `None` where that needs a new block.
    pub(super) fn take(&mut self, class: usize) -> Option<Chunk> {
        if self.with_room[class].is_empty() && !self.open_span(class) {
            self.give_free_spans_back();
            self.open_span(class);
        }
        let &index = self.with_room[class].last()?;
        let span = &mut self.spans[index];
        let chunk = span.free.pop().unwrap_or_else(|| {
            span.chunks.push(Weak::new());
            span.chunks.len() - 1
        });
        if !span.has_room() {
            self.with_room[class].pop();
        }
        Some(Chunk { span: index, index: chunk })
    }

    pub(super) fn class_of(&self, chunk: Chunk) -> usize {
        self.spans[chunk.span].class
    }

    /// The block that a chunk is in, and its offset there.
    pub(super) fn place(&self, chunk: Chunk) -> (Arc<Allocation>, usize) {
        let span = &self.spans[chunk.span];
        let block = &self.blocks[span.block];
        (block.block.clone(), span.offset + chunk.index * self.classes.size(span.class))
    }

    /// Lets lookups find the memory in a chunk.
    pub(super) fn set_memory(&mut self, chunk: Chunk, memory: Weak<Inner>) {
        self.spans[chunk.span].chunks[chunk.index] = memory;
    }

    /// The memory in use that contains a device address.
    pub(super) fn find(&self, address: u64) -> Option<Arc<Inner>> {
        let (first, &span) = self.by_address.range(..=address).next_back()?;
        let span = &self.spans[span];
        let offset = usize::try_from(address - first).expect("usize has 64 bits");
        span.chunks.get(offset / self.classes.size(span.class))?.upgrade()
    }

    /// The length of a span of a class, in bytes.
    pub(super) fn span_len(&self, class: usize) -> usize {
        let size = self.classes.size(class);
        (SPAN_LEN / size).max(1) * size
    }

    /// Opens a span for a class's new chunks in a block that has room. Returns false if none has.
    fn open_span(&mut self, class: usize) -> bool {
        let (size, len) = (self.classes.size(class), self.span_len(class));
        // Where a whole span does not fit, a single chunk may.
        let room = self.ranges.take(len).map(|range| (range, len));
        let Some(((block, offset), len)) = room.or_else(|| Some((self.ranges.take(size)?, size))) else { return false };
        let (chunks, free, capacity, place) = (Vec::new(), Vec::new(), len / size, self.with_room[class].len());
        let index = self.spans.insert(Span { block, offset, class, chunks, free, capacity, place, is_listed: false });
        let ArenaBlock { block, spans } = &mut self.blocks[block];
        *spans += 1;
        self.by_address.insert(block.device_ptr() + offset as u64, index);
        self.with_room[class].push(index);
        true
    }

    /// Adds a block that is all free.
    pub(super) fn add_block(&mut self, block: Arc<Allocation>) {
        let len = block.len();
        let index = self.blocks.insert(ArenaBlock { block, spans: 0 });
        self.ranges.give((index, 0), len);
    }

    /// Takes free chunks back that the device has finished with. Returns the blocks that are not kept, to be released without the
    /// lock.
    pub(super) fn put(&mut self, chunks: impl IntoIterator<Item = Chunk>) -> Vec<Arc<Allocation>> {
        for Chunk { span: index, index: chunk } in chunks {
            let span = &mut self.spans[index];
            if !span.has_room() {
                span.place = self.with_room[span.class].len();
                self.with_room[span.class].push(index);
            }
            span.free.push(chunk);
            if span.is_free() && !span.is_listed {
                span.is_listed = true;
                self.free_spans.push(index);
            }
        }
        if self.caching || self.free_spans.is_empty() { Vec::new() } else { self.trim(0) }
    }

    /// The bytes of the free chunks that wait for the context.
    pub(super) fn bytes_for_context(&self) -> usize {
        self.awaiting_context.iter().map(|chunk| self.classes.size(self.class_of(*chunk))).sum()
    }

    /// Takes the first chunk of a stream and class, with its fence.
    pub(super) fn take_fenced(&mut self, key: Key) -> Option<Fenced> {
        let list = self.fenced.get_mut(&key)?;
        let first = list.pop_front();
        if list.is_empty() {
            self.fenced.remove(&key);
        }
        first
    }

    /// The next stream and class with such chunks, in a circle.
    pub(super) fn key_after(&self, key: Key) -> Option<Key> {
        let after = self.fenced.range((Bound::Excluded(key), Bound::Unbounded)).next();
        after.or_else(|| self.fenced.first_key_value()).map(|(key, _)| *key)
    }

    /// Gives the room of every span back whose chunks are all free.
    fn give_free_spans_back(&mut self) {
        for index in std::mem::take(&mut self.free_spans) {
            let span = &mut self.spans[index];
            if !span.is_free() {
                span.is_listed = false;
                continue;
            }
            let span = self.spans.remove(index);
            let list = &mut self.with_room[span.class];
            list.swap_remove(span.place);
            if let Some(&moved) = list.get(span.place) {
                self.spans[moved].place = span.place;
            }
            let ArenaBlock { block, spans } = &mut self.blocks[span.block];
            *spans -= 1;
            self.by_address.remove(&(block.device_ptr() + span.offset as u64));
            self.ranges.give((span.block, span.offset), span.capacity * self.classes.size(span.class));
        }
        if self.spans.is_empty() {
            self.spans = Slab::new();
        }
    }

    /// Evicts unused blocks, until at most `keep` bytes are left with those of dedicated memory.
    pub(super) fn trim(&mut self, keep: usize) -> Vec<Arc<Allocation>> {
        let keep = keep.saturating_sub(self.dedicated_bytes);
        let (mut left, mut evicted) = (self.block_bytes(), Vec::new());
        if left > keep {
            self.give_free_spans_back();
        }
        self.blocks.retain(|index, ArenaBlock { block, spans }| {
            let is_kept = left <= keep || *spans > 0;
            if !is_kept {
                self.ranges.remove((index, 0), block.len());
                left -= block.len();
                evicted.push(block.clone());
            }
            is_kept
        });
        evicted
    }
}

/// Ranges of blocks that belong to no span, joined where they touch. A place is the index of a block, and an offset there.
///
/// Found by place and by length: a block of 128 GiB may have a million of them.
#[derive(Default)]
struct FreeRanges {
    lens: BTreeMap<(usize, usize), usize>,
    by_len: BTreeSet<(usize, (usize, usize))>,
}

impl FreeRanges {
    /// Takes `len` bytes from the smallest range that has room for them. Returns their place.
    fn take(&mut self, len: usize) -> Option<(usize, usize)> {
        let &(free, place) = self.by_len.range((len, (0, 0))..).next()?;
        self.remove(place, free);
        let (block, offset) = place;
        if free > len {
            self.insert((block, offset + len), free - len);
        }
        Some(place)
    }

    /// Gives a range: a new block, or what [`take`](Self::take) took.
    fn give(&mut self, (block, offset): (usize, usize), len: usize) {
        let (mut start, mut end) = (offset, offset + len);
        if let Some((&(before, first), &free)) = self.lens.range(..(block, offset)).next_back()
            && before == block
        {
            debug_assert!(first + free <= offset, "given back twice");
            if first + free == offset {
                self.remove((block, first), free);
                start = first;
            }
        }
        debug_assert!(self.lens.range((block, offset)..(block, end)).next().is_none(), "given back twice");
        if let Some(&free) = self.lens.get(&(block, end)) {
            self.remove((block, end), free);
            end += free;
        }
        self.insert((block, start), end - start);
    }

    fn insert(&mut self, place: (usize, usize), len: usize) {
        self.lens.insert(place, len);
        self.by_len.insert((len, place));
    }

    /// Removes a whole range.
    fn remove(&mut self, place: (usize, usize), len: usize) {
        self.lens.remove(&place);
        self.by_len.remove(&(len, place));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 64;

    proptest! {
        /// Against a map of single bytes, of two blocks. A number takes so many bytes, or gives back what was taken before.
        #[test]
        fn free_ranges_agree_with_a_map_of_bytes(trace in prop::collection::vec((any::<bool>(), 1..20_usize), 1..200)) {
            let (mut ranges, mut bytes, mut taken) = (FreeRanges::default(), [[false; LEN]; 2], Vec::new());
            ranges.give((0, 0), LEN);
            ranges.give((1, 0), LEN);
            for (take, number) in trace {
                if take {
                    let free = bytes.iter().flat_map(|block| block.chunk_by(|a, b| a == b)).filter(|run| !run[0]);
                    let smallest = free.map(<[bool]>::len).filter(|&free| free >= number).min();
                    let place = ranges.take(number);
                    prop_assert_eq!(place.is_some(), smallest.is_some());
                    if let Some((block, offset)) = place {
                        let free = bytes[block][offset..].iter().take_while(|used| !**used).count();
                        prop_assert_eq!(Some(free), smallest, "not the smallest, or an overlap");
                        bytes[block][offset..offset + number].fill(true);
                        taken.push(((block, offset), number));
                    }
                } else if !taken.is_empty() {
                    let (place, len) = taken.swap_remove(number % taken.len());
                    ranges.give(place, len);
                    bytes[place.0][place.1..place.1 + len].fill(false);
                }
                let is_whole = |block| ranges.lens.get(&(block, 0)) == Some(&LEN);
                prop_assert_eq!([is_whole(0), is_whole(1)], bytes.map(|block| !block.contains(&true)));
            }
        }
    }
}
