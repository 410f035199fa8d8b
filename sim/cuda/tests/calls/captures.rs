//! Captures of streams into graphs.

mod ends;
mod user_objects;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::codes::{CAPTURED_EVENT, INVALID_VALUE};
use support::cuda::{PrimaryContext, Stream};

use crate::graphs::{destroy, discard, instantiate};
use crate::{call, free, given, good};

const ILLEGAL_STATE: i32 = 401;
const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const MERGE: i32 = 902;
const UNMATCHED: i32 = 903;
const UNJOINED: i32 = 904;
const ISOLATION: i32 = 905;
const IMPLICIT: i32 = 906;
const WRONG_THREAD: i32 = 908;
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

const LEN: usize = 64;
const ROUNDS: usize = 150_000;

fn stream() -> (Stream, usize) {
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    (stream, raw)
}

fn blocking_stream() -> usize {
    given(|out| call!(cuStreamCreate(out => *mut usize, 0 => u32)))
}

fn event() -> usize {
    given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32)))
}

fn begin(stream: usize, mode: u32) -> i32 {
    call!(cuStreamBeginCapture_v2(stream => usize, mode => u32))
}

fn end(stream: usize) -> Result<usize, i32> {
    let mut graph = 1;
    match call!(cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)) {
        0 => Ok(graph),
        code => {
            assert_eq!(graph, 0, "no graph");
            Err(code)
        }
    }
}

fn status(stream: usize) -> u32 {
    given(|out| call!(cuStreamIsCapturing(stream => usize, out => *mut u32)))
}

fn fill(address: u64, byte: u8, stream: usize) -> i32 {
    call!(cuMemsetD8Async(address => u64, byte => u8, LEN => usize, stream => usize))
}

fn record(event: usize, stream: usize) -> i32 {
    call!(cuEventRecord(event => usize, stream => usize))
}

fn wait(stream: usize, event: usize) -> i32 {
    call!(cuStreamWaitEvent(stream => usize, event => usize, 0 => u32))
}

fn nodes(graph: usize) -> usize {
    given(|out| call!(cuGraphGetNodes(graph => usize, 0 => usize, out => *mut usize)))
}

fn allocate() -> u64 {
    let address = crate::allocate(LEN);
    crate::fill(address, 0, LEN);
    address
}

fn read(address: u64) -> Vec<u8> {
    crate::read(address, LEN)
}

#[test]
fn captured_work_is_done_by_launches_only() {
    let _context = PrimaryContext::retain_and_push(0);
    let ((_first, first), (_second, second)) = (stream(), stream());
    let (a, b, fork, join) = (allocate(), allocate(), event(), event());
    good(begin(first, GLOBAL));
    assert_eq!((status(first), status(second)), (1, 0));
    good(fill(a, 3, first));
    // The second stream joins by an event, and comes back by another.
    good(record(fork, first));
    good(wait(second, fork));
    assert_eq!(status(second), 1);
    good(call!(cuMemcpyDtoDAsync_v2(b => u64, a => u64, LEN => usize, second => usize)));
    good(record(join, second));
    good(wait(first, join));
    good(fill(a, 4, first));
    let graph = end(first).unwrap_or_else(|code| panic!("{code}"));
    assert_eq!((status(first), status(second), nodes(graph)), (0, 0, 3));
    assert_eq!((read(a), read(b)), (vec![0; LEN], vec![0; LEN]), "nothing is done yet");
    let executable = instantiate(graph);
    for _ in 0..2 {
        crate::fill(b, 0, LEN);
        good(call!(cuGraphLaunch(executable => usize, second => usize)));
        good(call!(cuStreamSynchronize(second => usize)));
        assert_eq!((read(a), read(b)), (vec![4; LEN], vec![3; LEN]));
    }
    // A launch can be captured itself.
    good(begin(first, GLOBAL));
    good(call!(cuGraphLaunch(executable => usize, first => usize)));
    let outer = end(first).unwrap_or_else(|code| panic!("{code}"));
    assert_eq!(nodes(outer), 1);
    discard(executable);
    destroy(graph);
    destroy(outer);
}

