//! The two ends of a ring over memory that delays and reorders the producer's writes, as write-combining buffers do.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::rc::Rc;

use super::consumer::Consumer;
use super::layout::{CLOSED, Header, POSITION, UNIT, record_len};
use super::link::Link;
use super::producer::Producer;
use crate::{Error, Result};

/// A generator of numbers (xorshift), the same for each seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap_or(0)
    }
}

/// What the consumer sees of a direction's memory, and the writes on their way.
struct Board {
    records: Vec<u8>,
    head: u64,
    tail: u64,
    /// Single bytes, which arrive in any order until they are ordered.
    pending: Vec<(usize, u8)>,
    numbers: Numbers,
    /// Whether the producer's order is kept.
    orders: bool,
    /// The number of stores that fail from now on.
    refused_stores: usize,
}

impl Board {
    fn arrive(&mut self, index: usize) {
        let (offset, byte) = self.pending.swap_remove(index);
        self.records[offset] = byte;
    }
}

#[derive(Clone)]
struct End {
    board: Rc<RefCell<Board>>,
    produces: bool,
}

impl Link for End {
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let mut board = self.board.borrow_mut();
        for (offset, byte) in (offset..).zip(bytes) {
            // A byte is overtaken by a later one of the same address never.
            board.pending.retain(|(other, _)| *other != offset);
            board.pending.push((offset, *byte));
        }
        Ok(())
    }

    fn order_writes(&self, offset: usize, len: usize) -> Result<()> {
        let mut board = self.board.borrow_mut();
        while board.orders
            && let Some(index) = board.pending.iter().position(|(at, _)| (offset..offset + len).contains(at))
        {
            board.arrive(index);
        }
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&self.board.borrow().records[offset..offset + bytes.len()]);
        Ok(())
    }

    fn order_reads(&self) -> Result<()> {
        Ok(())
    }

    fn store(&self, word: u64) -> Result<()> {
        let mut board = self.board.borrow_mut();
        if board.refused_stores > 0 {
            board.refused_stores -= 1;
            return Err(Error::System { operation: "a store", code: 5 });
        }
        *(if self.produces { &mut board.head } else { &mut board.tail }) = word;
        Ok(())
    }

    fn load(&self) -> Result<u64> {
        let board = self.board.borrow();
        Ok(if self.produces { board.tail } else { board.head })
    }
}

fn ring(most: usize, seed: u64, orders: bool) -> (Producer<End>, Consumer<End>, Rc<RefCell<Board>>) {
    let capacity = record_len(most).unwrap_or(0);
    let numbers = Numbers(seed * 2 + 1);
    let records = vec![0xee; capacity];
    let (head, tail, pending, refused_stores) = Default::default();
    let board = Rc::new(RefCell::new(Board { records, head, tail, pending, numbers, orders, refused_stores }));
    let end = |produces| End { board: board.clone(), produces };
    (Producer::new(end(true), capacity, most), Consumer::new(end(false), capacity), board)
}

fn message(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + (at * 7 + len) as u64).to_le_bytes()[0]).collect()
}

fn pop(consumer: &mut Consumer<End>) -> Result<Option<Vec<u8>>> {
    let Some(len) = consumer.next_len()? else { return Ok(None) };
    let mut bytes = vec![0; len];
    consumer.take(&mut bytes)?;
    Ok(Some(bytes))
}

/// Sends messages of random lengths in random batches, at random moments; returns the messages that arrived wrong.
fn traffic(most: usize, seed: u64, orders: bool) -> Result<usize> {
    let (mut producer, mut consumer, board) = ring(most, seed, orders);
    let (mut sent, mut expected, mut wrong) = (0, std::collections::VecDeque::new(), 0);
    for _ in 0..300 {
        let action = board.borrow_mut().numbers.below(3);
        match action {
            0 => {
                let count = 1 + board.borrow_mut().numbers.below(4);
                let lens: Vec<_> = (0..count).map(|_| board.borrow_mut().numbers.below(most + 1)).collect();
                let batch: Vec<_> = (sent..).zip(lens).map(|(number, len)| message(number, len)).collect();
                let messages: Vec<_> = batch.iter().map(Vec::as_slice).collect();
                let pushed = producer.try_push(&messages)?;
                sent += pushed as u64;
                expected.extend(batch.into_iter().take(pushed));
            }
            1 => {
                if let Some(bytes) = pop(&mut consumer)? {
                    wrong += usize::from(expected.pop_front() != Some(bytes));
                }
            }
            _ => {
                let mut board = board.borrow_mut();
                for _ in 0..board.numbers.below(64) {
                    let waiting = board.pending.len();
                    if waiting > 0 {
                        let index = board.numbers.below(waiting);
                        board.arrive(index);
                    }
                }
            }
        }
    }
    while let Some(bytes) = pop(&mut consumer)? {
        wrong += usize::from(expected.pop_front() != Some(bytes));
    }
    Ok(wrong + expected.len())
}

