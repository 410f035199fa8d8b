//! The two ends of a direction, [`Producer`] and [`Consumer`], over a [`Link`]; and the layout of a ring's two memories, which
//! `vkgdr_ring.cuh` must match.
#![forbid(unsafe_code)]

use super::RingStats;
use crate::{Error, Result};

/// The version of the layout, the first word of the device's control block.
pub(super) const VERSION: u64 = 1;
/// The bytes before the records in each memory.
pub(super) const CONTROL: usize = 1024;
/// The offset of the word that the producer writes, in the memory with the records: the head. Each word has 256 bytes of its
/// own, the largest `nonCoherentAtomSize` that Vulkan allows (specification, "Required Limits").
pub(super) const HEAD: usize = 256;
/// The offset of the word that the consumer writes, in the memory with the other direction's records: the tail.
pub(super) const TAIL: usize = 512;

/// A bit of a position word: its writer will not move it again.
pub(super) const CLOSED: u64 = 1 << 63;
/// A bit of a position word: its reader stops at once.
pub(super) const ABORTED: u64 = 1 << 62;
/// The other bits of a position word: the bytes of all records before it. A record lies at its position modulo the capacity.
pub(super) const POSITION: u64 = ABORTED - 1;

/// The unit of records, which aligns messages: what a kernel loads at once. Also the length of the header before each
/// message: the message's length and its number, from 0.
pub(super) const UNIT: usize = 16;
/// The first word of a header before the unused rest of the records' memory: the next record is at the memory's beginning.
pub(super) const SKIP: u64 = 1 << 63;

/// The length of a record with a message of `len` bytes; `None` if there is no such length.
pub(super) fn record_len(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(UNIT)?.checked_add(UNIT)
}

/// The memory of one direction as one end reaches it: the records, its own word, and the other end's word. The tests have
/// links that keep no other order than asked for.
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

/// The offset of a position in the records.
fn offset(position: u64, capacity: usize) -> usize {
    usize::try_from(position % capacity as u64).expect("less than the capacity")
}

/// The writing end: the only writer of the records and of the head.
#[derive(Debug)]
pub(super) struct Producer<L> {
    link: L,
    /// The bytes of the records, a multiple of the unit.
    capacity: usize,
    /// The longest message.
    max_message: usize,
    /// The end of the last record that was written.
    head: u64,
    /// The end of the last record that was published to the consumer.
    published: u64,
    /// Whether the last store failed, so that the consumer may not have seen it.
    unstored: bool,
    /// The consumer's position, as last loaded.
    tail: u64,
    /// The flags that [`close`](Self::close) stored for the consumer; 0 before.
    flags: u64,
    /// The statistics of messages.
    pub(super) stats: RingStats,
}

impl<L: Link> Producer<L> {
    /// A producer of a ring that was not used yet.
    pub(super) fn new(link: L, capacity: usize, max_message: usize) -> Self {
        let stats = RingStats::default();
        Self { link, capacity, max_message, head: 0, published: 0, unstored: false, tail: 0, flags: 0, stats }
    }

    /// Writes messages until one finds no room, and publishes them together. Returns how many.
    pub(super) fn try_push(&mut self, messages: &[&[u8]]) -> Result<usize> {
        let mut count = 0;
        let ended = messages.iter().map(|message| self.append(message)).find(|appended| {
            let is_pushed = matches!(appended, Ok(true));
            count += usize::from(is_pushed);
            !is_pushed
        });
        // Always, since a skip at the end of the records is not read, and its room not returned, until it is published.
        self.publish()?;
        match ended {
            Some(Err(error)) if count == 0 => Err(error),
            _ => Ok(count),
        }
    }

    /// Writes one message, if there is room.
    fn append(&mut self, message: &[u8]) -> Result<bool> {
        if self.flags != 0 {
            return Err(Error::RingClosed);
        }
        let too_long = || Error::MessageTooLong { len: message.len(), most: self.max_message };
        let record = record_len(message.len()).filter(|_| message.len() <= self.max_message).ok_or_else(too_long)?;
        let rest = self.capacity - offset(self.head, self.capacity);
        if rest < record {
            // A message lies in one piece, for kernels that load more than a byte at a time.
            if !self.has_room(rest)? {
                return Ok(false);
            }
            self.link.write(self.capacity - rest, bytemuck::bytes_of(&[SKIP, 0]))?;
            self.head += rest as u64;
        }
        if !self.has_room(record)? {
            return Ok(false);
        }
        let at = offset(self.head, self.capacity);
        self.link.write(at, bytemuck::bytes_of(&[message.len() as u64, self.stats.pushed]))?;
        self.link.write(at + UNIT, message)?;
        self.head += record as u64;
        self.stats.pushed += 1;
        self.stats.pushed_bytes += message.len() as u64;
        Ok(true)
    }

    /// Whether there is room for `len` bytes. Loads the consumer's word only if the one loaded last does not show it.
    fn has_room(&mut self, len: usize) -> Result<bool> {
        let end = self.head + len as u64;
        if end - self.tail <= self.capacity as u64 {
            return Ok(true);
        }
        let tail = self.link.load()? & POSITION;
        if tail < self.tail || tail > self.published {
            return Err(Error::RingCorrupt { what: "tail", value: tail });
        }
        self.tail = tail;
        let is_enough = end - tail <= self.capacity as u64;
        self.stats.full += u64::from(!is_enough);
        Ok(is_enough)
    }

