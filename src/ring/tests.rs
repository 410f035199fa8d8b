//! The two ends of a ring over memory in which a write arrives when it is ordered, and never before.
//!
//! loom runs the models through every interleaving (`make nightly PARTS=loom`).
#![expect(unsafe_code, reason = "cells that both ends reach")]

use std::cell::RefCell;
use std::sync::atomic::AtomicU32;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::ends::{ABORTED, CLOSED, Consumer, Link, POSITION, Producer, SKIP, UNIT, record_len};
use crate::{Error, Result};

/// The memory of a direction.
struct Board {
    records: Vec<UnsafeCell<[u8; UNIT]>>,
    head: AtomicU64,
    tail: AtomicU64,
    /// The number of stores that fail from now on.
    refused_stores: AtomicU32,
}

// SAFETY: the units are reached through loom's cells, which find races.
unsafe impl Sync for Board {}

/// One end of a board.
struct End {
    board: Arc<Board>,
    produces: bool,
    /// The writes on their way, each to one unit.
    pending: RefCell<Vec<(usize, Vec<u8>)>>,
}

impl Board {
    fn put(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: a unit, reached while loom sees that nobody else does.
        self.records[offset / UNIT].with_mut(|unit| unsafe { (&mut *unit)[..bytes.len()].copy_from_slice(bytes) });
    }
}

impl Link for End {
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        for (at, part) in (offset..).step_by(UNIT).zip(bytes.chunks(UNIT)) {
            // Only to room that the other end does not reach.
            self.board.records[at / UNIT].with_mut(|_| ());
            self.pending.borrow_mut().push((at, part.to_vec()));
        }
        Ok(())
    }

    fn order_writes(&self, offset: usize, len: usize) -> Result<()> {
        let mut pending = self.pending.borrow_mut();
        let ordered = pending.extract_if(.., |(at, _)| (offset..offset + len).contains(at));
        ordered.for_each(|(at, part)| self.board.put(at, &part));
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        for (unit, part) in self.board.records[offset / UNIT..].iter().zip(bytes.chunks_mut(UNIT)) {
            // SAFETY: a unit, reached while loom sees that nobody writes to it.
            unit.with(|unit| part.copy_from_slice(unsafe { &(&*unit)[..part.len()] }));
        }
        Ok(())
    }

    fn order_reads(&self) -> Result<()> {
        Ok(())
    }

    fn store(&self, word: u64) -> Result<()> {
        if self.board.refused_stores.load(Ordering::Relaxed) > 0 {
            self.board.refused_stores.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::System { operation: "a store", code: 5 });
        }
        let own = if self.produces { &self.board.head } else { &self.board.tail };
        own.store(word, Ordering::Release);
        Ok(())
    }

    fn load(&self) -> Result<u64> {
        let other = if self.produces { &self.board.tail } else { &self.board.head };
        Ok(other.load(Ordering::Acquire))
    }
}

fn ring(most: usize) -> (Producer<End>, Consumer<End>, Arc<Board>) {
    let capacity = record_len(most).unwrap_or(0);
    let records = (0..capacity / UNIT).map(|_| UnsafeCell::new([0xee; UNIT])).collect();
    let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
    let board = Arc::new(Board { records, head, tail, refused_stores: AtomicU32::new(0) });
    let end = |produces| End { board: board.clone(), produces, pending: RefCell::default() };
    (Producer::new(end(true), capacity, most), Consumer::new(end(false), capacity), board)
}

fn model(work: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Spinning has no end of interleavings without a bound.
    builder.preemption_bound = Some(3);
    builder.check(work);
}

fn good<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn pop(consumer: &mut Consumer<End>) -> Result<Option<Vec<u8>>> {
    let Some(len) = consumer.next_len()? else { return Ok(None) };
    let mut bytes = vec![0; len];
    consumer.take(&mut bytes)?;
    Ok(Some(bytes))
}

