//! [`Arena`]: a pool's blocks, the spans in them, and the free slots of each class; behind the pool's lock.
//!
//! A span belongs to one class and is divided into slots on demand. A span whose slots are all free is given back when another
//! class needs its room. Nothing here calls a driver: the caller adds blocks, and drops what is evicted without the lock.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use cudarc::driver::sys::CUstream;

use super::classes::Classes;
use super::free_ranges::FreeRanges;
use crate::Event;
use crate::access::copy::CopyRoutine;
use crate::memory::{Block, Inner, Slot};

/// The approximate length of a span of small slots, in bytes.
const SPAN_LEN: usize = 64 << 10;

/// Blocks that the arena does not keep. Dropping the last reference to one calls the drivers.
pub(super) type Evicted = Vec<Arc<Block>>;

/// A block and the ranges of it that belong to no span.
#[derive(Debug)]
struct ArenaBlock {
    block: Arc<Block>,
    access: CopyRoutine,
    free: FreeRanges,
    len: usize,
    /// The spans by their offsets.
    spans: BTreeMap<usize, u32>,
}

#[derive(Debug)]
struct Span {
    block: usize,
    offset: usize,
    class: usize,
    /// The slots made so far, at most `capacity`: the memory in each, for lookups. Of these, `free` are in the arena's lists.
    slots: Vec<Weak<Inner>>,
    free: usize,
    capacity: usize,
}

impl Span {
    const fn is_free(&self) -> bool {
        self.free == self.slots.len()
    }
}

#[derive(Debug, Default)]
struct FreeList {
    slots: Vec<Slot>,
    /// The span that still has room for new slots.
    splitting: Option<u32>,
}

/// A free slot that the device may still use, until it has passed the events: a fence.
#[derive(Debug)]
pub(super) struct Fenced {
    pub(super) events: Vec<Event>,
    /// The address of the stream that the memory was bound to. That may have been destroyed.
    pub(super) stream: usize,
    pub(super) slot: Slot,
}

/// The blocks of a pool and its free slots.
#[derive(Debug)]
pub(super) struct Arena {
    classes: Classes,
    free_lists: Vec<FreeList>,
    /// Blocks and spans keep their indices; empty places are reused.
    blocks: Vec<Option<ArenaBlock>>,
    spans: Vec<Option<Span>>,
    vacant_spans: Vec<u32>,
    free_spans: usize,
    block_bytes: usize,
    free_slots: usize,
    /// Free slots behind a fence, oldest first.
    fenced: VecDeque<Fenced>,
    /// Free slots that wait for the whole context, and their bytes.
    for_context: Vec<Slot>,
    for_context_bytes: usize,
    /// Memory in use, and its requested bytes.
    pub(super) used: usize,
    pub(super) used_bytes: usize,
    /// The bytes of memory in use that has an allocation of its own.
    pub(super) dedicated_bytes: usize,
    /// Whether unused blocks are kept, and free slots that the device may still use: not after the end of the pool, which
    /// would never ask for those again. Read under the lock under which they are put here.
    pub(super) caching: bool,
}

/// A slot that is about to be allocated.
pub(super) struct Taken {
    pub(super) slot: Slot,
    pub(super) block: Arc<Block>,
    pub(super) offset: usize,
    pub(super) access: CopyRoutine,
}

impl Arena {
    /// The most slots behind fences. With more, the oldest wait for the whole context.
    const MAX_FENCED: usize = 1024;

    pub(super) fn new(classes: Classes) -> Self {
        Self {
            classes,
            free_lists: (0..classes.count()).map(|_| FreeList::default()).collect(),
            blocks: Vec::new(),
            spans: Vec::new(),
            vacant_spans: Vec::new(),
            free_spans: 0,
            block_bytes: 0,
            free_slots: 0,
            fenced: VecDeque::new(),
            for_context: Vec::new(),
            for_context_bytes: 0,
            used: 0,
            used_bytes: 0,
            dedicated_bytes: 0,
            caching: true,
        }
    }

    /// The bytes of all blocks.
    pub(super) const fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// The number of free slots, including those that the device may still use.
    pub(super) fn free_slots(&self) -> usize {
        self.free_slots + self.pending_slots()
    }

    /// The number of free slots that the device may still use.
    pub(super) fn pending_slots(&self) -> usize {
        self.fenced.len() + self.for_context.len()
    }