#[test]
fn a_capture_says_where_it_stands() {
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    let a = allocate();
    let info = || {
        let (mut state, mut id, mut graph, mut tips, mut count) =
            (9_u32, 0_u64, 0_usize, std::ptr::null::<usize>(), 0_usize);
        good(call!(cuStreamGetCaptureInfo_v2(
            stream => usize, &raw mut state => *mut u32, &raw mut id => *mut u64, &raw mut graph => *mut usize,
            &raw mut tips => *mut *const usize, &raw mut count => *mut usize
        )));
        // SAFETY: the driver keeps the list until this thread asks again.
        let tips = if count == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(tips, count) }.to_vec() };
        (state, id, graph, tips)
    };
    assert_eq!(info(), (0, 0, 0, Vec::new()));
    good(begin(stream, GLOBAL));
    let (state, id, graph, tips) = info();
    assert!(state == 1 && id != 0 && graph != 0 && tips.is_empty());
    good(fill(a, 1, stream));
    good(fill(a, 2, stream));
    let first: Vec<usize> = {
        let mut all = [0_usize; 2];
        let mut count = 2_usize;
        good(call!(cuGraphGetNodes(graph => usize, all.as_mut_ptr() => *mut usize, &raw mut count => *mut usize)));
        assert_eq!(info().3, [all[1]]);
        vec![all[0]]
    };
    let update = |nodes: &[usize], flags: u32| {
        call!(cuStreamUpdateCaptureDependencies(
            stream => usize, nodes.as_ptr() => *const usize, nodes.len() => usize, flags => u32
        ))
    };
    good(update(&first, 1));
    assert_eq!(info().3, first);
    assert_eq!((update(&[stream], 0), update(&first, 2)), (INVALID_VALUE, INVALID_VALUE));
    // The second fill is no longer before the end.
    assert_eq!(end(stream), Ok(graph));
    assert_eq!(update(&first, 1), ILLEGAL_STATE);
    destroy(graph);
}

#[test]
fn what_cannot_be_captured_invalidates_the_capture() {
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    let (a, event) = (allocate(), event());
    let mut pointer = 0_u64;
    let calls: [&dyn Fn() -> i32; 7] = [
        &|| call!(cuStreamSynchronize(stream => usize)),
        &|| call!(cuStreamQuery(stream => usize)),
        &|| call!(cuCtxSynchronize()),
        &|| call!(cuEventQuery(event => usize)),
        &|| call!(cuEventSynchronize(event => usize)),
        &|| call!(cuMemAlloc_v2(&raw const pointer => *const u64, 4 => usize)),
        &|| call!(cuMemFree_v2(a => u64)),
    ];
    for (index, call) in calls.iter().enumerate() {
        good(begin(stream, GLOBAL));
        assert_eq!(call(), UNSUPPORTED, "call {index}");
        assert_eq!(status(stream), 2, "call {index}");
        assert_eq!(fill(a, 1, stream), INVALIDATED);
        assert_eq!(end(stream), Err(INVALIDATED));
        assert_eq!(status(stream), 0);
        good(call!(cuStreamSynchronize(stream => usize)));
    }
    // A relaxed capture permits what may be unsafe, and so does a relaxed thread.
    good(begin(stream, RELAXED));
    pointer = crate::allocate(4);
    destroy(end(stream).unwrap_or_else(|code| panic!("{code}")));
    let exchange = |mut mode: u32| {
        good(call!(cuThreadExchangeStreamCaptureMode(&raw mut mode => *mut u32)));
        mode
    };
    good(begin(stream, GLOBAL));
    assert_eq!(exchange(RELAXED), GLOBAL);
    free(pointer);
    assert_eq!(exchange(GLOBAL), RELAXED);
    destroy(end(stream).unwrap_or_else(|code| panic!("{code}")));
    // Other threads are forbidden it by a global capture only.
    for (mode, code) in [(GLOBAL, UNSUPPORTED), (THREAD_LOCAL, 0)] {
        good(begin(stream, mode));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _context = PrimaryContext::retain_and_push(0);
                assert_eq!(call!(cuEventQuery(event => usize)), code);
            });
        });
        assert_eq!(end(stream).is_ok(), code == 0);
    }
}

