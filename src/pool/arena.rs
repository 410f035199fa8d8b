//! [`Arena`]: a pool's blocks, the spans in them, and the free chunks of each class; behind the pool's lock.
//!
//! A span belongs to one class and is divided into chunks on demand. A span whose chunks are all free is given back when another
//! class needs its room. A chunk has a weak reference to the memory in it, for lookups. A freed chunk is in the list of its class,
//! or, while the device may still use it, behind a fence or among those that await the context. Nothing here calls a driver: the
//! caller adds blocks, and drops what is evicted without the lock.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use cudarc::driver::sys::CUstream;

use super::options::Classes;
use crate::allocation::Allocation;
use crate::memory::{Chunk, Inner};
use crate::retire::Fence;

/// The approximate length of a span of small chunks, in bytes.
const SPAN_LEN: usize = 64 << 10;

/// A block and the ranges of it that belong to no span.
struct ArenaBlock {
    block: Arc<Allocation>,
    free: FreeRanges,
    /// The spans by their offsets.
    spans: BTreeMap<usize, u32>,
}

struct Span {
    block: usize,
    offset: usize,
    class: usize,
    /// The chunks made so far, at most `capacity`: the memory in each, for lookups. Of these, `free` are in the arena's lists.
    chunks: Vec<Weak<Inner>>,
    free: usize,
    capacity: usize,
}

impl Span {
    const fn is_free(&self) -> bool {
        self.free == self.chunks.len()
    }
}

#[derive(Default)]
struct FreeList {
    chunks: Vec<Chunk>,
    /// The span that still has room for new chunks.
    splitting: Option<u32>,
}

/// A free chunk that the device may still use, until it has passed the events of the fence.
pub(super) struct Fenced {
    pub(super) fence: Fence,
    pub(super) chunk: Chunk,
    /// The address of the stream that the memory was bound to. That may have been destroyed.
    pub(super) stream: usize,
}

/// The blocks of a pool and its free chunks.
#[derive(Default)]
pub(super) struct Arena {
    classes: Classes,
    free_lists: Vec<FreeList>,
    /// Blocks and spans keep their indices; empty places are reused.
    blocks: Vec<Option<ArenaBlock>>,
    spans: Vec<Option<Span>>,
    vacant_spans: Vec<u32>,
    pub(super) block_bytes: usize,
    /// Free chunks behind events. One that the device has not passed moves to the end when it is asked for.
    pub(super) fenced: VecDeque<Fenced>,
    /// Free chunks that wait for the whole context, and their bytes.
    awaiting_context: Vec<Chunk>,
    pub(super) awaiting_context_bytes: usize,
    /// Memory in use, and its requested bytes.
    pub(super) used: usize,
    pub(super) used_bytes: usize,
    /// The bytes of memory in use that has an allocation of its own.
    pub(super) dedicated_bytes: usize,
    /// Whether unused blocks are kept, and free chunks that the device may still use: not after the end of the pool, which
    /// would never ask for those again. Read under the lock under which they are put here.
    pub(super) caching: bool,
}

impl Arena {
    /// The most chunks behind events: more wait for the whole context.
    pub(super) const MAX_FENCED: usize = 1024;

    pub(super) fn new(classes: Classes) -> Self {
        let free_lists = (0..classes.count()).map(|_| FreeList::default()).collect();
        Self { classes, free_lists, caching: true, ..Self::default() }
    }

    /// The number of free chunks, including those that the device may still use.
    pub(super) fn free_chunks(&self) -> usize {
        self.free_lists.iter().map(|list| list.chunks.len()).sum::<usize>() + self.pending_chunks()
    }

    /// The number of free chunks that the device may still use.
    pub(super) fn pending_chunks(&self) -> usize {
        self.fenced.len() + self.awaiting_context.len()
    }

    fn span(&mut self, chunk: Chunk) -> &mut Span {
        self.spans[chunk.span as usize].as_mut().expect("a span lives as long as its chunks")
    }

    /// Takes a free chunk of a class; `None` where that needs a new block.
    pub(super) fn take(&mut self, class: usize) -> Option<Chunk> {
        let Some(chunk) = self.free_lists[class].chunks.pop() else { return self.split(class) };
        let span = self.span(chunk);
        span.free -= 1;
        Some(chunk)
    }

