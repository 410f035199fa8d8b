//! [`Arena`]: a pool's blocks, the spans in them, and a list of free chunks for each class, shared by all threads.
//!
//! A span belongs to one class and is split into chunks on demand. A span whose chunks are all free is released when
//! another class needs its room. Nothing here calls a driver: the caller adds blocks, and drops [`Evicted`] without a
//! lock.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::classes::Classes;
use super::free_ranges::FreeRanges;
use crate::access::copy::HostAccess;
use crate::chunk::{Block, FreeChunk};

/// The approximate length of a span of small chunks, in bytes.
const SPAN_LEN: usize = 64 << 10;

/// Chunks and blocks that the arena does not keep. Dropping them may call the drivers.
#[derive(Debug, Default)]
pub(super) struct Evicted {
    chunks: Vec<FreeChunk>,
    /// Each block is released with its last chunk, which may be in use, or evicted by another thread.
    blocks: Vec<Arc<Block>>,
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
    /// The number of chunks made so far, at most `capacity`. Of these, `free` are in the arena.
    made: usize,
    free: usize,
    capacity: usize,
}

impl Span {
    const fn is_free(&self) -> bool {
        self.free == self.made
    }
}

#[derive(Debug, Default)]
struct FreeList {
    chunks: Vec<FreeChunk>,
    /// The span that still has room for new chunks.
    splitting: Option<usize>,
}