/// Waits for the next message; none once the ring is closed.
fn wait(consumer: &mut Consumer<End>) -> Option<Vec<u8>> {
    loop {
        match pop(consumer) {
            Ok(Some(message)) => return Some(message),
            Ok(None) => thread::yield_now(),
            Err(Error::RingClosed) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn messages_arrive_whole_and_in_order_round_the_end() {
    const MOST: usize = 3 * UNIT;
    model(|| {
        // The second leaves no room at the end for the third, and the fourth fills the ring.
        let messages: [&[u8]; 4] = [&[1; 8], &[2; 1], &[3; 16], &[4; MOST]];
        let (mut producer, mut consumer, _) = ring(MOST);
        let sender = thread::spawn(move || {
            let mut rest = &messages[..];
            while !rest.is_empty() {
                rest = &rest[good(producer.try_push(rest))..];
                if !rest.is_empty() {
                    thread::yield_now();
                }
            }
            good(producer.close(0));
        });
        for message in messages {
            assert_eq!(wait(&mut consumer).as_deref(), Some(message));
        }
        assert_eq!(wait(&mut consumer), None);
        assert!(sender.join().is_ok(), "the sender panicked");
    });
}

#[test]
fn a_close_is_seen_behind_all_messages() {
    model(|| {
        let (mut producer, mut consumer, _) = ring(3 * UNIT);
        let sender = thread::spawn(move || {
            assert_eq!(good(producer.try_push(&[&[7; 5][..]])), 1);
            good(producer.close(0));
            assert!(matches!(producer.try_push(&[&[8; 5][..]]), Err(Error::RingClosed)));
        });
        assert_eq!(wait(&mut consumer), Some(vec![7; 5]));
        assert_eq!(wait(&mut consumer), None);
        assert!(sender.join().is_ok(), "the sender panicked");
    });
}

#[test]
fn a_consumer_that_stops_never_frees_what_it_did_not_read() {
    model(|| {
        let (mut producer, mut consumer, _) = ring(3 * UNIT);
        let push = move || (0..3).map(|_| good(producer.try_push(&[&[9; 20][..]]))).sum();
        let sender = thread::spawn(push);
        let first = good(consumer.next_len());
        good(consumer.stop(ABORTED));
        assert!(matches!(consumer.next_len(), Err(Error::RingClosed)));
        let pushed: usize = sender.join().unwrap_or_else(|_| panic!("the sender panicked"));
        assert_eq!((pushed, first.is_none_or(|len| len == 20)), (1, true));
    });
}

#[test]
fn all_bytes_of_every_length_at_every_offset_are_ordered_before_the_head() {
    const MOST: usize = 7 * UNIT;
    for (len, first) in (0..=MOST).flat_map(|len| (0..=7).map(move |first| (len, first))) {
        model(move || {
            let (mut producer, mut consumer, _) = ring(MOST);
            // Empty messages move the ring's beginning by a unit each.
            for _ in 0..first {
                assert_eq!(good(producer.try_push(&[&[]])), 1);
                assert_eq!(good(pop(&mut consumer)), Some(Vec::new()));
            }
            for batch in (0..3_u8).map(|number| [vec![number; len], vec![!number; 1]]) {
                let mut rest = batch.each_ref().map(Vec::as_slice).to_vec();
                while !rest.is_empty() {
                    let pushed = good(producer.try_push(&rest));
                    for sent in rest.drain(..pushed) {
                        assert_eq!(good(pop(&mut consumer)).as_deref(), Some(sent), "{len} bytes after {first}");
                    }
                    // The rest before the end is returned when it is read.
                    assert_eq!(good(pop(&mut consumer)), None);
                }
            }
        });
    }
}

#[test]
fn a_store_that_failed_is_done_again_and_loses_no_message() {
    model(|| {
        // One message fills the ring.
        let (mut producer, mut consumer, board) = ring(100);
        let (first, second) = ([7; 100], [8; 100]);
        board.refused_stores.store(1, Ordering::Relaxed);
        assert!(producer.try_push(&[&first]).is_err());
        assert_eq!(good(pop(&mut consumer)), None, "not published");
        assert_eq!(good(producer.try_push(&[&second])), 0, "the ring is full");
        board.refused_stores.store(2, Ordering::Relaxed);
        assert_eq!(good(pop(&mut consumer)), Some(first.to_vec()));
        assert!(pop(&mut consumer).is_err());
        assert_eq!(good(producer.try_push(&[&second])), 0, "the room is not returned");
        assert_eq!(good(pop(&mut consumer)), None);
        assert_eq!(good(producer.try_push(&[&second])), 1);
        assert_eq!(good(pop(&mut consumer)), Some(second.to_vec()));
    });
}

#[test]
fn words_headers_and_lengths_that_cannot_be_are_refused() {
    model(|| {
        let (mut producer, mut consumer, board) = ring(100);
        assert!(matches!(producer.try_push(&[&[0; 101][..]]), Err(Error::MessageTooLong { len: 101, most: 100 })));
        assert_eq!(good(producer.try_push(&[&[1; 60][..], &[0; 101]])), 1, "the batch ends before it");
        board.tail.store(1000, Ordering::Relaxed);
        let refused = producer.try_push(&[&[1; 60][..]]);
        assert!(matches!(refused, Err(Error::RingCorrupt { what: "tail", value: 1000 })), "{refused:?}");

        // The refused push has published a skip, so that the ring is full.
        let write = |header: [u64; 2]| board.put(0, bytemuck::bytes_of(&header));
        for header in [[113, 0], [u64::MAX, 0], [60, 1], [SKIP, 0]] {
            write(header);
            let found = consumer.next_len();
            assert!(matches!(found, Err(Error::RingCorrupt { .. })), "{header:?}: {found:?}");
        }
        write([60, 0]);
        assert_eq!(good(pop(&mut consumer)), Some(vec![1; 60]));
        for head in [1, POSITION] {
            board.head.store(head, Ordering::Relaxed);
            assert!(matches!(consumer.next_len(), Err(Error::RingCorrupt { what: "head", .. })), "{head}");
        }
        board.head.store(128 | CLOSED, Ordering::Relaxed);
        assert!(matches!(consumer.next_len(), Err(Error::RingClosed)));
    });
}