    /// The block that a chunk is in, and its offset there.
    pub(super) fn place(&self, chunk: Chunk) -> (Arc<Allocation>, usize) {
        let span = self.spans[chunk.span as usize].as_ref().expect("a span lives as long as its chunks");
        let block = self.blocks[span.block].as_ref().expect("a block lives as long as its spans");
        (block.block.clone(), span.offset + chunk.index as usize * self.classes.size(span.class))
    }

    /// Makes a new chunk in the class's span that still has room, or in a new span.
    fn split(&mut self, class: usize) -> Option<Chunk> {
        if self.free_lists[class].splitting.is_none() && !self.open_span(class) {
            self.give_free_spans_back();
            self.open_span(class);
        }
        let index = self.free_lists[class].splitting?;
        let span = self.spans[index as usize].as_mut().expect("a span lives while it is divided");
        let chunk = Chunk { span: index, index: u32::try_from(span.chunks.len()).expect("at most 1024 chunks") };
        span.chunks.push(Weak::new());
        if span.chunks.len() == span.capacity {
            self.free_lists[class].splitting = None;
        }
        Some(chunk)
    }

    /// Lets lookups find the memory in a chunk.
    pub(super) fn set_memory(&mut self, chunk: Chunk, memory: Weak<Inner>) {
        self.span(chunk).chunks[chunk.index as usize] = memory;
    }

    /// The memory in use that contains a device address.
    pub(super) fn find(&self, address: u64) -> Option<Arc<Inner>> {
        self.blocks.iter().flatten().find_map(|block| {
            let offset = usize::try_from(address.checked_sub(block.block.device_ptr())?).ok()?;
            let (_, &span) = block.spans.range(..=offset).next_back().filter(|_| offset < block.free.len)?;
            let span = self.spans[span as usize].as_ref()?;
            let index = (offset - span.offset) / self.classes.size(span.class);
            span.chunks.get(index)?.upgrade()
        })
    }

    /// The length of a span of a class, in bytes.
    pub(super) fn span_len(&self, class: usize) -> usize {
        let size = self.classes.size(class);
        (SPAN_LEN / size).max(1) * size
    }

    /// Opens a span for a class's new chunks in a block that has room. Returns false if none has.
    fn open_span(&mut self, class: usize) -> bool {
        let (size, len) = (self.classes.size(class), self.span_len(class));
        let mut room = |len| {
            let mut blocks = self.blocks.iter_mut().enumerate();
            blocks.find_map(|(index, block)| block.as_mut()?.free.take(len).map(|offset| (index, offset, len)))
        };
        // Where a whole span does not fit, a single chunk may.
        let Some((index, offset, len)) = room(len).or_else(|| room(size)) else { return false };
        let span = Some(Span { block: index, offset, class, chunks: Vec::new(), free: 0, capacity: len / size });
        let place = match self.vacant_spans.pop() {
            Some(place) => {
                self.spans[place as usize] = span;
                place
            }
            None => {
                self.spans.push(span);
                u32::try_from(self.spans.len() - 1).expect("2^32 spans of at least 64 bytes exceed any block")
            }
        };
        let block = self.blocks[index].as_mut().expect("it has just given room");
        block.spans.insert(offset, place);
        self.free_lists[class].splitting = Some(place);
        true
    }

    /// Adds a block that is all free.
    pub(super) fn add_block(&mut self, block: Arc<Allocation>) {
        let len = block.len();
        let block = Some(ArenaBlock { block, free: FreeRanges::new(len), spans: BTreeMap::new() });
        match self.blocks.iter_mut().find(|block| block.is_none()) {
            Some(vacant) => *vacant = block,
            None => self.blocks.push(block),
        }
        self.block_bytes += len;
    }