#[test]
fn captures_start_and_end_where_they_may() {
    let _context = PrimaryContext::retain_and_push(0);
    let ((_first, first), (_second, second)) = (stream(), stream());
    let (a, event) = (allocate(), event());
    assert_eq!((begin(0, GLOBAL), begin(1, GLOBAL)), (UNSUPPORTED, UNSUPPORTED), "the legacy stream");
    assert_eq!(begin(first, 3), INVALID_VALUE);
    assert_eq!(end(first), Err(ILLEGAL_STATE));
    good(begin(first, GLOBAL));
    assert_eq!(begin(first, GLOBAL), ILLEGAL_STATE);
    // On another thread, then on another stream.
    let end_elsewhere = || {
        let ended = thread::spawn(move || {
            let _context = PrimaryContext::retain_and_push(0);
            end(first)
        });
        ended.join().unwrap_or_else(|_| panic!("other thread"))
    };
    assert_eq!(end_elsewhere(), Err(WRONG_THREAD));
    good(record(event, first));
    good(wait(second, event));
    assert_eq!(end(second), Err(UNMATCHED));
    assert_eq!(end(first), Err(INVALIDATED));
    good(begin(first, RELAXED));
    destroy(end_elsewhere().unwrap_or_else(|code| panic!("{code}")));
    // A stream that did not come back.
    good(begin(first, GLOBAL));
    good(record(event, first));
    good(wait(second, event));
    good(fill(a, 1, second));
    assert_eq!(end(first), Err(UNJOINED));
    assert_eq!((status(first), status(second)), (0, 0));
    good(fill(a, 1, second));
    good(call!(cuStreamSynchronize(second => usize)));
}

#[test]
fn events_stay_on_their_side_of_a_capture() {
    let _context = PrimaryContext::retain_and_push(0);
    let ((_first, first), (_second, second)) = (stream(), stream());
    let (inside, outside) = (event(), event());
    good(record(outside, second));
    good(begin(first, THREAD_LOCAL));
    good(record(inside, first));
    for code in [
        call!(cuEventElapsedTime(&mut 0.0_f32 => *mut f32, inside => usize, inside => usize)),
        thread::scope(|scope| {
            let asked = scope.spawn(|| call!(cuEventQuery(inside => usize)));
            asked.join().unwrap_or_else(|_| panic!("other thread"))
        }),
    ] {
        assert_eq!(code, CAPTURED_EVENT);
    }
    assert_eq!(wait(first, outside), ISOLATION);
    assert_eq!(end(first), Err(INVALIDATED));
    assert_eq!(wait(second, inside), ISOLATION, "its capture has ended");
    // To ask for it is its own error, and invalidates the capture as any call does that may be unsafe.
    let calls: [&dyn Fn() -> i32; 2] =
        [&|| call!(cuEventQuery(inside => usize)), &|| call!(cuEventSynchronize(inside => usize))];
    for ask in calls {
        good(begin(first, THREAD_LOCAL));
        good(record(inside, first));
        assert_eq!(ask(), CAPTURED_EVENT);
        assert_eq!(end(first), Err(INVALIDATED));
    }
    // Two captures do not become one.
    good(begin(first, GLOBAL));
    good(begin(second, GLOBAL));
    good(record(inside, first));
    assert_eq!(wait(second, inside), MERGE);
    assert_eq!((end(first), end(second)), (Err(INVALIDATED), Err(INVALIDATED)));
    // An external event is a node.
    good(begin(first, GLOBAL));
    good(call!(cuEventRecordWithFlags(outside => usize, first => usize, 1 => u32)));
    good(call!(cuStreamWaitEvent(first => usize, outside => usize, 1 => u32)));
    let graph = end(first).unwrap_or_else(|code| panic!("{code}"));
    assert_eq!(nodes(graph), 2);
    destroy(graph);
    assert_eq!(call!(cuEventRecordWithFlags(outside => usize, first => usize, 1 => u32)), INVALID_VALUE);
    assert_eq!(call!(cuStreamWaitEvent(first => usize, outside => usize, 1 => u32)), INVALID_VALUE);
}