#[test]
fn a_store_that_failed_is_done_again_and_loses_no_message() -> Result<()> {
    // One message fills the ring.
    let (mut producer, mut consumer, board) = ring(100, 1, true);
    let (first, second) = ([7; 100], [8; 100]);
    board.borrow_mut().refused_stores = 1;
    assert!(producer.try_push(&[&first]).is_err());
    assert_eq!(pop(&mut consumer)?, None, "not published");
    assert_eq!(producer.try_push(&[&second])?, 0, "the ring is full");
    board.borrow_mut().refused_stores = 2;
    assert_eq!(pop(&mut consumer)?, Some(first.to_vec()));
    assert!(pop(&mut consumer).is_err());
    assert_eq!(producer.try_push(&[&second])?, 0, "the room is not returned");
    assert_eq!(pop(&mut consumer)?, None);
    assert_eq!(producer.try_push(&[&second])?, 1);
    assert_eq!(pop(&mut consumer)?, Some(second.to_vec()));
    Ok(())
}

#[test]
fn messages_arrive_whole_and_in_order_however_late_writes_are() -> Result<()> {
    for seed in 0..50 {
        for most in [1, 16, 17, 100] {
            assert_eq!(traffic(most, seed, true)?, 0, "seed {seed}, messages up to {most} bytes");
        }
    }
    Ok(())
}

/// Without the fence before the head, late writes are noticed: the test above tests something.
#[test]
fn messages_without_a_fence_arrive_wrong() {
    let broken = (0..50).filter(|seed| !matches!(traffic(100, *seed, false), Ok(0))).count();
    assert!(broken > 40, "only {broken} of 50 runs noticed");
}

#[test]
fn every_length_passes_every_offset() -> Result<()> {
    const MOST: usize = 7 * UNIT;
    for len in 0..=MOST {
        for first in 0..=7 {
            let (mut producer, mut consumer, _) = ring(MOST, 1, true);
            // Empty messages move the ring's beginning by a unit each.
            for number in 0..first {
                assert_eq!(producer.try_push(&[&[][..]])?, 1, "{number}");
                assert_eq!(pop(&mut consumer)?, Some(Vec::new()));
            }
            for number in 0..20 {
                let sent = message(number, len);
                // The rest before the end may have to be returned before there is room for a long one.
                while producer.try_push(&[&sent[..]])? == 0 {
                    assert_eq!(pop(&mut consumer)?, None);
                }
                assert_eq!(pop(&mut consumer)?, Some(sent), "{len} bytes after {first}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() -> Result<()> {
    let (mut producer, mut consumer, _) = ring(3 * UNIT, 1, true);
    assert_eq!(pop(&mut consumer)?, None);
    assert_eq!(producer.try_push(&[&[1; 10][..], &[2; 10], &[3; 10]])?, 2, "of 64 bytes");
    assert_eq!(producer.try_push(&[&[3; 10][..]])?, 0);
    assert_eq!((producer.counters.messages, producer.counters.publications, producer.counters.refusals), (2, 1, 2));
    assert_eq!(producer.used()?, 64);
    assert_eq!(pop(&mut consumer)?, Some(vec![1; 10]));
    assert_eq!(producer.used()?, 32);
    assert_eq!(producer.try_push(&[&[3; 10][..]])?, 1);
    assert_eq!((pop(&mut consumer)?, pop(&mut consumer)?), (Some(vec![2; 10]), Some(vec![3; 10])));
    assert_eq!((consumer.counters.messages, consumer.counters.bytes), (3, 30));
    Ok(())
}

#[test]
fn a_message_that_is_too_long_ends_a_batch_before_it() -> Result<()> {
    let (mut producer, _, _) = ring(20, 1, true);
    let too_long = Err(Error::MessageTooLong { len: 21, most: 20 }).map_err(|error: Error| error.to_string());
    let text = |result: Result<usize>| result.map_err(|error| error.to_string());
    assert_eq!(text(producer.try_push(&[&[0; 21][..]])), too_long);
    assert_eq!(text(producer.try_push(&[&[0; 1][..], &[0; 21]])), Ok(1));
    Ok(())
}

#[test]
fn words_and_headers_that_no_kernel_writes_are_refused() -> Result<()> {
    let (mut producer, mut consumer, board) = ring(100, 1, true);
    assert_eq!(producer.try_push(&[&[1; 60][..]])?, 1);
    board.borrow_mut().tail = 1000;
    let refused = |result: Result<usize>| matches!(result, Err(Error::RingCorrupt { what: "tail", value: 1000 }));
    assert!(refused(producer.try_push(&[&[1; 60][..]])));

    // The refused push has published a skip, so that the ring is full.
    let len = |len| Header::Message { len, number: 0 };
    for header in [len(113), len(usize::MAX), Header::Message { len: 60, number: 1 }, Header::Skip] {
        board.borrow_mut().records[..UNIT].copy_from_slice(&header.to_bytes());
        let found = consumer.next_len();
        assert!(matches!(found, Err(Error::RingCorrupt { .. })), "{header:?}: {found:?}");
    }
    board.borrow_mut().records[..UNIT].copy_from_slice(&len(60).to_bytes());
    assert_eq!(pop(&mut consumer)?, Some(vec![1; 60]));
    for head in [1, POSITION] {
        board.borrow_mut().head = head;
        assert!(matches!(consumer.next_len(), Err(Error::RingCorrupt { what: "head", .. })), "{head}");
    }
    board.borrow_mut().head = 128 | CLOSED;
    assert!(matches!(consumer.next_len(), Err(Error::RingClosed)));
    Ok(())
}