/// The blocks of a pool.
#[derive(Debug)]
pub(super) struct Arena {
    classes: Classes,
    free_lists: Vec<FreeList>,
    /// Blocks and spans keep their indices; empty places are reused.
    blocks: Vec<Option<ArenaBlock>>,
    spans: Vec<Option<Span>>,
    vacant_spans: Vec<usize>,
    free_spans: usize,
    managed_bytes: usize,
    free_chunks: usize,
    /// Whether free chunks are kept.
    keeps_free: bool,
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
            free_spans: 0,
            managed_bytes: 0,
            free_chunks: 0,
            keeps_free: true,
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
        self.keeps_free && !self.closed
    }

    /// Adds up to `count` free chunks to `into`, as many as there are without a new block. Returns true if it added
    /// any.
    pub(super) fn take(&mut self, class: usize, count: usize, into: &mut Vec<FreeChunk>, out: &mut Evicted) -> bool {
        let before = into.len();
        self.take_free(class, count, into);
        if into.len() == before {
            if self.free_lists[class].splitting.is_none() && !self.open_span(class) && self.free_spans > 0 {
                self.release_free_spans(out);
                self.open_span(class);
            }
            self.split(class, count, into);
        }
        into.len() > before
    }

    fn take_free(&mut self, class: usize, count: usize, into: &mut Vec<FreeChunk>) {
        let free = &mut self.free_lists[class].chunks;
        let rest = free.len() - free.len().min(count);
        self.free_chunks -= free.len() - rest;
        for chunk in free.drain(rest..) {
            if let Some(Some(span)) = self.spans.get_mut(chunk.slot() as usize) {
                self.free_spans -= usize::from(span.is_free());
                span.free -= 1;
            }
            into.push(chunk);
        }
    }

    /// Makes new chunks in the class's span that still has room.
    fn split(&mut self, class: usize, count: usize, into: &mut Vec<FreeChunk>) {
        let size = self.classes.size(class);
        let Some(place) = self.free_lists[class].splitting else { return };
        let Some(Some(span)) = self.spans.get_mut(place) else { return };
        let Some(Some(block)) = self.blocks.get(span.block) else { return };
        let count = count.min(span.capacity - span.made);
        if count == 0 {
            return;
        }
        self.free_spans -= usize::from(span.is_free());
        for _ in 0..count {
            let offset = span.offset + span.made * size;
            into.push(FreeChunk::new(block.block.clone(), offset, block.host_access, as_u32(place), as_u16(class)));
            span.made += 1;
        }
        if span.made == span.capacity {
            self.free_lists[class].splitting = None;
        }
    }

    /// The length of a span of a class, in bytes.
    pub(super) fn span_len(&self, class: usize) -> usize {
        let size = self.classes.size(class);
        (SPAN_LEN / size).max(1) * size
    }

    /// Opens a span in a block that has room. Returns false if none has.
    fn open_span(&mut self, class: usize) -> bool {
        let (size, len) = (self.classes.size(class), self.span_len(class));
        let mut room = |len| {
            let mut blocks = self.blocks.iter_mut().enumerate();
            blocks.find_map(|(index, block)| block.as_mut()?.free.take(len).map(|offset| (index, offset, len)))
        };
        // Where a whole span does not fit, a single chunk may.
        let Some((block, offset, len)) = room(len).or_else(|| room(size)) else { return false };
        let span = Some(Span { block, offset, len, class, made: 0, free: 0, capacity: len / size });
        let place = self.vacant_spans.pop().unwrap_or(self.spans.len());
        match self.spans.get_mut(place) {
            Some(vacant) => *vacant = span,
            None => self.spans.push(span),
        }
        self.free_lists[class].splitting = Some(place);
        self.free_spans += 1;
        true
    }

    /// Adds a block that is all free. The caller determines `host_access` without a lock, since that may log.
    pub(super) fn add_block(&mut self, block: Arc<Block>, host_access: HostAccess) {
        let len = block.allocation().len();
        let block = Some(ArenaBlock { block, host_access, free: FreeRanges::new(len), len });
        match self.blocks.iter_mut().find(|block| block.is_none()) {
            Some(vacant) => *vacant = block,
            None => self.blocks.push(block),
        }
        self.managed_bytes += len;
    }

    /// Takes free chunks back. Returns the bytes of the blocks that this evicts.
    pub(super) fn put(&mut self, chunks: impl IntoIterator<Item = FreeChunk>, evicted: &mut Evicted) -> usize {
        for chunk in chunks {
            let (true, Some(Some(span))) = (!self.closed, self.spans.get_mut(chunk.slot() as usize)) else {
                evicted.chunks.push(chunk);
                continue;
            };
            span.free += 1;
            self.free_spans += usize::from(span.is_free());
            self.free_lists[chunk.class() as usize].chunks.push(chunk);
            self.free_chunks += 1;
        }
        if !self.keeps_free && self.free_spans > 0 { self.trim(0, evicted) } else { 0 }
    }

    /// Evicts every span whose chunks are all free.
    fn release_free_spans(&mut self, evicted: &mut Evicted) {
        let before = evicted.chunks.len();
        let mut touched = vec![false; self.free_lists.len()];
        for span in self.spans.iter().flatten().filter(|span| span.is_free()) {
            touched[span.class] = true;
        }
        let is_free = |spans: &[Option<Span>], place: usize| matches!(&spans[place], Some(span) if span.is_free());
        for (list, _) in self.free_lists.iter_mut().zip(touched).filter(|(_, touched)| *touched) {
            evicted.chunks.extend(list.chunks.extract_if(.., |chunk| is_free(&self.spans, chunk.slot() as usize)));
            list.chunks.shrink_to_fit();
            list.splitting = list.splitting.filter(|&place| !is_free(&self.spans, place));
        }
        self.free_chunks -= evicted.chunks.len() - before;
        evicted.chunks[before..].iter_mut().for_each(FreeChunk::unlist);
        for (place, span) in self.spans.iter_mut().enumerate() {
            let Some(Span { block, offset, len, .. }) = span.take_if(|span| span.is_free()) else { continue };
            self.vacant_spans.push(place);
            if let Some(Some(block)) = self.blocks.get_mut(block) {
                block.free.give(offset, len);
            }
        }
        self.free_spans = 0;
        if self.vacant_spans.len() == self.spans.len() {
            (self.spans, self.vacant_spans) = Default::default();
        }
    }

    /// Evicts unused blocks, until at most `keep` bytes are managed. Returns the bytes evicted. The device has finished
    /// with these blocks: chunks come here only then.
    pub(super) fn trim(&mut self, keep: usize, evicted: &mut Evicted) -> usize {
        let before = self.managed_bytes;
        if before <= keep {
            return 0;
        }
        self.release_free_spans(evicted);
        for place in &mut self.blocks {
            if self.managed_bytes > keep
                && let Some(block) = place.take_if(|block| block.free.is_whole())
            {
                self.managed_bytes -= block.len;
                block.block.mark_idle();
                evicted.blocks.push(block.block);
            }
        }
        before - self.managed_bytes
    }

    /// Keeps no free chunk from now on.
    pub(super) fn stop_holding(&mut self) {
        self.keeps_free = false;
    }

    /// Evicts everything, and keeps nothing from now on. Chunks in use keep their blocks.
    pub(super) fn close(&mut self, evicted: &mut Evicted) {
        self.closed = true;
        self.trim(0, evicted);
        for list in &mut self.free_lists {
            evicted.chunks.append(&mut std::mem::take(&mut list.chunks));
        }
        evicted.blocks.extend(self.blocks.drain(..).flatten().map(|block| block.block));
        self.spans.clear();
        self.vacant_spans.clear();
        (self.free_chunks, self.managed_bytes) = (0, 0);
    }
}

/// Fits: there are at most 64 classes for each of fewer than 64 doublings.
fn as_u16(class: usize) -> u16 {
    u16::try_from(class).unwrap_or(u16::MAX)
}

/// Fits: a span has at least 64 bytes, and 256 GiB have 2^32 of these.
fn as_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
