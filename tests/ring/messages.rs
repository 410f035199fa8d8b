//! Messages of every length, at every place of a ring, in both directions.

use std::thread;
use std::time::Instant;

use support::{Random, Result};
use vkgdr::ring::Ring;

use crate::{KERNELS, Setup, TIMEOUT, message, report};

#[test]
fn messages_of_every_length_pass_every_offset_of_a_ring() -> Result {
    const MOST: usize = 200;
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, MOST, 64)?;
    setup.start(&setup.kernel(KERNELS, "check")?, &ring, [u64::MAX, 0, 0])?;
    let (mut number, mut bytes) = (0, 0);
    // Each length starts further on in the ring of 14 units than the last, so that each of them crosses its end.
    for len in (0..=MOST).chain([1, MOST, MOST, 1, MOST]) {
        for _ in 0..15 {
            ring.push(&message(number, len), TIMEOUT)?;
            (number, bytes) = (number + 1, bytes + len as u64);
        }
    }
    ring.close()?;
    assert_eq!(report(&ring)?, [0, number, bytes]);
    setup.stream.synchronize()?;
    let stats = ring.stats()?;
    assert_eq!((stats.pushed, stats.pushed_bytes, stats.unread_bytes, stats.popped), (number, bytes, 0, 1));
    Ok(())
}

#[test]
fn many_messages_in_batches_arrive_in_order() -> Result {
    const MOST: u64 = 20_000;
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 1 << 16, 64)?;
    setup.start(&setup.kernel(KERNELS, "check")?, &ring, [u64::MAX, 0, 0])?;
    let (mut random, mut number, mut bytes) = (Random::new(7), 0, 0);
    let begin = Instant::now();
    while number < MOST {
        let count = (1 + random.below(32) as u64).min(MOST - number);
        let lens: Vec<_> = (0..count).map(|_| random.below(40)).collect();
        let batch: Vec<_> = (number..).zip(&lens).map(|(number, len)| message(number, *len)).collect();
        let batch: Vec<_> = batch.iter().map(Vec::as_slice).collect();
        let mut rest = &batch[..];
        while !rest.is_empty() {
            assert!(begin.elapsed() < TIMEOUT * 10);
            let pushed = ring.try_push_all(rest)?;
            rest = &rest[pushed..];
            if pushed == 0 {
                thread::yield_now();
            }
        }
        (number, bytes) = (number + count, bytes + lens.iter().map(|len| *len as u64).sum::<u64>());
    }
    ring.close()?;
    assert_eq!(report(&ring)?, [0, number, bytes]);
    let stats = ring.stats()?;
    assert!(stats.publications < number, "{stats:?}");
    Ok(())
}

#[test]
fn a_block_of_threads_answers_messages_of_every_length() -> Result {
    const MOST: usize = 5000;
    let setup = Setup::new()?;
    for threads in [1, 64] {
        let ring = Ring::new(&setup.gpu, MOST, MOST)?;
        setup.echo(&ring, threads)?;
        let (mut answer, mut random) = (Vec::new(), Random::new(3));
        for number in 0..200 {
            let len = [0, 1, MOST, random.below(MOST)][usize::try_from(number)? % 4];
            ring.push(&message(number, len), TIMEOUT)?;
            ring.pop(&mut answer, TIMEOUT)?;
            assert_eq!(answer, message(number, len), "number {number} of {len} bytes, {threads} threads");
        }
        ring.close()?;
        setup.stream.synchronize()?;
    }
    Ok(())
}

#[test]
fn both_directions_flow_at_once() -> Result {
    const COUNT: u64 = 2000;
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 3000, 700)?;
    setup.echo(&ring, 1)?;
    let len = |number: u64| usize::try_from(number * 37 % 701).unwrap_or(0);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for number in 0..COUNT {
                ring.push(&message(number, len(number)), TIMEOUT)?;
            }
            ring.close()
        });
        let mut buffer = vec![0; 700];
        for number in 0..COUNT {
            let size = ring.pop_into(&mut buffer, TIMEOUT)?;
            assert_eq!(buffer[..size], message(number, len(number)), "number {number}");
        }
        sender.join().unwrap_or_else(|_| panic!("the sender panicked"))?;
        Ok(())
    })
}

#[test]
fn messages_of_several_threads_arrive_whole() -> Result {
    const EACH: u64 = 500;
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 1000, 1000)?;
    setup.echo(&ring, 1)?;
    thread::scope(|scope| {
        let senders: Vec<_> = (0..3_u8)
            .map(|sender| {
                let ring = &ring;
                scope.spawn(move || {
                    (0..EACH).try_for_each(|number| ring.push(&[&[sender][..], &message(number, 90)].concat(), TIMEOUT))
                })
            })
            .collect();
        let (mut next, mut answer) = ([0; 3], Vec::new());
        for _ in 0..3 * EACH {
            ring.pop(&mut answer, TIMEOUT)?;
            let sender = usize::from(answer[0]);
            assert_eq!(answer[1..], message(next[sender], 90), "sender {sender}");
            next[sender] += 1;
        }
        assert_eq!(next, [EACH; 3]);
        senders.into_iter().try_for_each(|sender| sender.join().unwrap_or_else(|_| panic!("a sender panicked")))?;
        Ok(())
    })
}

#[test]
fn answers_flow_without_messages() -> Result {
    const COUNT: u64 = 1000;
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 16, 300)?;
    setup.start(&setup.kernel(KERNELS, "produce")?, &ring, [COUNT, 300, 0])?;
    let mut answer = Vec::new();
    for number in 0..COUNT {
        ring.pop(&mut answer, TIMEOUT)?;
        let len = usize::try_from((number.wrapping_mul(2_654_435_761) >> 7) % 301)?;
        assert_eq!(answer, message(number, len), "number {number}");
    }
    let closed = ring.pop(&mut answer, TIMEOUT);
    assert!(matches!(closed, Err(vkgdr::Error::RingClosed)), "{closed:?}");
    Ok(())
}
