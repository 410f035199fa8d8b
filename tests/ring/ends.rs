//! The ends of a ring: closed, aborted and dropped at any time, kernels after one another, forked children.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use support::blocking::waits;
use support::cuda::{PrimaryContext, Stream};
use support::fork::{assert_forked, in_child};
use support::ledger::Live;
use support::{Result, refused, simcuda, skip};
use vkgdr::ring::Ring;
use vkgdr::{AllocateOptions, Error, MemoryKind};

use crate::{KERNELS, Setup, TIMEOUT, message, report};

fn closed<T>(result: vkgdr::Result<T>) -> bool {
    matches!(result, Err(Error::RingClosed))
}

#[test]
fn a_closed_ring_takes_nothing_more_and_gives_what_is_left() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 1000, 1000)?;
    for number in 0..3 {
        assert!(ring.try_push(&message(number, 100))?);
    }
    ring.close()?;
    ring.close()?;
    assert!(closed(ring.try_push(b"more")) && closed(ring.push(b"more", TIMEOUT)));
    setup.echo(&ring, 32)?;
    let mut answer = Vec::new();
    for number in 0..3 {
        ring.pop(&mut answer, TIMEOUT)?;
        assert_eq!(answer, message(number, 100));
    }
    assert!(closed(ring.pop(&mut answer, TIMEOUT)), "the kernel has closed its end");
    assert!(closed(ring.try_pop(&mut answer)) && closed(ring.try_pop_into(&mut [])));
    setup.stream.synchronize()?;
    Ok(())
}

#[test]
fn an_abort_ends_a_kernel_that_waits_for_messages_or_for_room() -> Result {
    let setup = Setup::new()?;
    let mut answer = Vec::new();
    for (kernel, len) in [("check", 0), ("produce", 64)] {
        let ring = Ring::new(&setup.gpu, 64, 64)?;
        setup.start(&setup.kernel(KERNELS, kernel)?, &ring, [u64::MAX, len, 0])?;
        if len == 0 {
            ring.push(&message(0, 10), TIMEOUT)?;
        } else {
            ring.pop(&mut answer, TIMEOUT)?;
            assert_eq!(answer, message(0, answer.len()));
        }
        ring.abort()?;
        setup.stream.synchronize()?;
        assert!(closed(ring.try_push(b"more")) && closed(ring.try_pop(&mut answer)));
        ring.abort()?;
    }
    Ok(())
}

#[test]
fn an_abort_ends_a_kernel_that_only_answers_although_there_is_room() -> Result {
    let setup = Setup::new()?;
    // Room for the answers of three minutes.
    let ring = Ring::new(&setup.gpu, 64, 3 << 20)?;
    setup.start(&setup.kernel(KERNELS, "produce")?, &ring, [u64::MAX, 0, 1_000_000])?;
    ring.pop(&mut Vec::new(), TIMEOUT)?;
    ring.abort()?;
    let (ended, deadline) = (setup.stream.record_event(None)?, Instant::now() + TIMEOUT);
    while !ended.is_complete() {
        assert!(Instant::now() < deadline, "the kernel answers until there is no room");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[test]
fn an_abort_in_the_middle_of_a_long_queue_ends_the_kernel_before_its_end() -> Result {
    let setup = Setup::new()?;
    for closes in [false, true] {
        let ring = Ring::new(&setup.gpu, 1 << 20, 64)?;
        for number in 0..10_000 {
            assert!(ring.try_push(&message(number, 50))?);
        }
        // Ten seconds for all of them.
        setup.start(&setup.kernel(KERNELS, "check")?, &ring, [u64::MAX, 0, 1_000_000])?;
        ring.abort()?;
        if closes {
            // It takes nothing back.
            ring.close()?;
        }
        let begin = Instant::now();
        setup.stream.synchronize()?;
        assert!(ring.stats()?.unread_bytes > 400_000, "{:?} after {:?}", ring.stats()?, begin.elapsed());
    }
    Ok(())
}

#[test]
fn an_abort_by_another_thread_ends_waits() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 64, 64)?;
    assert!(ring.try_push(&message(0, 64))?);
    thread::scope(|scope| {
        let push = scope.spawn(|| ring.push(&message(1, 64), TIMEOUT));
        let pop = scope.spawn(|| ring.pop(&mut Vec::new(), TIMEOUT));
        thread::sleep(Duration::from_millis(5));
        ring.abort()?;
        assert!(push.join().is_ok_and(closed) && pop.join().is_ok_and(closed));
        Ok(())
    })
}

#[test]
fn a_drop_in_the_middle_ends_the_kernel() -> Result {
    let setup = Setup::new()?;
    for _ in 0..5 {
        let ring = Ring::new(&setup.gpu, 4096, 4096)?;
        setup.echo(&ring, 32)?;
        for number in 0..10 {
            ring.push(&message(number, 300), TIMEOUT)?;
        }
        drop(ring);
        setup.stream.synchronize()?;
    }
    Ok(())
}

#[test]
fn rings_are_dropped_while_the_kernels_of_others_run() -> Result {
    let setups = [Setup::new()?, Setup::new()?];
    [false, true].into_iter().try_for_each(|bound| drop_beside_others(&setups, bound))
}

