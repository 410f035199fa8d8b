//! [`Consumer`]: the reading end of one direction.
#![forbid(unsafe_code)]

use super::layout::{CLOSED, Cursor, Header, POSITION, record_len};
use super::link::{Link, corrupt};
use crate::{Error, Result};

/// The reading end: the only reader of the records, and the only writer of the tail.
#[derive(Debug)]
pub(super) struct Consumer<L> {
    link: L,
    /// The bytes of the records, a multiple of the unit.
    capacity: usize,
    /// The position of the next record.
    cursor: Cursor,
    /// The producer's position, as last loaded.
    head: u64,
    /// The position last stored for the producer, which may overwrite everything before it.
    returned: u64,
    /// Whether the last store failed, so that the producer may not have seen it.
    unstored: bool,
    stopped: bool,
    pub(super) counters: ConsumerCounters,
}

/// A consumer's statistics.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConsumerCounters {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) returns: u64,
    pub(super) empty: u64,
}

impl<L: Link> Consumer<L> {
    /// A consumer of a ring that was not used yet.
    pub(super) fn new(link: L, capacity: usize) -> Self {
        let counters = ConsumerCounters::default();
        let cursor = Cursor::default();
        Self { link, capacity, cursor, head: 0, returned: 0, unstored: false, stopped: false, counters }
    }

    /// The length of the next message; `None` while there is none, [`Error::RingClosed`] once there will be no more.
    pub(super) fn next_len(&mut self) -> Result<Option<usize>> {
        loop {
            if self.stopped {
                return Err(Error::RingClosed);
            }
            if self.unstored {
                self.give_back()?;
            }
            if self.cursor.position == self.head {
                let word = self.link.load()?;
                let head = word & POSITION;
                if head < self.head || head - self.cursor.position > self.capacity as u64 {
                    return Err(corrupt("head", head));
                }
                self.head = head;
                if head == self.cursor.position {
                    self.give_back()?;
                    self.counters.empty += 1;
                    return if word & CLOSED == 0 { Ok(None) } else { Err(Error::RingClosed) };
                }
            }
            let mut bytes = [0; Header::LEN];
            self.link.read(self.cursor.offset, &mut bytes)?;
            let rest = self.capacity - self.cursor.offset;
            let there = usize::try_from(self.head - self.cursor.position).unwrap_or(usize::MAX).min(rest);
            match Header::from_bytes(bytes) {
                Some(Header::Message { len, number })
                    if record_len(len).is_some_and(|record| record <= there) && number == self.counters.messages =>
                {
                    return Ok(Some(len));
                }
                Some(Header::Skip) if rest == there && rest < self.capacity => self.advance(rest)?,
                _ => return Err(corrupt("header at", self.cursor.position)),
            }
        }
    }

    /// Reads the next message, of the length that [`next_len`](Self::next_len) has just returned, and goes on to the one
    /// after it.
    pub(super) fn take(&mut self, message: &mut [u8]) -> Result<()> {
        self.link.read(self.cursor.offset + Header::LEN, message)?;
        self.counters.messages += 1;
        self.counters.bytes += message.len() as u64;
        // It fits: its length was checked. The message is read, whether or not its room could be returned: `next_len` tries that
        // again, and returns the error.
        let _ = self.advance(record_len(message.len()).unwrap_or(0));
        Ok(())
    }

    fn advance(&mut self, len: usize) -> Result<()> {
        self.cursor = self.cursor.after(len, self.capacity);
        // Returned a quarter of the ring at a time, since each return costs a store across PCIe; all of it when nothing
        // is left to read.
        let unreturned = self.cursor.position - self.returned;
        if self.cursor.position == self.head || unreturned >= self.capacity as u64 / 4 {
            self.give_back()?;
        }
        Ok(())
    }

    /// Returns the room of the records read so far.
    fn give_back(&mut self) -> Result<()> {
        if self.stopped || self.returned == self.cursor.position && !self.unstored {
            return Ok(());
        }
        self.link.order_reads()?;
        self.returned = self.cursor.position;
        self.unstored = true;
        self.link.store(self.returned)?;
        self.unstored = false;
        self.counters.returns += 1;
        Ok(())
    }

    /// Stops reading, and tells the producer.
    pub(super) fn stop(&mut self, flags: u64) -> Result<()> {
        self.stopped = true;
        self.link.store(self.returned | CLOSED | flags)
    }
}
