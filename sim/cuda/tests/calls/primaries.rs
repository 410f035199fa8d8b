//! Primary contexts, while their work is waited for.

use std::mem::ManuallyDrop;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use support::cuda::Stream;
use support::simulated;

use crate::{call, given, good};

const TIMEOUT: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(100);

fn retain() -> usize {
    given(|out| call!(cuDevicePrimaryCtxRetain(out => *mut usize, 0 => i32)))
}

fn release() {
    good(call!(cuDevicePrimaryCtxRelease_v2(0 => i32)));
}

fn is_active() -> bool {
    let (mut flags, mut active) = (9_u32, 9_i32);
    good(call!(cuDevicePrimaryCtxGetState(0 => i32, &raw mut flags => *mut u32, &raw mut active => *mut i32)));
    assert_eq!(flags, 0);
    active == 1
}

#[test]
fn a_context_whose_release_waits_is_not_active_and_is_made_again_afterwards() {
    simulated!("what a real driver does meanwhile is its own business");
    good(call!(cuInit(0 => u32)));
    let first = retain();
    good(call!(cuCtxSetCurrent(first => usize)));
    assert!(is_active());
    // Ends with its context.
    let stream = ManuallyDrop::new(Stream::create());
    let gate = stream.hold();
    let (tell, told) = channel();
    thread::scope(|scope| {
        let ended = scope.spawn(release);
        thread::sleep(MOMENT);
        scope.spawn(move || tell.send(is_active()));
        let active = told.recv_timeout(TIMEOUT);
        let again = scope.spawn(retain);
        thread::sleep(MOMENT);
        let waits = !ended.is_finished() && !again.is_finished();
        gate.open();
        assert_eq!((active, waits), (Ok(false), true));
        ended.join().unwrap_or_else(|_| panic!("the release panicked"));
        let second = again.join().unwrap_or_else(|_| panic!("the retain panicked"));
        good(call!(cuCtxSetCurrent(second => usize)));
    });
    assert!(is_active());
    good(call!(cuCtxSynchronize()));
    release();
    assert!(!is_active());
}

#[test]
fn a_reset_waits_for_the_one_of_another_thread() {
    simulated!("what a real driver does meanwhile is its own business");
    good(call!(cuInit(0 => u32)));
    good(call!(cuCtxSetCurrent(retain() => usize)));
    let stream = ManuallyDrop::new(Stream::create());
    let gate = stream.hold();
    let reset = || good(call!(cuDevicePrimaryCtxReset_v2(0 => i32)));
    thread::scope(|scope| {
        let both = [scope.spawn(reset), scope.spawn(reset)];
        thread::sleep(MOMENT);
        let ended = both.iter().filter(|reset| reset.is_finished()).count();
        gate.open();
        assert_eq!(ended, 0);
    });
    assert!(!is_active());
    release();
}
