//! Streams and events.

use std::thread;
use std::time::{Duration, Instant};

use support::cuda::{Context, PrimaryContext, Stream, no_context};
use support::{Result, child, codes, simulated};

use crate::{NOWHERE, allocate, call, given, good, put};

#[test]
fn waits_and_queries_need_no_current_context() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let event: usize = given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32)));
    let gate = stream.hold();
    good(call!(cuEventRecord(event => usize, raw => usize)));
    no_context(|| {
        assert_eq!(call!(cuStreamQuery(raw => usize)), codes::NOT_READY);
        assert_eq!(call!(cuEventQuery(event => usize)), codes::NOT_READY);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                drop(gate);
            });
            good(call!(cuEventSynchronize(event => usize)));
        });
        good(call!(cuStreamSynchronize(raw => usize)));
        good(call!(cuStreamQuery(raw => usize)));
        good(call!(cuEventQuery(event => usize)));
        // The default streams are those of the current context.
        for default in 0..3 {
            assert_eq!(call!(cuStreamSynchronize(default => usize)), codes::INVALID_CONTEXT);
            assert_eq!(call!(cuStreamQuery(default => usize)), codes::INVALID_CONTEXT);
        }
    });
    good(call!(cuEventDestroy_v2(event => usize)));
}

#[test]
fn a_thread_exchanges_its_capture_mode() {
    let _context = PrimaryContext::retain_and_push(0);
    // Global, thread-local, relaxed.
    let exchange = |mut mode: u32| {
        good(call!(cuThreadExchangeStreamCaptureMode(&raw mut mode => *mut u32)));
        mode
    };
    assert_eq!([2, 1, 0].map(exchange), [0, 2, 1]);
    exchange(1);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(exchange(0), 0));
    });
    assert_eq!(exchange(0), 1);
    let mut unknown = 3_u32;
    assert_eq!(call!(cuThreadExchangeStreamCaptureMode(&raw mut unknown => *mut u32)), codes::INVALID_VALUE);
}

/// `CU_STREAM_PER_THREAD`.
const OWN: usize = 2;

extern "C" fn nothing(_: usize) {}

extern "C" fn dawdle(_: usize) {
    thread::sleep(Duration::from_millis(200));
}

/// Queues a host function on a new thread's own stream, and lets the thread end.
fn on_ended_thread(context: usize, function: extern "C" fn(usize)) {
    let queue = move || {
        good(call!(cuCtxSetCurrent(context => usize)));
        good(call!(cuLaunchHostFunc(OWN => usize, function => extern "C" fn(usize), 0 => usize)));
    };
    thread::spawn(queue).join().unwrap_or_else(|_| panic!("the thread panicked"));
}

/// The threads of this process with that name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap_or_else(|error| panic!("{error}"));
    let named =
        |path: std::path::PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    tasks.filter(|task| task.as_ref().is_ok_and(|task| named(task.path()))).count()
}

#[test]
fn a_threads_own_stream_ends_with_it_once_its_work_is_done() {
    simulated!("what a real driver keeps of a thread is its own business");
    let _context = PrimaryContext::retain_and_push(0);
    let context: usize = given(|out| call!(cuCtxGetCurrent(out => *mut usize)));
    for _ in 0..50 {
        on_ended_thread(context, nothing);
    }
    let start = std::time::Instant::now();
    while threads("simcuda stream") > 5 && start.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(threads("simcuda stream") <= 5, "{} workers", threads("simcuda stream"));
    // Work that a thread queued before it ended still holds up the context and its default stream.
    on_ended_thread(context, dawdle);
    assert_eq!(call!(cuStreamQuery(0 => usize)), codes::NOT_READY);
    good(call!(cuCtxSynchronize()));
    good(call!(cuStreamQuery(0 => usize)));
}

/// The driver that was started with `SIMCUDA_STALE_CONTEXT=error` forgets the handles, and ends no process.
#[test]
fn streams_and_events_end_with_their_context() -> Result {
    let sim = simulated!("what a real driver does with such handles is undefined");
    if child::role().is_none() {
        let mut command = child::command("error")?;
        command.env("SIMCUDA_STALE_CONTEXT", "error");
        assert_eq!(child::run(command)?, ["done"]);
        return Ok(());
    }
    let context = Context::create(0);
    let stream: usize = given(|out| call!(cuStreamCreate(out => *mut usize, 1 => u32)));
    let event: usize = given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32)));
    assert_eq!(["stream", "event"].map(|noun| sim.live_objects_of(noun)), [1, 1]);
    context.destroy();
    assert_eq!(["stream", "event"].map(|noun| sim.live_objects_of(noun)), [0, 0]);
    let codes = [
        call!(cuStreamQuery(stream => usize)),
        call!(cuStreamDestroy_v2(stream => usize)),
        call!(cuEventQuery(event => usize)),
        call!(cuEventDestroy_v2(event => usize)),
    ];
    assert_eq!(codes, [codes::INVALID_HANDLE; 4]);
    child::say("done");
    Ok(())
}