#[test]
fn the_legacy_stream_is_out_of_bounds_while_a_blocking_stream_captures() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = blocking_stream();
    let a = allocate();
    for legacy in [0, 1] {
        good(begin(stream, THREAD_LOCAL));
        assert_eq!(call!(cuStreamIsCapturing(legacy => usize, &mut 0_u32 => *mut u32)), IMPLICIT);
        assert!(end(stream).is_ok(), "a question leaves the capture valid");
        good(begin(stream, THREAD_LOCAL));
        assert_eq!(fill(a, 1, legacy), IMPLICIT);
        assert_eq!(call!(cuStreamIsCapturing(legacy => usize, &mut 0_u32 => *mut u32)), IMPLICIT);
        assert_eq!(end(stream), Err(INVALIDATED));
    }
    good(begin(stream, THREAD_LOCAL));
    assert_eq!(call!(cuMemcpyDtoD_v2(a => u64, a => u64, 1 => usize)), IMPLICIT, "a synchronous copy");
    assert_eq!(end(stream), Err(INVALIDATED));
    good(fill(a, 1, 0));
    // Destroyed while it captures.
    good(begin(stream, THREAD_LOCAL));
    good(call!(cuStreamDestroy_v2(stream => usize)));
    good(fill(a, 1, 0));
    good(call!(cuCtxSynchronize()));
}

#[test]
fn a_stream_is_destroyed_during_the_capture_that_it_takes_part_in() {
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    let (a, forked, joined) = (allocate(), event(), event());
    for waits in [true, false] {
        let other = blocking_stream();
        good(begin(stream, THREAD_LOCAL));
        good(record(forked, stream));
        good(wait(other, forked));
        good(fill(a, 1, other));
        good(record(joined, other));
        if waits {
            good(wait(stream, joined));
        }
        good(call!(cuStreamDestroy_v2(other => usize)));
        good(fill(a, 2, stream));
        match end(stream) {
            Ok(graph) if waits => destroy(graph),
            ended => assert!(!waits && ended == Err(UNJOINED), "{ended:?}"),
        }
    }
    good(call!(cuCtxSynchronize()));
}

#[test]
fn one_of_two_threads_begins_and_one_ends_a_capture() {
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    // Spins: a barrier wakes one thread after the other.
    let arrived = AtomicUsize::new(0);
    let meet = |expected: usize| {
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < expected {
            thread::yield_now();
        }
    };
    let work = || {
        let _context = PrimaryContext::retain_and_push(0);
        (0..ROUNDS)
            .map(|round| {
                meet(4 * round + 2);
                let begun = begin(stream, RELAXED);
                meet(4 * round + 4);
                // A panic would let the other thread wait for ever.
                let mut graph = 0_usize;
                let ended = call!(cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize));
                let destroyed = if ended == 0 { call!(cuGraphDestroy(graph => usize)) } else { 0 };
                (begun, ended, destroyed)
            })
            .collect::<Vec<_>>()
    };
    let [one, other] = thread::scope(|scope| {
        [scope.spawn(work), scope.spawn(work)]
            .map(|thread| thread.join().unwrap_or_else(|_| panic!("a thread panicked")))
    });
    let one_succeeds = |codes: [i32; 2]| codes == [0, ILLEGAL_STATE] || codes == [ILLEGAL_STATE, 0];
    for ((begun, ended, destroyed), (also_begun, also_ended, also_destroyed)) in one.into_iter().zip(other) {
        assert!(one_succeeds([begun, also_begun]), "{begun} {also_begun}");
        assert!(one_succeeds([ended, also_ended]), "{ended} {also_ended}");
        assert_eq!([destroyed, also_destroyed], [0, 0]);
    }
}
