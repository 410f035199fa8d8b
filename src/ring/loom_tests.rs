//! Models of a ring's two ends that loom runs through every interleaving (`make nightly PARTS=loom`).
#![expect(unsafe_code, reason = "loom's cells")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::consumer::Consumer;
use super::layout::{ABORTED, UNIT};
use super::link::Link;
use super::producer::Producer;
use crate::{Error, Result};

/// The memory of a direction. loom fails a model in which both ends reach a unit at a time.
struct Board {
    records: Vec<UnsafeCell<[u8; UNIT]>>,
    head: AtomicU64,
    tail: AtomicU64,
}

// SAFETY: the units are reached through loom's cells, which find races.
unsafe impl Sync for Board {}

const CAPACITY: usize = 4 * UNIT;
const MOST: usize = CAPACITY - UNIT;

/// One end of a board.
struct End {
    board: Arc<Board>,
    produces: bool,
}

impl End {
    fn units(&self, offset: usize, len: usize) -> impl Iterator<Item = (&UnsafeCell<[u8; UNIT]>, usize)> {
        assert!(offset.is_multiple_of(UNIT) && offset + len <= CAPACITY);
        self.board.records[offset / UNIT..].iter().zip((0..len).step_by(UNIT))
    }
}

impl Link for End {
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        for (unit, at) in self.units(offset, bytes.len()) {
            let part = &bytes[at..bytes.len().min(at + UNIT)];
            // SAFETY: a unit, reached while loom sees that nobody else does.
            unit.with_mut(|unit| unsafe { (&mut *unit)[..part.len()].copy_from_slice(part) });
        }
        Ok(())
    }

    fn order_writes(&self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len();
        for (unit, at) in self.units(offset, len) {
            let part = &mut bytes[at..len.min(at + UNIT)];
            let count = part.len();
            // SAFETY: a unit, reached while loom sees that nobody writes to it.
            unit.with(|unit| unsafe { part.copy_from_slice(&(&*unit)[..count]) });
        }
        Ok(())
    }

    fn order_reads(&self) -> Result<()> {
        Ok(())
    }

    fn store(&self, word: u64) -> Result<()> {
        let own = if self.produces { &self.board.head } else { &self.board.tail };
        own.store(word, Ordering::Release);
        Ok(())
    }

    fn load(&self) -> Result<u64> {
        let other = if self.produces { &self.board.tail } else { &self.board.head };
        Ok(other.load(Ordering::Acquire))
    }
}

fn ring() -> (Producer<End>, Consumer<End>) {
    let records = (0..CAPACITY / UNIT).map(|_| UnsafeCell::new([0; UNIT])).collect();
    let board = Arc::new(Board { records, head: AtomicU64::new(0), tail: AtomicU64::new(0) });
    let end = |produces| End { board: board.clone(), produces };
    (Producer::new(end(true), CAPACITY, MOST), Consumer::new(end(false), CAPACITY))
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

/// The next message; none once the ring is closed.
fn pop(consumer: &mut Consumer<End>) -> Option<Vec<u8>> {
    loop {
        match consumer.next_len() {
            Ok(Some(len)) => {
                let mut message = vec![0; len];
                good(consumer.take(&mut message));
                return Some(message);
            }
            Ok(None) => thread::yield_now(),
            Err(Error::RingClosed) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn messages_arrive_whole_and_in_order_round_the_end() {
    model(|| {
        // The second leaves no room at the end for the third, and the fourth fills the ring.
        let messages: [&[u8]; 4] = [&[1; 8], &[2; 1], &[3; 16], &[4; MOST]];
        let (mut producer, mut consumer) = ring();
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
            assert_eq!(pop(&mut consumer).as_deref(), Some(message));
        }
        assert_eq!(pop(&mut consumer), None);
        assert!(sender.join().is_ok(), "the sender panicked");
    });
}

#[test]
fn a_close_is_seen_behind_all_messages() {
    model(|| {
        let (mut producer, mut consumer) = ring();
        let sender = thread::spawn(move || {
            assert_eq!(good(producer.try_push(&[&[7; 5][..]])), 1);
            good(producer.close(0));
            assert!(matches!(producer.try_push(&[&[8; 5][..]]), Err(Error::RingClosed)));
        });
        assert_eq!(pop(&mut consumer), Some(vec![7; 5]));
        assert_eq!(pop(&mut consumer), None);
        assert!(sender.join().is_ok(), "the sender panicked");
    });
}

#[test]
fn a_consumer_that_stops_never_frees_what_it_did_not_read() {
    model(|| {
        let (mut producer, mut consumer) = ring();
        let sender = thread::spawn(move || {
            let mut pushed = 0;
            for _ in 0..3 {
                pushed += good(producer.try_push(&[&[9; 20][..]]));
            }
            pushed
        });
        let first = good(consumer.next_len());
        good(consumer.stop(ABORTED));
        assert!(matches!(consumer.next_len(), Err(Error::RingClosed)));
        let pushed = sender.join().unwrap_or_else(|_| panic!("the sender panicked"));
        assert_eq!((pushed, first.is_none_or(|len| len == 20)), (1, true));
    });
}
