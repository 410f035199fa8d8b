//! Captures that are invalid, that cannot take in what they are given, or whose streams and threads end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use support::codes::NOT_SUPPORTED;
use support::cuda::PrimaryContext;

use super::{
    GLOBAL, INVALIDATED, RELAXED, UNSUPPORTED, allocate, begin, end, event, fill, record, status, stream, wait,
};
use crate::graphs::{destroy, discard, graph, instantiate};
use crate::{call, free, given, good};

const PER_THREAD: usize = 2;

#[test]
fn a_capture_on_a_threads_own_stream_ends_with_the_thread() {
    let _context = PrimaryContext::retain_and_push(0);
    let graphs = support::simcuda().map(|sim| sim.live_objects_of("graph"));
    let ended = thread::spawn(|| {
        let _context = PrimaryContext::retain_and_push(0);
        good(begin(PER_THREAD, GLOBAL));
    });
    // Until the thread's own values are destroyed, which the end of a scope does not wait for.
    ended.join().unwrap_or_else(|_| panic!("the thread panicked"));
    // Forbidden while it captured.
    let address = allocate();
    free(address);
    assert_eq!(support::simcuda().map(|sim| sim.live_objects_of("graph")), graphs);
}

#[test]
fn nothing_joins_an_invalid_capture() {
    let _context = PrimaryContext::retain_and_push(0);
    let ((_first, first), (_second, second)) = (stream(), stream());
    let (inside, outside) = (event(), event());
    good(record(outside, second));
    good(begin(first, RELAXED));
    good(record(inside, first));
    assert_eq!(call!(cuStreamSynchronize(first => usize)), UNSUPPORTED);
    assert_eq!((wait(second, inside), status(second)), (INVALIDATED, 0));
    assert_eq!((wait(first, inside), wait(first, outside)), (INVALIDATED, INVALIDATED));
    assert_eq!(end(first), Err(INVALIDATED));
}

#[test]
fn work_whose_nodes_are_not_simulated_leaves_the_capture_valid() {
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    let a = allocate();
    let pooled: u64 = given(|out| call!(cuMemAllocAsync(out => *mut u64, 4 => usize, stream => usize)));
    let mut pointer = 0_u64;
    let mut calls = || {
        [
            call!(cuMemAllocAsync(&raw mut pointer => *mut u64, 4 => usize, stream => usize)),
            call!(cuMemFreeAsync(pooled => u64, stream => usize)),
            call!(cuStreamWriteValue32_v2(stream => usize, a => u64, 1 => u32, 0 => u32)),
            call!(cuStreamWaitValue32_v2(stream => usize, a => u64, 1 => u32, 0 => u32)),
        ]
    };
    good(begin(stream, GLOBAL));
    assert_eq!(calls(), [NOT_SUPPORTED; 4]);
    assert_eq!(status(stream), 1);
    good(fill(a, 1, stream));
    destroy(end(stream).unwrap_or_else(|code| panic!("{code}")));
    good(begin(stream, GLOBAL));
    assert_eq!(call!(cuStreamSynchronize(stream => usize)), UNSUPPORTED);
    assert_eq!(calls(), [INVALIDATED; 4]);
    assert_eq!(end(stream), Err(INVALIDATED));
    good(call!(cuMemFreeAsync(pooled => u64, stream => usize)));
    good(call!(cuStreamSynchronize(stream => usize)));
}

#[test]
fn data_of_edges_is_refused_unless_it_is_zero() {
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    let graph = graph();
    let node: usize =
        given(|out| call!(cuGraphAddEmptyNode(out => *mut usize, graph => usize, 0 => usize, 0 => usize)));
    let begin_behind = |data: u64| {
        call!(cuStreamBeginCaptureToGraph(
            stream => usize, graph => usize, &raw const node => *const usize, &raw const data => *const u64,
            1 => usize, 0 => u32
        ))
    };
    let update = |data: u64| {
        call!(cuStreamUpdateCaptureDependencies_v2(
            stream => usize, &raw const node => *const usize, &raw const data => *const u64, 1 => usize, 0 => u32
        ))
    };
    assert_eq!((begin_behind(1), status(stream)), (NOT_SUPPORTED, 0));
    good(begin_behind(0));
    assert_eq!((update(1 << 16), status(stream)), (NOT_SUPPORTED, 1));
    good(update(0));
    assert_eq!(end(stream), Ok(graph));
    destroy(graph);
}

extern "C" fn count(counter: *const AtomicU32) {
    // SAFETY: the test keeps the value until its graphs are gone.
    unsafe { &*counter }.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_captured_launch_keeps_the_objects_of_the_launched_graph() {
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    let (ends, destructor) = (AtomicU32::new(0), count as extern "C" fn(*const AtomicU32));
    let object: usize = given(|out| {
        call!(cuUserObjectCreate(
            out => *mut usize, &raw const ends => *const AtomicU32,
            destructor => extern "C" fn(*const AtomicU32), 1 => u32, 1 => u32
        ))
    });
    let inner = graph();
    good(call!(cuGraphRetainUserObject(inner => usize, object => usize, 1 => u32, 1 => u32)));
    let executable = instantiate(inner);
    good(begin(stream, GLOBAL));
    good(call!(cuGraphLaunch(executable => usize, stream => usize)));
    let outer = end(stream).unwrap_or_else(|code| panic!("{code}"));
    destroy(inner);
    discard(executable);
    assert_eq!(ends.load(Ordering::Relaxed), 0, "the captured launch has it");
    destroy(outer);
    assert_eq!(ends.load(Ordering::Relaxed), 1);
}

#[test]
fn waits_of_one_thread_leave_the_work_of_another_in_order() {
    const ROUNDS: usize = 100_000;
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    let (address, event, done) = (allocate(), event(), AtomicBool::new(false));
    good(begin(stream, RELAXED));
    good(record(event, stream));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _context = PrimaryContext::retain_and_push(0);
            let codes: Vec<i32> = (0..ROUNDS).map(|_| fill(address, 1, stream)).collect();
            done.store(true, Ordering::Release);
            assert!(codes.iter().all(|code| *code == 0));
        });
        for _ in 0..3 {
            scope.spawn(|| {
                let _context = PrimaryContext::retain_and_push(0);
                while !done.load(Ordering::Acquire) {
                    good(wait(stream, event));
                }
            });
        }
    });
    let graph = end(stream).unwrap_or_else(|code| panic!("{code}"));
    let (mut from, mut to, mut count) = (vec![0_usize; ROUNDS], vec![0_usize; ROUNDS], ROUNDS);
    good(call!(cuGraphGetEdges(
        graph => usize, from.as_mut_ptr() => *mut usize, to.as_mut_ptr() => *mut usize, &raw mut count => *mut usize
    )));
    let followed: HashSet<usize> = from[..count].iter().copied().collect();
    assert_eq!(followed.len(), ROUNDS - 1, "each fill but the last has one behind it");
    destroy(graph);
}
