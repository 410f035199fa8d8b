//! Streams and events.

use std::thread;
use std::time::Duration;

use support::cuda::{Context, PrimaryContext, Stream, no_context};
use support::{Result, child, codes, simcuda};

use crate::{call, given, good};

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

/// The driver that was started with `SIMCUDA_STALE_CONTEXT=error` forgets the handles, and ends no process.
#[test]
fn streams_and_events_end_with_their_context() -> Result {
    let Some(sim) = simcuda() else {
        eprintln!("skipped: what a real driver does with such handles is undefined");
        return Ok(());
    };
    if child::role().is_none() {
        let mut command = child::command("streams::streams_and_events_end_with_their_context", "error")?;
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
