//! What all threads of a pool share: its blocks, the spans carved from them, and the free pieces of each class.
//!
//! A span belongs to one class and is carved into pieces as they are needed. When all of its pieces are free and somebody
//! else needs the room, it is dissolved. Nothing here calls a driver: blocks come and go through the caller, and what is
//! given up is returned, to be dropped without a lock.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::classes::Classes;
use super::spans::Spans;
use crate::memory::piece::{FreePiece, Lot, Tag};
use crate::memory::slab::Slab;

/// Bytes. Spans of small pieces are about so large.
const SPAN: usize = 64 << 10;

/// What is given up. Dropping it may reach the drivers.
#[derive(Debug, Default)]
pub(super) struct Rubbish {
    pub(super) pieces: Vec<FreePiece>,
    pub(super) lots: Vec<Arc<Lot>>,
}

#[derive(Debug)]
struct Block {
    lot: Arc<Lot>,
    spans: Spans,
    len: usize,
}

#[derive(Debug)]
struct Span {
    block: usize,
    offset: usize,
    len: usize,
    class: usize,
    /// How many pieces there have been made, and how many of those are free here.
    carved: usize,
    idle: usize,
    most: usize,
}

impl Span {
    const fn is_idle(&self) -> bool {
        self.idle == self.carved
    }
}

#[derive(Debug, Default)]
struct Class {
    free: Vec<FreePiece>,
    /// The span from which more can be carved.
    carving: Option<usize>,
}

/// The blocks of a pool.
#[derive(Debug)]
pub(super) struct Depot {
    classes: Classes,
    shelves: Vec<Class>,
    /// Blocks and spans keep their places; empty places are used again.
    blocks: Vec<Option<Block>>,
    spans: Vec<Option<Span>>,
    vacant_spans: Vec<usize>,
    idle_spans: usize,
    managed: usize,
    held: usize,
    /// Whether free pieces are kept, and whether the pool is gone.
    holding: bool,
    closed: bool,
}