fn drop_beside_others(setups: &[Setup; 2], bound: bool) -> Result {
    // Both before the first kernel: a driver may wait for running kernels to allocate.
    let rings = || -> Result<[Ring; 2]> {
        let rings = [Ring::new(&setups[0].gpu, 100, 100)?, Ring::new(&setups[0].gpu, 100, 100)?];
        if bound {
            setups.iter().zip(&rings).try_for_each(|(setup, ring)| ring.bind_stream(&setup.stream))?;
        }
        setups.iter().zip(&rings).try_for_each(|(setup, ring)| setup.echo(ring, 1))?;
        Ok(rings)
    };
    let before = Live::now();
    drop(rings()?);
    assert_eq!(Live::now(), before, "the last drop frees the memory of both");

    let [first, second] = rings()?;
    drop(first);
    setups[0].stream.synchronize()?;
    assert_eq!(Arc::strong_count(&setups[0].stream), 1, "a dropped ring keeps no stream");
    second.push(&message(0, 10), TIMEOUT)?;
    let mut answer = Vec::new();
    second.pop(&mut answer, TIMEOUT)?;
    assert_eq!(answer, message(0, 10));
    Ok(())
}

#[test]
fn a_ring_that_cannot_be_made_is_refused_while_the_kernel_of_another_ring_runs() -> Result {
    if simcuda().is_none() {
        return skip("NVIDIA's cuMemFree itself waits for the device");
    }
    let setup = Setup::new()?;
    let _context = PrimaryContext::retain_and_push(0);
    let answers_exceed_all_memory = || Ring::new(&setup.gpu, 64, 1 << 60);
    let messages_are_not_mapped = || Ring::with_options(&setup.gpu, 64, 64, AllocateOptions::new(MemoryKind::Device));
    let refusals: [&dyn Fn() -> vkgdr::Result<Ring>; 2] = [&answers_exceed_all_memory, &messages_are_not_mapped];
    for make in refusals {
        let (live, running) = (Live::now(), Stream::create());
        let (waited, made) = waits(running.hold(), "cuCtxSynchronize", || Ok(make()))?;
        let error = refused(made);
        assert!(!waited, "waited for a kernel: {error}");
        running.synchronize();
        assert_eq!(Live::now(), live);
    }
    Ok(())
}

#[test]
fn a_kernel_goes_on_where_the_one_before_it_stopped() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 500, 500)?;
    let kernel = setup.kernel(KERNELS, "check")?;
    let mut number = 0;
    for round in 0..20_u64 {
        setup.start(&kernel, &ring, [round % 3 + 1, 0, 0])?;
        for _ in 0..round % 3 + 1 {
            ring.push(&message(number, 77), TIMEOUT)?;
            number += 1;
        }
        assert_eq!(report(&ring)?, [0, round % 3 + 1, (round % 3 + 1) * 77]);
        setup.stream.synchronize()?;
    }
    assert_eq!(ring.stats()?.unread_bytes, 0);
    Ok(())
}

#[test]
fn a_kernel_of_another_version_does_nothing() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 500, 500)?;
    let (found, _) = support::memory_of(ring.device_ptr()).ok_or("a ring's memory is found by its address")?;
    found.write(0, &[2_u64])?;
    found.flush(..)?;
    setup.echo(&ring, 1)?;
    setup.stream.synchronize()?;
    Ok(())
}

#[test]
fn a_forked_child_neither_uses_nor_ends_the_ring() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 500, 500)?;
    setup.echo(&ring, 1)?;
    let mut answer = Vec::new();
    in_child(|| {
        assert_forked(ring.try_push(b"child"), "try_push");
        assert_forked(ring.push(b"child", TIMEOUT), "push");
        assert_forked(ring.try_pop(&mut Vec::new()), "try_pop");
        assert_forked(ring.pop_into(&mut [0; 9], TIMEOUT), "pop_into");
        assert_forked(ring.close(), "close");
        assert_forked(ring.abort(), "abort");
        assert_forked(ring.stats(), "stats");
        // SAFETY: the parent's value is another one.
        drop(unsafe { std::ptr::read(&raw const ring) });
        Ok(())
    })?;
    ring.push(&message(0, 100), TIMEOUT)?;
    ring.pop(&mut answer, TIMEOUT)?;
    assert_eq!(answer, message(0, 100));
    Ok(())
}

#[test]
fn a_push_to_a_kernel_that_failed_times_out() -> Result {
    if simcuda().is_none() {
        return skip("a fault would end the context");
    }
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 64, 64)?;
    let (found, _) = support::memory_of(ring.device_ptr()).ok_or("a ring's memory is found by its address")?;
    // The address of the messages.
    found.write(8, &[0x10_u64])?;
    found.flush(..)?;
    setup.echo(&ring, 1)?;
    ring.push(&message(0, 10), TIMEOUT)?;
    assert!(setup.stream.synchronize().is_err(), "the kernel reads at 0x10");
    assert!(matches!(ring.push(&message(1, 64), crate::MOMENT), Err(Error::RingTimeout { .. })));
    Ok(())
}