    /// Tells the consumer of the records that were written, again if it may not have heard of the last.
    fn publish(&mut self) -> Result<()> {
        if self.head == self.published {
            return if self.unstored { self.store() } else { Ok(()) };
        }
        let (from, to) = (offset(self.published, self.capacity), offset(self.head, self.capacity));
        // In two pieces where they pass the end.
        let pieces = if from < to { [(from, to - from), (0, 0)] } else { [(from, self.capacity - from), (0, to)] };
        for (offset, len) in pieces.into_iter().filter(|(_, len)| *len > 0) {
            self.link.order_writes(offset, len)?;
        }
        self.published = self.head;
        self.stats.publications += 1;
        self.store()
    }

    fn store(&mut self) -> Result<()> {
        self.unstored = true;
        self.link.store(self.published | self.flags)?;
        self.unstored = false;
        Ok(())
    }

    /// Refuses further messages, and tells the consumer after the messages that were pushed, with `flags` and the flags
    /// of earlier calls.
    pub(super) fn close(&mut self, flags: u64) -> Result<()> {
        self.flags |= CLOSED | flags;
        self.store()
    }

    /// Bytes that were published and that the consumer has not returned, as far as is known.
    pub(super) fn used(&mut self) -> Result<u64> {
        Ok(self.published.saturating_sub(self.link.load()? & POSITION))
    }
}

/// The reading end: the only reader of the records, and the only writer of the tail.
#[derive(Debug)]
pub(super) struct Consumer<L> {
    link: L,
    /// The bytes of the records, a multiple of the unit.
    capacity: usize,
    /// The position of the next record.
    position: u64,
    /// The producer's position, as last loaded.
    head: u64,
    /// The position last stored for the producer, which may overwrite everything before it. A store that failed is done again.
    returned: u64,
    stopped: bool,
    /// The statistics of answers.
    pub(super) stats: RingStats,
}

impl<L: Link> Consumer<L> {
    /// A consumer of a ring that was not used yet.
    pub(super) fn new(link: L, capacity: usize) -> Self {
        let stats = RingStats::default();
        Self { link, capacity, position: 0, head: 0, returned: 0, stopped: false, stats }
    }

    /// The length of the next message; `None` while there is none, [`Error::RingClosed`] once there will be no more.
    pub(super) fn next_len(&mut self) -> Result<Option<usize>> {
        loop {
            if self.stopped {
                return Err(Error::RingClosed);
            }
            if self.position == self.head {
                let word = self.link.load()?;
                let head = word & POSITION;
                if head < self.head || head - self.position > self.capacity as u64 {
                    return Err(Error::RingCorrupt { what: "head", value: head });
                }
                self.head = head;
                if head == self.position {
                    self.give_back()?;
                    self.stats.empty += 1;
                    return if word & CLOSED == 0 { Ok(None) } else { Err(Error::RingClosed) };
                }
            }
            let at = offset(self.position, self.capacity);
            let mut header = [0_u64; 2];
            self.link.read(at, bytemuck::bytes_of_mut(&mut header))?;
            let rest = self.capacity - at;
            let there = usize::try_from(self.head - self.position).expect("usize has 64 bits").min(rest);
            let [len, number] = header;
            if len == SKIP && rest == there && at > 0 {
                self.advance(rest)?;
                continue;
            }
            let len = usize::try_from(len).ok().filter(|len| record_len(*len).is_some_and(|record| record <= there));
            return match len {
                Some(len) if number == self.stats.popped => Ok(Some(len)),
                _ => Err(Error::RingCorrupt { what: "header at", value: self.position }),
            };
        }
    }

    /// Reads the next message, of the length that [`next_len`](Self::next_len) has just returned, and goes on to the one
    /// after it.
    pub(super) fn take(&mut self, message: &mut [u8]) -> Result<()> {
        self.link.read(offset(self.position, self.capacity) + UNIT, message)?;
        self.stats.popped += 1;
        self.stats.popped_bytes += message.len() as u64;
        let record = record_len(message.len()).expect("a length from `next_len`");
        // The message is read, whether or not its room could be returned: `next_len` tries that again.
        let _ = self.advance(record);
        Ok(())
    }

    fn advance(&mut self, len: usize) -> Result<()> {
        self.position += len as u64;
        // Returned a quarter of the ring at a time, since each return costs a store across PCIe. All of it is returned
        // when nothing is left to read.
        if self.position == self.head || self.position - self.returned >= self.capacity as u64 / 4 {
            self.give_back()?;
        }
        Ok(())
    }

    /// Returns the room of the records read so far.
    fn give_back(&mut self) -> Result<()> {
        if self.stopped || self.returned == self.position {
            return Ok(());
        }
        self.link.order_reads()?;
        self.link.store(self.position)?;
        self.returned = self.position;
        self.stats.returns += 1;
        Ok(())
    }

    /// Stops reading, and tells the producer.
    pub(super) fn stop(&mut self, flags: u64) -> Result<()> {
        self.stopped = true;
        self.link.store(self.returned | CLOSED | flags)
    }
}