fn record(event: usize, stream: usize) -> i32 {
    call!(cuEventRecord(event => usize, stream => usize))
}

fn elapsed(start: usize, end: usize) -> i32 {
    call!(cuEventElapsedTime(&mut 0.0_f32 => *mut f32, start => usize, end => usize))
}

fn event(flags: u32) -> usize {
    given(|out| call!(cuEventCreate(out => *mut usize, flags => u32)))
}

#[test]
fn a_failed_context_ends_waits_for_values() {
    simulated!("a fault leaves a real context unusable");
    let context = Context::create(0);
    let word = allocate(8);
    // Non-blocking, so that the kernel does not wait for them.
    let streams = [0; 2].map(|_| given(|out| call!(cuStreamCreate(out => *mut usize, 1 => u32))));
    // CU_STREAM_WAIT_VALUE_EQ.
    good(call!(cuStreamWaitValue32_v2(streams[0] => usize, word => u64, 1 => u32, 1 => u32)));
    good(call!(cuStreamWaitValue64_v2(streams[1] => usize, word => u64, 1 => u64, 1 => u32)));
    // Work that has not begun is skipped.
    thread::sleep(Duration::from_millis(20));
    assert_eq!(put(NOWHERE), codes::ILLEGAL_ADDRESS);
    for stream in streams {
        assert_eq!(call!(cuStreamSynchronize(stream => usize)), codes::ILLEGAL_ADDRESS);
    }
    context.destroy();
}

#[test]
fn an_event_that_measures_no_time_is_refused_before_one_that_is_not_ready() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let [start, end, never, untimed] = [0, 0, 0, 2].map(event);
    let gate = stream.hold();
    for recorded in [start, untimed, end] {
        good(record(recorded, raw));
    }
    for other in [never, untimed] {
        assert_eq!([elapsed(start, other), elapsed(other, start)], [codes::INVALID_HANDLE; 2]);
    }
    assert_eq!(elapsed(start, end), codes::NOT_READY);
    drop(gate);
    stream.synchronize();
    good(elapsed(start, end));
    assert_eq!([elapsed(start, untimed), elapsed(never, end)], [codes::INVALID_HANDLE; 2]);
    for event in [start, end, never, untimed] {
        good(call!(cuEventDestroy_v2(event => usize)));
    }
}

/// Under `SIMCUDA_LATE=1`, a round takes half a second unless the program asks about the work.
#[test]
fn the_time_between_events_asks_about_both() -> Result {
    simulated!("a real driver starts work when it likes");
    if child::role().is_none() {
        let mut command = child::command("late")?;
        command.env("SIMCUDA_LATE", "1");
        assert_eq!(child::run(command)?, ["done"]);
        return Ok(());
    }
    let _context = PrimaryContext::retain_and_push(0);
    let streams = [Stream::create(), Stream::create()];
    let [first, second] = [0, 1].map(|index| (streams[index].raw().expose_provenance(), event(0)));
    let begin = Instant::now();
    for _ in 0..100 {
        for (stream, event) in [first, second] {
            good(record(event, stream));
        }
        while elapsed(first.1, second.1) == codes::NOT_READY {
            assert!(begin.elapsed() < Duration::from_secs(25), "the work does not start");
            thread::yield_now();
        }
    }
    child::say("done");
    Ok(())
}

#[test]
fn an_event_is_recorded_in_streams_of_its_own_context_only() {
    let other = Context::create(0);
    let event = event(0);
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let with_flags = |flags: u32| call!(cuEventRecordWithFlags(event => usize, raw => usize, flags => u32));
    assert_eq!([record(event, raw), with_flags(0)], [codes::INVALID_HANDLE; 2]);
    // CU_EVENT_RECORD_EXTERNAL, in a capture.
    good(call!(cuStreamBeginCapture_v2(raw => usize, 0 => u32)));
    assert_eq!(with_flags(1), codes::INVALID_HANDLE);
    let graph: usize = given(|out| call!(cuStreamEndCapture(raw => usize, out => *mut usize)));
    let mut nodes = 9_usize;
    good(call!(cuGraphGetNodes(graph => usize, 0 => usize, &raw mut nodes => *mut usize)));
    assert_eq!(nodes, 0);
    crate::graphs::destroy(graph);
    drop(stream);
    other.with_current(|| good(call!(cuEventDestroy_v2(event => usize))));
    other.destroy();
}
