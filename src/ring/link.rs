//! [`Link`]: one end's operations on the records and the two position words.
#![expect(unsafe_code, reason = "stores and loads words that a running kernel loads and stores")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::CONTROL;
use crate::{CopyPolicy, Error, Memory, Result};

/// The memory of one direction as one end reaches it: the records, the word that this end writes and the one that the other
/// end writes. [`Producer`](super::producer::Producer) and [`Consumer`](super::consumer::Consumer) say which order they need;
/// the tests have links that keep no other.
pub(super) trait Link {
    /// Writes to the records, in no order with other writes.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Makes the earlier writes to a range of the records visible to the other end before it sees a later [`store`](Self::store).
    fn order_writes(&self, offset: usize, len: usize) -> Result<()>;

    /// Reads from the records. Sees what the other end wrote before it stored the word that was loaded last.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Completes the earlier reads before a later [`store`](Self::store): after that, the other end may write to their bytes.
    fn order_reads(&self) -> Result<()>;

    /// Stores this end's word, which the other end sees soon.
    fn store(&self, word: u64) -> Result<()>;

    /// Loads the other end's word.
    fn load(&self) -> Result<u64>;
}

/// The link of a ring.
#[derive(Debug)]
pub(super) struct SharedLink {
    records: Memory,
    own: Word,
    other: Word,
}

impl SharedLink {
    /// A link over the records of `memory`, with words at these places.
    pub(super) fn new(memory: &Memory, own: (&Memory, usize), other: (&Memory, usize)) -> Result<Self> {
        let word = |(memory, offset): (&Memory, usize)| Word::new(memory.slice(offset..offset + size_of::<u64>())?);
        Ok(Self { records: memory.slice(CONTROL..)?, own: word(own)?, other: word(other)? })
    }
}

impl Link for SharedLink {
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.records.write_unfenced(offset, bytes)
    }

    fn order_writes(&self, offset: usize, len: usize) -> Result<()> {
        self.records.flush(offset..offset + len)
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.records.invalidate(offset..offset + bytes.len())?;
        self.records.read_with(CopyPolicy::Cpu, offset, bytes)
    }

    fn order_reads(&self) -> Result<()> {
        self.records.invalidate(..0)
    }

    fn store(&self, word: u64) -> Result<()> {
        self.own.store(word)
    }

    fn load(&self) -> Result<u64> {
        self.other.load()
    }
}

/// A word that one side stores and the other side loads.
#[derive(Debug)]
struct Word(Memory);

impl Word {
    /// The word that fills the memory. Fails unless it is aligned and mapped.
    fn new(memory: Memory) -> Result<Self> {
        let word = Self(memory);
        word.pointer()?;
        Ok(word)
    }

    fn pointer(&self) -> Result<NonNull<u64>> {
        let (pointer, count) = self.0.elements::<u64>()?;
        debug_assert_eq!(count, 1);
        Ok(pointer)
    }

    fn atomic(&self) -> Result<&AtomicU64> {
        // SAFETY: aligned and mapped while the memory lives; the CPU uses it by atomic accesses only, once the kernel may run.
        Ok(unsafe { AtomicU64::from_ptr(self.pointer()?.as_ptr()) })
    }

    /// Stores, and empties the CPU's write-combining buffers, which may otherwise keep the word for long.
    fn store(&self, value: u64) -> Result<()> {
        self.atomic()?.store(value, Ordering::Release);
        self.0.flush(..)
    }

    fn load(&self) -> Result<u64> {
        self.0.invalidate(..)?;
        Ok(self.atomic()?.load(Ordering::Acquire))
    }
}

/// The error of a word or a header that no correct kernel writes.
pub(super) fn corrupt(what: &'static str, value: u64) -> Error {
    Error::RingCorrupt { what, value }
}
