//! Objects of the program that captured graphs keep.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use support::cuda::PrimaryContext;

use super::{RELAXED, begin, end, event, record, stream};
use crate::graphs::destroy;
use crate::{call, given, good};

struct Asked {
    event: usize,
    code: AtomicI32,
}

extern "C" fn ask_elsewhere(asked: *const Asked) {
    // SAFETY: of the test that waits for this.
    let asked = unsafe { &*asked };
    let ask = || asked.code.store(call!(cuEventSynchronize(asked.event => usize)), Ordering::Release);
    thread::scope(|scope| drop(scope.spawn(ask)));
}

#[test]
fn objects_that_an_event_kept_end_with_the_event_unlocked() {
    let _context = PrimaryContext::retain_and_push(0);
    let (_stream, stream) = stream();
    let asked = Asked { event: event(), code: AtomicI32::new(-1) };
    let destructor: extern "C" fn(*const Asked) = ask_elsewhere;
    let object: usize = given(|out| {
        call!(cuUserObjectCreate(
            out => *mut usize, &raw const asked => *const Asked,
            destructor => extern "C" fn(*const Asked), 1 => u32, 1 => u32
        ))
    });
    good(begin(stream, RELAXED));
    good(record(asked.event, stream));
    let graph = end(stream).unwrap_or_else(|code| panic!("{code}"));
    good(call!(cuGraphRetainUserObject(graph => usize, object => usize, 1 => u32, 1 => u32)));
    destroy(graph);
    // The event is the last to hold the graph.
    assert_eq!(asked.code.load(Ordering::Acquire), -1);
    good(record(asked.event, stream));
    assert_eq!(asked.code.load(Ordering::Acquire), 0);
    good(call!(cuEventDestroy_v2(asked.event => usize)));
}