    pub(super) const fn for_context_bytes(&self) -> usize {
        self.for_context_bytes
    }

    fn span(&mut self, slot: Slot) -> &mut Span {
        self.spans[slot.group as usize].as_mut().expect("a span lives as long as its slots")
    }

    fn class(&mut self, slot: Slot) -> usize {
        self.span(slot).class
    }

    /// Takes a free slot of a class; `None` where that needs a new block.
    pub(super) fn take(&mut self, class: usize) -> Option<Taken> {
        let slot = match self.free_lists[class].slots.pop() {
            Some(slot) => {
                self.free_slots -= 1;
                let span = self.span(slot);
                let was_free = span.is_free();
                span.free -= 1;
                self.free_spans -= usize::from(was_free);
                slot
            }
            None => self.split(class)?,
        };
        Some(self.taken(slot))
    }

    fn taken(&self, slot: Slot) -> Taken {
        let span = self.spans[slot.group as usize].as_ref().expect("a span lives as long as its slots");
        let block = self.blocks[span.block].as_ref().expect("a block lives as long as its spans");
        let offset = span.offset + slot.index as usize * self.classes.size(span.class);
        Taken { slot, block: block.block.clone(), offset, access: block.access }
    }

    /// Makes a new slot in the class's span that still has room, or in a new span.
    fn split(&mut self, class: usize) -> Option<Slot> {
        if self.free_lists[class].splitting.is_none() && !self.open_span(class) {
            if self.free_spans == 0 {
                return None;
            }
            self.give_free_spans_back();
            if !self.open_span(class) {
                return None;
            }
        }
        let group = self.free_lists[class].splitting?;
        let span = self.spans[group as usize].as_mut().expect("a span lives while it is divided");
        self.free_spans -= usize::from(span.is_free());
        let index = u32::try_from(span.slots.len()).expect("a span has at most 1024 slots");
        span.slots.push(Weak::new());
        if span.slots.len() == span.capacity {
            self.free_lists[class].splitting = None;
        }
        Some(Slot { group, index })
    }

    /// Lets lookups find the memory in a slot.
    pub(super) fn set_memory(&mut self, slot: Slot, memory: Weak<Inner>) {
        self.span(slot).slots[slot.index as usize] = memory;
    }

    /// The memory in use that contains a device address.
    pub(super) fn find(&self, address: u64) -> Option<Arc<Inner>> {
        self.blocks.iter().flatten().find_map(|block| {
            let offset = usize::try_from(address.checked_sub(block.block.allocation().device_ptr())?).ok()?;
            let (_, &group) = block.spans.range(..=offset).next_back().filter(|_| offset < block.len)?;
            let span = self.spans[group as usize].as_ref()?;
            let index = (offset - span.offset) / self.classes.size(span.class);
            span.slots.get(index)?.upgrade()
        })
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
        // Where a whole span does not fit, a single slot may.
        let Some((index, offset, len)) = room(len).or_else(|| room(size)) else { return false };
        let span = Some(Span { block: index, offset, class, slots: Vec::new(), free: 0, capacity: len / size });
        let group = match self.vacant_spans.pop() {
            Some(group) => {
                self.spans[group as usize] = span;
                group
            }
            None => {
                self.spans.push(span);
                u32::try_from(self.spans.len() - 1).expect("2^32 spans of at least 64 bytes exceed any block")
            }
        };
        let block = self.blocks[index].as_mut().expect("it has just given room");
        block.spans.insert(offset, group);
        self.free_lists[class].splitting = Some(group);
        self.free_spans += 1;
        true
    }

    /// Adds a block that is all free. The caller determines `access` without a lock, since that may log.
    pub(super) fn add_block(&mut self, block: Arc<Block>, access: CopyRoutine) {
        let len = block.allocation().len();
        let block = Some(ArenaBlock { block, access, free: FreeRanges::new(len), len, spans: BTreeMap::new() });
        match self.blocks.iter_mut().find(|block| block.is_none()) {
            Some(vacant) => *vacant = block,
            None => self.blocks.push(block),
        }
        self.block_bytes += len;
    }

    /// Takes free slots back that the device has finished with. Returns the blocks that are not kept.
    pub(super) fn put(&mut self, slots: impl IntoIterator<Item = Slot>) -> Evicted {
        for slot in slots {
            let span = self.span(slot);
            let class = span.class;
            span.slots[slot.index as usize] = Weak::new();
            span.free += 1;
            let is_free = span.is_free();
            self.free_spans += usize::from(is_free);
            self.free_lists[class].slots.push(slot);
            self.free_slots += 1;
        }
        if !self.caching && self.free_spans > 0 { self.trim(0) } else { Evicted::new() }
    }