    /// Takes free chunks back that the device has finished with. Returns the blocks that are not kept, to be released without the
    /// lock.
    pub(super) fn put(&mut self, chunks: impl IntoIterator<Item = Chunk>) -> Vec<Arc<Allocation>> {
        let mut is_any_free = false;
        for chunk in chunks {
            let span = self.span(chunk);
            let class = span.class;
            span.free += 1;
            is_any_free |= span.is_free();
            self.free_lists[class].chunks.push(chunk);
        }
        if is_any_free && !self.caching { self.trim(0) } else { Vec::new() }
    }

    /// Keeps free chunks until all work of the context has finished.
    pub(super) fn keep_for_context(&mut self, chunks: impl IntoIterator<Item = Chunk>) {
        for chunk in chunks {
            let class = self.span(chunk).class;
            self.awaiting_context_bytes += self.classes.size(class);
            self.awaiting_context.push(chunk);
        }
    }

    /// A chunk of memory that was bound to a stream at this address before, with the fence for another user.
    pub(super) fn take_fenced(&mut self, stream: CUstream, class: usize) -> Option<Fenced> {
        let fits = |fenced: &Fenced| {
            let span = self.spans[fenced.chunk.span as usize].as_ref();
            fenced.stream == stream.addr() && span.is_some_and(|span| span.class == class)
        };
        let place = self.fenced.iter().position(fits)?;
        self.fenced.remove(place)
    }

    /// Takes all free chunks that wait for the context.
    pub(super) fn take_for_context(&mut self) -> Vec<Chunk> {
        self.awaiting_context_bytes = 0;
        std::mem::take(&mut self.awaiting_context)
    }

    /// Gives the room of every span back whose chunks are all free.
    fn give_free_spans_back(&mut self) {
        let is_free = |spans: &[Option<Span>], span: u32| matches!(&spans[span as usize], Some(span) if span.is_free());
        for list in &mut self.free_lists {
            list.chunks.retain(|chunk| !is_free(&self.spans, chunk.span));
            list.chunks.shrink_to_fit();
            list.splitting = list.splitting.filter(|&span| !is_free(&self.spans, span));
        }
        for (place, span) in self.spans.iter_mut().enumerate() {
            let Some(span) = span.take_if(|span| span.is_free()) else { continue };
            self.vacant_spans.push(u32::try_from(place).expect("made from one"));
            let block = self.blocks[span.block].as_mut().expect("a block lives as long as its spans");
            block.spans.remove(&span.offset);
            block.free.give(span.offset, span.capacity * self.classes.size(span.class));
        }
        if self.vacant_spans.len() == self.spans.len() {
            (self.spans, self.vacant_spans) = Default::default();
        }
    }

    /// Evicts unused blocks, until at most `keep` bytes are left with those of dedicated memory.
    pub(super) fn trim(&mut self, keep: usize) -> Vec<Arc<Allocation>> {
        let keep = keep.saturating_sub(self.dedicated_bytes);
        let mut evicted = Vec::new();
        if self.block_bytes > keep {
            self.give_free_spans_back();
        }
        for place in &mut self.blocks {
            if self.block_bytes > keep
                && let Some(block) = place.take_if(|block| block.free.is_whole())
            {
                self.block_bytes -= block.free.len;
                evicted.push(block.block);
            }
        }
        evicted
    }
}

/// The ranges of a block that belong to no span, joined where they touch.
///
/// The search is linear: a block of the default length has about 500 spans, which come and go rarely.
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

    /// Takes `len` bytes from the smallest range that has room for them. Returns their offset.
    fn take(&mut self, len: usize) -> Option<usize> {
        let fitting = self.free.iter().filter(|&(_, &free)| free >= len);
        let (&offset, &free) = fitting.min_by_key(|&(_, free)| free)?;
        self.free.remove(&offset);
        if free > len {
            self.free.insert(offset + len, free - len);
        }
        Some(offset)
    }

    /// Gives back a range from [`take`](Self::take).
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 64;

    proptest! {
        /// Against a map of single bytes. A number takes so many bytes, or gives back what was taken before.
        #[test]
        fn free_ranges_agree_with_a_map_of_bytes(trace in prop::collection::vec((any::<bool>(), 1..20_usize), 1..200)) {
            let (mut ranges, mut bytes, mut taken) = (FreeRanges::new(LEN), [false; LEN], Vec::new());
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
        }
    }
}
