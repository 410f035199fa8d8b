//! The memory of a sequence, and the model of its bytes.

use std::collections::BTreeSet;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use support::Result;
use vkgdr::Memory;
use vkgdr::vulkan::{Buffer, Image};

/// The context that memory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// The world's own context.
    Plain,
    /// The device's primary context.
    Primary,
}

/// The bytes of an allocation or of a pool's chunk, which several items may share.
#[derive(Debug)]
pub(crate) struct Bytes {
    /// The expected bytes, for either side after the necessary waits.
    pub(crate) expected: Vec<u8>,
    /// The number of writes. An item that last read at a lower number must invalidate first.
    writes: u64,
    /// The world's streams with pending work on the bytes.
    pub(crate) pending: BTreeSet<usize>,
}

/// The conditions of an allocation's release.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    pub(crate) bound: Option<usize>,
    /// Whether uses on streams of the world may be recorded, which an end of the binding leaves.
    pub(crate) recorded: bool,
    pub(crate) immediate: bool,
}

/// The value that keeps the memory alive.
#[derive(Debug)]
pub(crate) enum Owner {
    Memory(Memory),
    Buffer(Buffer),
    Image(Image),
}

impl Deref for Owner {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        match self {
            Self::Memory(memory) => memory,
            Self::Buffer(buffer) => buffer,
            Self::Image(image) => image,
        }
    }
}

/// Memory or a slice of it, used by one world.
///
/// On non-coherent memory an item that is the only user of its bytes may delay flushing until the device must see the
/// writes. Items that share bytes flush at once, and invalidate if another item has written since their last read.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) owner: Owner,
    pub(crate) bytes: Arc<Mutex<Bytes>>,
    pub(crate) terms: Arc<Mutex<Terms>>,
    pub(crate) site: Site,
    /// The item's offset in the bytes.
    start: usize,
    seen: u64,
    unflushed: Vec<Range<usize>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Item {
    /// New memory with unknown bytes.
    pub(crate) fn new(owner: Owner, site: Site) -> Self {
        let expected = vec![0; owner.len()];
        let bytes = Arc::new(Mutex::new(Bytes { expected, writes: 1, pending: BTreeSet::new() }));
        Self { owner, bytes, terms: Arc::default(), site, start: 0, seen: 0, unflushed: Vec::new() }
    }

    /// Another memory with the same bytes.
    pub(crate) fn alias(&self, owner: Owner, site: Site) -> Self {
        Self { bytes: Arc::clone(&self.bytes), start: self.start, ..Self::new(owner, site) }
    }

    /// A slice of the same memory.
    pub(crate) fn part(&self, range: Range<usize>) -> Result<Self> {
        let start = self.start + range.start;
        let alias = self.alias(Owner::Memory(self.owner.slice(range)?), self.site);
        Ok(Self { terms: Arc::clone(&self.terms), start, ..alias })
    }

    pub(crate) fn len(&self) -> usize {
        self.owner.len()
    }

    pub(crate) fn bytes(&self) -> MutexGuard<'_, Bytes> {
        lock(&self.bytes)
    }

    pub(crate) fn terms(&self) -> MutexGuard<'_, Terms> {
        lock(&self.terms)
    }

    /// Whether no other item shares the bytes.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.bytes) == 1
    }

    pub(crate) fn has_host_view(&self) -> bool {
        self.owner.kind().has_host_view()
    }

    fn needs_care(&self) -> bool {
        self.has_host_view() && !self.owner.is_coherent()
    }

    /// Translates a range of the item into one of the bytes.
    fn place(&self, range: &Range<usize>) -> Range<usize> {
        self.start + range.start..self.start + range.end
    }

    /// The expected bytes of a range.
    pub(crate) fn expected(&self, range: &Range<usize>) -> Vec<u8> {
        self.bytes().expected[self.place(range)].to_vec()
    }

    /// Flushes the CPU's writes.
    pub(crate) fn flush(&mut self) -> Result {
        for range in std::mem::take(&mut self.unflushed) {
            self.owner.flush(range)?;
        }
        Ok(())
    }

    /// Invalidates for the CPU; writes of others must have finished.
    pub(crate) fn refresh(&mut self) -> Result {
        let writes = self.bytes().writes;
        if self.seen != writes && self.needs_care() {
            self.flush()?;
            self.owner.invalidate(..)?;
        }
        self.seen = writes;
        Ok(())
    }

    /// Records a write by the CPU, and flushes it unless that may be delayed.
    pub(crate) fn wrote(&mut self, range: Range<usize>, new: &[u8]) -> Result {
        self.note(&range, new);
        let writes = self.bytes().writes;
        self.seen = writes;
        if !self.needs_care() {
            return Ok(());
        }
        if self.is_alone() {
            self.unflushed.push(range)
        } else {
            self.owner.flush(range)?
        }
        Ok(())
    }

    /// Records a write by the device or another item, or a flushed one by the CPU.
    pub(crate) fn note(&self, range: &Range<usize>, new: &[u8]) {
        let place = self.place(range);
        let mut bytes = self.bytes();
        bytes.expected[place].copy_from_slice(new);
        bytes.writes += 1;
    }

    /// Fails unless `seen` are the expected bytes of a range.
    pub(crate) fn compare(&self, range: &Range<usize>, seen: &[u8], who: &str) -> Result {
        let expected = self.expected(range);
        let Some(at) = (0..expected.len()).find(|&at| expected[at] != seen[at]) else { return Ok(()) };
        let wrong = (at..expected.len()).filter(|&at| expected[at] != seen[at]).count();
        Err(format!(
            "{who} sees {:#04x}, not {:#04x}, at {} of {:?} ({wrong} of {} bytes are wrong)",
            seen[at],
            expected[at],
            range.start + at,
            self.owner,
            expected.len()
        )
        .into())
    }
}