impl Depot {
    pub(super) fn new(classes: Classes) -> Self {
        let shelves = (0..classes.count()).map(|_| Class::default()).collect();
        let (blocks, spans, vacant_spans) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            classes,
            shelves,
            blocks,
            spans,
            vacant_spans,
            idle_spans: 0,
            managed: 0,
            held: 0,
            holding: true,
            closed: false,
        }
    }

    /// The bytes of all blocks.
    pub(super) const fn managed(&self) -> usize {
        self.managed
    }

    /// The number of free pieces here.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    pub(super) const fn is_holding(&self) -> bool {
        self.holding && !self.closed
    }

    /// Adds up to `count` free pieces to `into`, as many as there are without a new block. Tells whether there was any.
    pub(super) fn take(&mut self, class: usize, count: usize, into: &mut Vec<FreePiece>, gone: &mut Rubbish) -> bool {
        let before = into.len();
        self.take_free(class, count, into);
        if into.len() == before {
            if self.shelves[class].carving.is_none() && !self.open_span(class) && self.idle_spans > 0 {
                self.dissolve(gone);
                self.open_span(class);
            }
            self.carve(class, count, into);
        }
        into.len() > before
    }

    fn take_free(&mut self, class: usize, count: usize, into: &mut Vec<FreePiece>) {
        let free = &mut self.shelves[class].free;
        let rest = free.len() - free.len().min(count);
        self.held -= free.len() - rest;
        for piece in free.drain(rest..) {
            if let Some(Some(span)) = self.spans.get_mut(piece.tag().span as usize) {
                self.idle_spans -= usize::from(span.is_idle());
                span.idle -= 1;
            }
            into.push(piece);
        }
    }

    /// Makes new pieces of the span that is being carved.
    fn carve(&mut self, class: usize, count: usize, into: &mut Vec<FreePiece>) {
        let size = self.classes.size(class);
        let Some(place) = self.shelves[class].carving else { return };
        let Some(Some(span)) = self.spans.get_mut(place) else { return };
        let Some(Some(block)) = self.blocks.get(span.block) else { return };
        let count = count.min(span.most - span.carved);
        if count == 0 {
            return;
        }
        self.idle_spans -= usize::from(span.is_idle());
        let mut slab = Slab::new(as_u32(count));
        let tag = Tag { span: as_u32(place), class: as_u16(class) };
        for _ in 0..count {
            let offset = span.offset + span.carved * size;
            into.push(FreePiece::new(&mut slab, block.lot.clone(), offset, tag));
            span.carved += 1;
        }
        if span.carved == span.most {
            self.shelves[class].carving = None;
        }
    }

    /// The bytes of a span of a class.
    pub(super) fn span_len(&self, class: usize) -> usize {
        let size = self.classes.size(class);
        (SPAN / size).max(1) * size
    }

    /// Takes room for a span from a block that has it.
    fn open_span(&mut self, class: usize) -> bool {
        let (size, len) = (self.classes.size(class), self.span_len(class));
        let mut room = |len| {
            let mut blocks = self.blocks.iter_mut().enumerate();
            blocks.find_map(|(index, block)| block.as_mut()?.spans.take(len).map(|offset| (index, offset, len)))
        };
        // Where there is no room for a whole span there may be some for a piece.
        let Some((block, offset, len)) = room(len).or_else(|| room(size)) else { return false };
        let span = Some(Span { block, offset, len, class, carved: 0, idle: 0, most: len / size });
        let place = self.vacant_spans.pop().unwrap_or(self.spans.len());
        match self.spans.get_mut(place) {
            Some(vacant) => *vacant = span,
            None => self.spans.push(span),
        }
        self.shelves[class].carving = Some(place);
        self.idle_spans += 1;
        true
    }

    /// Adds a block, of which every byte is free.
    pub(super) fn add_block(&mut self, lot: Arc<Lot>, len: usize) {
        let block = Some(Block { lot, spans: Spans::new(len), len });
        match self.blocks.iter_mut().find(|block| block.is_none()) {
            Some(vacant) => *vacant = block,
            None => self.blocks.push(block),
        }
        self.managed += len;
    }

    /// Takes free pieces back. Returns the bytes of the blocks that were given up for want of keeping them.
    pub(super) fn put(&mut self, pieces: impl IntoIterator<Item = FreePiece>, gone: &mut Rubbish) -> usize {
        for piece in pieces {
            let Tag { span, class, .. } = piece.tag();
            let (true, Some(Some(span))) = (!self.closed, self.spans.get_mut(span as usize)) else {
                gone.pieces.push(piece);
                continue;
            };
            span.idle += 1;
            self.idle_spans += usize::from(span.is_idle());
            self.shelves[class as usize].free.push(piece);
            self.held += 1;
        }
        if !self.holding && self.idle_spans > 0 { self.trim(0, gone) } else { 0 }
    }

    /// Gives up every span of which all pieces are free.
    fn dissolve(&mut self, gone: &mut Rubbish) {
        let before = gone.pieces.len();
        let mut touched = vec![false; self.shelves.len()];
        for span in self.spans.iter().flatten().filter(|span| span.is_idle()) {
            touched[span.class] = true;
        }
        let is_idle = |spans: &[Option<Span>], place: usize| matches!(&spans[place], Some(span) if span.is_idle());
        for (shelf, _) in self.shelves.iter_mut().zip(touched).filter(|(_, touched)| *touched) {
            gone.pieces.extend(shelf.free.extract_if(.., |piece| is_idle(&self.spans, piece.tag().span as usize)));
            shelf.carving = shelf.carving.filter(|&place| !is_idle(&self.spans, place));
        }
        self.held -= gone.pieces.len() - before;
        for (place, span) in self.spans.iter_mut().enumerate() {
            let Some(Span { block, offset, len, .. }) = span.take_if(|span| span.is_idle()) else { continue };
            self.vacant_spans.push(place);
            if let Some(Some(block)) = self.blocks.get_mut(block) {
                block.spans.give(offset, len);
            }
        }
        self.idle_spans = 0;
    }

    /// Gives up blocks of which every byte is free, until no more than `keep` bytes are managed. Returns the bytes
    /// given up. The device has finished with them: free pieces are in here only when it has.
    pub(super) fn trim(&mut self, keep: usize, gone: &mut Rubbish) -> usize {
        let before = self.managed;
        if before <= keep {
            return 0;
        }
        self.dissolve(gone);
        for place in &mut self.blocks {
            if self.managed > keep
                && let Some(block) = place.take_if(|block| block.spans.is_whole())
            {
                self.managed -= block.len;
                block.lot.held().is_known_idle();
                gone.lots.push(block.lot);
            }
        }
        before - self.managed
    }

    /// Keeps no free piece from now on.
    pub(super) fn stop_holding(&mut self) {
        self.holding = false;
    }

    /// Gives everything up but what is in use, which keeps its block.
    pub(super) fn close(&mut self, gone: &mut Rubbish) {
        self.closed = true;
        self.trim(0, gone);
        for shelf in &mut self.shelves {
            gone.pieces.append(&mut shelf.free);
        }
        gone.lots.extend(self.blocks.drain(..).flatten().map(|block| block.lot));
        self.spans.clear();
        self.vacant_spans.clear();
        (self.held, self.managed) = (0, 0);
    }
}

/// A pool has at most 64 classes for each of less than 64 doublings.
fn as_u16(class: usize) -> u16 {
    u16::try_from(class).unwrap_or(u16::MAX)
}

/// Spans have 256 bytes and more: their number fits for a terabyte.
fn as_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
