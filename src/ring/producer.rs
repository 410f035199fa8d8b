//! [`Producer`]: the writing end of one direction.
#![forbid(unsafe_code)]

use std::ops::ControlFlow;

use super::layout::{CLOSED, Cursor, Header, POSITION, record_len};
use super::link::{Link, corrupt};
use crate::{Error, Result};

/// The writing end: the only writer of the records and of the head.
#[derive(Debug)]
pub(super) struct Producer<L> {
    link: L,
    /// The bytes of the records, a multiple of the unit.
    capacity: usize,
    /// The longest message.
    max_message: usize,
    /// The end of the last record that was written.
    head: Cursor,
    /// The end of the last record that was published to the consumer.
    published: Cursor,
    /// Whether the last store failed, so that the consumer may not have seen it.
    unstored: bool,
    /// The consumer's position, as last loaded.
    tail: u64,
    /// The flags that [`close`](Self::close) stored for the consumer; 0 before.
    flags: u64,
    pub(super) counters: ProducerCounters,
}

/// A producer's statistics.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProducerCounters {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) publications: u64,
    pub(super) refusals: u64,
}

impl<L: Link> Producer<L> {
    /// A producer of a ring that was not used yet.
    pub(super) fn new(link: L, capacity: usize, max_message: usize) -> Self {
        let (head, published) = Default::default();
        let counters = ProducerCounters::default();
        Self { link, capacity, max_message, head, published, unstored: false, tail: 0, flags: 0, counters }
    }

    /// Writes messages until one finds no room, and publishes them together. Returns how many.
    pub(super) fn try_push(&mut self, messages: &[&[u8]]) -> Result<usize> {
        let mut count = 0;
        let outcome = messages.iter().try_fold((), |(), message| match self.append(message) {
            Ok(true) => {
                count += 1;
                ControlFlow::Continue(())
            }
            Ok(false) => ControlFlow::Break(Ok(())),
            Err(error) => ControlFlow::Break(Err(error)),
        });
        // Always, since a skip at the end of the records is not read, and its room not returned, until it is published.
        self.publish()?;
        match outcome {
            ControlFlow::Break(Err(error)) if count == 0 => Err(error),
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
        let rest = self.capacity - self.head.offset;
        if rest < record {
            // A message lies in one piece, for kernels that load more than a byte at a time.
            if !self.has_room(rest)? {
                return Ok(false);
            }
            self.link.write(self.head.offset, &Header::Skip.to_bytes())?;
            self.head = self.head.after(rest, self.capacity);
        }
        if !self.has_room(record)? {
            return Ok(false);
        }
        let header = Header::Message { len: message.len(), number: self.counters.messages };
        self.link.write(self.head.offset, &header.to_bytes())?;
        self.link.write(self.head.offset + Header::LEN, message)?;
        self.head = self.head.after(record, self.capacity);
        self.counters.messages += 1;
        self.counters.bytes += message.len() as u64;
        Ok(true)
    }

    /// Whether there is room for `len` bytes. Loads the consumer's word only if the one loaded last does not show it.
    fn has_room(&mut self, len: usize) -> Result<bool> {
        let room = |tail: u64| self.head.position - tail + len as u64 <= self.capacity as u64;
        if room(self.tail) {
            return Ok(true);
        }
        let tail = self.link.load()? & POSITION;
        if tail < self.tail || tail > self.published.position {
            return Err(corrupt("tail", tail));
        }
        self.tail = tail;
        let enough = self.head.position - tail + len as u64 <= self.capacity as u64;
        self.counters.refusals += u64::from(!enough);
        Ok(enough)
    }

    /// Tells the consumer of the records that were written, again if it may not have heard of the last.
    fn publish(&mut self) -> Result<()> {
        if self.head == self.published {
            return if self.unstored { self.store() } else { Ok(()) };
        }
        let (from, to) = (self.published.offset, self.head.offset);
        if from < to {
            self.link.order_writes(from, to - from)?;
        } else {
            self.link.order_writes(from, self.capacity - from)?;
            if to > 0 {
                self.link.order_writes(0, to)?;
            }
        }
        self.published = self.head;
        self.counters.publications += 1;
        self.store()
    }

    fn store(&mut self) -> Result<()> {
        self.unstored = true;
        self.link.store(self.published.position | self.flags)?;
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
        let tail = self.link.load()? & POSITION;
        Ok(self.published.position.saturating_sub(tail))
    }
}
