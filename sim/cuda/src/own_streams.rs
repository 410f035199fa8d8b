//! The ends of the threads' own default streams (`CU_STREAM_PER_THREAD`), which come with those of their threads.

use std::cell::RefCell;
use std::sync::Weak;
use std::thread::ThreadId;

use crate::call;

/// A context's streams, one of which is a thread's own.
pub(crate) trait OwnStreams {
    /// Closes the own stream of a thread that has ended.
    fn end_own(&self, thread: ThreadId);
}

/// The contexts in which a thread has its own stream.
struct Own {
    thread: ThreadId,
    contexts: Vec<Weak<dyn OwnStreams>>,
}

thread_local! {
    static OWN: RefCell<Own> =
        RefCell::new(Own { thread: std::thread::current().id(), contexts: Vec::new() });
}

/// Lets the calling thread's own stream in a context end with the thread. One that is made by the destructor of another
/// thread-local value, after this module's has run, stays as long as its context.
pub(crate) fn ends_with_thread(streams: Weak<dyn OwnStreams>) {
    let _ = OWN.try_with(|own| {
        let contexts = &mut own.borrow_mut().contexts;
        contexts.retain(|streams| streams.strong_count() > 0);
        contexts.push(streams);
    });
}

impl Drop for Own {
    fn drop(&mut self) {
        // A forked child may find the locks held by threads that it does not have.
        if call::is_forked() {
            return;
        }
        for streams in self.contexts.drain(..).filter_map(|streams| streams.upgrade()) {
            streams.end_own(self.thread);
        }
    }
}