    /// Keeps a free slot until the device has passed its fence; hands it back where nothing is kept. With more than
    /// [`MAX_FENCED`](Self::MAX_FENCED), the oldest waits for the whole context, and its events are returned, to be dropped without
    /// the lock.
    pub(super) fn put_fenced(&mut self, fenced: Fenced) -> Result<Option<Vec<Event>>, Fenced> {
        self.span(fenced.slot).slots[fenced.slot.index as usize] = Weak::new();
        if !self.caching {
            return Err(fenced);
        }
        self.fenced.push_back(fenced);
        if self.fenced.len() <= Self::MAX_FENCED {
            return Ok(None);
        }
        let oldest = self.fenced.pop_front().expect("there are more than none");
        self.add_for_context(oldest.slot);
        Ok(Some(oldest.events))
    }

    /// The oldest fence, to be asked without the lock.
    pub(super) fn pop_fenced(&mut self) -> Option<Fenced> {
        self.fenced.pop_front()
    }

    pub(super) fn fenced_len(&self) -> usize {
        self.fenced.len()
    }

    /// A slot of memory that was bound to a stream at this address before, with the events for another user.
    pub(super) fn take_fenced(&mut self, stream: CUstream, class: usize) -> Option<(Taken, Vec<Event>)> {
        let fits = |fenced: &Fenced| {
            let span = self.spans[fenced.slot.group as usize].as_ref();
            fenced.stream == stream.addr() && span.is_some_and(|span| span.class == class)
        };
        let place = self.fenced.iter().position(fits)?;
        let Fenced { events, slot, .. } = self.fenced.remove(place)?;
        Some((self.taken(slot), events))
    }

    /// Keeps free slots until the whole context has finished; hands them back where nothing is kept.
    pub(super) fn put_for_context(&mut self, slots: Vec<Slot>) -> Result<(), Vec<Slot>> {
        for slot in &slots {
            self.span(*slot).slots[slot.index as usize] = Weak::new();
        }
        if !self.caching {
            return Err(slots);
        }
        slots.into_iter().for_each(|slot| self.add_for_context(slot));
        Ok(())
    }

    fn add_for_context(&mut self, slot: Slot) {
        let class = self.class(slot);
        self.for_context_bytes += self.classes.size(class);
        self.for_context.push(slot);
    }

    /// Takes all free slots that wait for the context.
    pub(super) fn take_for_context(&mut self) -> Vec<Slot> {
        self.for_context_bytes = 0;
        std::mem::take(&mut self.for_context)
    }

    /// Gives the room of every span back whose slots are all free.
    fn give_free_spans_back(&mut self) {
        let is_free =
            |spans: &[Option<Span>], group: u32| matches!(&spans[group as usize], Some(span) if span.is_free());
        for list in &mut self.free_lists {
            let before = list.slots.len();
            list.slots.retain(|slot| !is_free(&self.spans, slot.group));
            self.free_slots -= before - list.slots.len();
            list.slots.shrink_to_fit();
            list.splitting = list.splitting.filter(|&group| !is_free(&self.spans, group));
        }
        for (group, span) in self.spans.iter_mut().enumerate() {
            let Some(span) = span.take_if(|span| span.is_free()) else { continue };
            self.vacant_spans.push(u32::try_from(group).expect("made from one"));
            let block = self.blocks[span.block].as_mut().expect("a block lives as long as its spans");
            block.spans.remove(&span.offset);
            block.free.give(span.offset, span.capacity * self.classes.size(span.class));
        }
        self.free_spans = 0;
        if self.vacant_spans.len() == self.spans.len() {
            (self.spans, self.vacant_spans) = Default::default();
        }
    }

    /// Evicts unused blocks, until at most `keep` bytes are left.
    pub(super) fn trim(&mut self, keep: usize) -> Evicted {
        let mut evicted = Evicted::new();
        if self.block_bytes > keep {
            self.give_free_spans_back();
        }
        for place in &mut self.blocks {
            if self.block_bytes > keep
                && let Some(block) = place.take_if(|block| block.free.is_whole())
            {
                self.block_bytes -= block.len;
                evicted.push(block.block);
            }
        }
        evicted
    }
}
