//! Streams, events and host functions.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{INVALID_HANDLE, NOT_READY, Runtime, call, good, with_each};

static GATE: AtomicU32 = AtomicU32::new(0);

extern "C" fn wait_for_gate(_: usize) {
    while GATE.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
}

extern "C" fn note(stream: usize, status: i32, out: *const AtomicU32) {
    assert!(stream != 0 && status == 0);
    // SAFETY: the test keeps the value until the stream is done.
    unsafe { &*out }.store(1, Ordering::Release);
}

/// Holds a stream until the gate opens.
fn hold(cuda: Runtime, stream: usize) {
    GATE.store(0, Ordering::Release);
    let function: extern "C" fn(usize) = wait_for_gate;
    good!(cuda, cudaLaunchHostFunc(stream => usize, function => extern "C" fn(usize), 0 => usize));
}

#[test]
fn events_follow_their_streams() {
    with_each(|cuda| {
        let (mut first, mut second, mut event, mut end) = (0_usize, 0_usize, 0_usize, 0_usize);
        good!(cuda, cudaStreamCreateWithFlags(&raw mut first => *mut usize, 1 => u32));
        good!(cuda, cudaStreamCreateWithPriority(&raw mut second => *mut usize, 1 => u32, -1 => i32));
        good!(cuda, cudaEventCreate(&raw mut event => *mut usize));
        good!(cuda, cudaEventCreateWithFlags(&raw mut end => *mut usize, 0 => u32));
        hold(cuda, first);
        good!(cuda, cudaEventRecord(event => usize, first => usize));
        good!(cuda, cudaStreamWaitEvent(second => usize, event => usize, 0 => u32));
        good!(cuda, cudaEventRecordWithFlags(end => usize, second => usize, 0 => u32));
        assert_eq!(call!(cuda, cudaStreamQuery(second => usize)), NOT_READY);
        assert_eq!(call!(cuda, cudaEventQuery(end => usize)), NOT_READY);
        assert_eq!(cuda.last_error(), NOT_READY);
        GATE.store(1, Ordering::Release);
        good!(cuda, cudaEventSynchronize(end => usize));
        let mut milliseconds = -1_f32;
        good!(cuda, cudaEventElapsedTime(&raw mut milliseconds => *mut f32, event => usize, end => usize));
        assert!(milliseconds >= 0.0);
        let mut priority = 9;
        good!(cuda, cudaStreamGetPriority(second => usize, &raw mut priority => *mut i32));
        assert_eq!(priority, -1);
        for stream in [first, second] {
            good!(cuda, cudaStreamDestroy(stream => usize));
            assert_eq!(call!(cuda, cudaStreamDestroy(stream => usize)), INVALID_HANDLE);
        }
        good!(cuda, cudaEventDestroy(event => usize));
        good!(cuda, cudaEventDestroy(end => usize));
    });
}

#[test]
fn the_default_stream_is_the_threads_own_where_the_program_says_so() {
    with_each(|cuda| {
        let id = |stream: usize| {
            let mut id = 0_u64;
            good!(cuda, cudaStreamGetId(stream => usize, &raw mut id => *mut u64));
            id
        };
        let mut own = 0_u64;
        good!(cuda, cudaStreamGetId_ptsz(0 => usize, &raw mut own => *mut u64));
        assert_eq!((id(0), id(2)), (id(1), own));
        assert_ne!(id(0), own);
    });
}

#[test]
fn callbacks_are_called_in_order() {
    with_each(|cuda| {
        let mut stream = 0_usize;
        let called = AtomicU32::new(0);
        good!(cuda, cudaStreamCreate(&raw mut stream => *mut usize));
        let callback: extern "C" fn(usize, i32, *const AtomicU32) = note;
        good!(
            cuda,
            cudaStreamAddCallback(stream => usize, callback => extern "C" fn(usize, i32, *const AtomicU32),
                                  &raw const called => *const AtomicU32, 0 => u32)
        );
        good!(cuda, cudaStreamSynchronize(stream => usize));
        assert_eq!(called.load(Ordering::Acquire), 1);
        good!(cuda, cudaStreamDestroy(stream => usize));
    });
}

#[test]
fn streams_say_that_they_capture_nothing() {
    with_each(|cuda| {
        let (mut status, mut id) = (9, 0_u64);
        good!(cuda, cudaStreamIsCapturing(0 => usize, &raw mut status => *mut i32));
        assert_eq!(status, 0);
        status = 9;
        let out = (&raw mut status, &raw mut id);
        if cuda.major == 12 {
            good!(cuda, cudaStreamGetCaptureInfo(2 => usize, out.0 => *mut i32, out.1 => *mut u64));
        } else {
            good!(
                cuda,
                cudaStreamGetCaptureInfo(2 => usize, out.0 => *mut i32, out.1 => *mut u64, 0 => usize, 0 => usize,
                                         0 => usize, 0 => usize)
            );
        }
        assert_eq!(status, 0);
        let mut mode = 1;
        good!(cuda, cudaThreadExchangeStreamCaptureMode(&raw mut mode => *mut i32));
        assert_eq!(mode, 0);
        good!(cuda, cudaThreadExchangeStreamCaptureMode(&raw mut mode => *mut i32));
    });
}

#[test]
fn events_are_named_for_other_processes() {
    with_each(|cuda| {
        let (mut event, mut plain, mut opened, mut handle) = (0_usize, 0_usize, 0_usize, [0_u64; 8]);
        // cudaEventDisableTiming, cudaEventInterprocess.
        good!(cuda, cudaEventCreateWithFlags(&raw mut event => *mut usize, 6 => u32));
        good!(cuda, cudaEventCreate(&raw mut plain => *mut usize));
        good!(cuda, cudaIpcGetEventHandle(&raw mut handle => *mut [u64; 8], event => usize));
        assert_ne!(handle, [0; 8]);
        let own = call!(cuda, cudaIpcOpenEventHandle(&raw mut opened => *mut usize, Handle(handle) => Handle));
        // cudaErrorDeviceUninitialized: a handle is for other processes.
        assert_eq!(own, 201);
        assert_ne!(call!(cuda, cudaIpcGetEventHandle(&raw mut handle => *mut [u64; 8], plain => usize)), 0);
        good!(cuda, cudaEventDestroy(event => usize));
        good!(cuda, cudaEventDestroy(plain => usize));
    });
}

/// `cudaIpcEventHandle_t`, passed by value.
#[repr(C)]
struct Handle([u64; 8]);
