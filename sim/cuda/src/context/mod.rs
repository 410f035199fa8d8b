//! Contexts, and the checks at the start of nearly every function.

mod exports;
mod limits;
pub(crate) mod primary;
mod stack;
pub(crate) mod table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::code::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, Outcome, SUCCESS};
use crate::handle;
use crate::stream::Stream;
use crate::sync::lock;
use limits::Limits;

/// The incarnation of a context that owns an object. The handle alone is ambiguous: a primary context that is created
/// again has the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) context: usize,
    pub(crate) device: i32,
    id: u64,
}

// The time that a destroyed context gives its running kernels.
const PATIENCE: Duration = Duration::from_secs(2);

/// The state of a context that its streams need, even after its destruction.
#[derive(Default)]
pub(crate) struct Health {
    error: AtomicI32,
    closing: OnceLock<Instant>,
}

impl Health {
    /// The error that asynchronous work left behind. It stays until the context is destroyed.
    pub(crate) fn check(&self) -> Outcome {
        match self.error.load(Ordering::Acquire) {
            SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// Records the first error of asynchronous work.
    pub(crate) fn fail(&self, code: Code) {
        let _ = self.error.compare_exchange(SUCCESS, code, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the context is being destroyed, so that waits for values must end.
    pub(crate) fn closing(&self) -> bool {
        self.closing.get().is_some()
    }

    /// Whether running kernels must end: at once after an error, as on a GPU; after [`PATIENCE`] when the context is
    /// destroyed.
    pub(crate) fn ends_kernels(&self) -> bool {
        self.check().is_err() || self.closing.get().is_some_and(|since| since.elapsed() > PATIENCE)
    }
}

pub(crate) struct Context {
    owner: Owner,
    flags: AtomicU32,
    // The cuCtxAttach and cuCtxCreate calls without a matching cuCtxDetach.
    uses: AtomicU32,
    limits: Limits,
    pub(crate) health: Arc<Health>,
    legacy: Arc<Stream>,
    per_thread: Mutex<HashMap<ThreadId, Arc<Stream>>>,
    // The program's streams, and destroyed streams that still have work.
    streams: Mutex<Vec<Arc<Stream>>>,
}

impl Context {
    fn new(handle: usize, device: i32, flags: u32) -> Arc<Context> {
        let owner = Owner { context: handle, device, id: handle::next_id() };
        let health = Arc::new(Health::default());
        Arc::new_cyclic(|context| Context {
            owner,
            flags: AtomicU32::new(flags),
            uses: AtomicU32::new(1),
            limits: Limits::default(),
            legacy: Stream::default_of(context.clone(), owner, Arc::clone(&health), true),
            health,
            per_thread: Mutex::default(),
            streams: Mutex::default(),
        })
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// The legacy default stream.
    pub(crate) fn legacy(&self) -> Arc<Stream> {
        Arc::clone(&self.legacy)
    }

    /// The calling thread's own default stream.
    pub(crate) fn per_thread(self: &Arc<Self>) -> Arc<Stream> {
        let mut streams = lock(&self.per_thread);
        let new = || Stream::default_of(Arc::downgrade(self), self.owner(), Arc::clone(&self.health), false);
        Arc::clone(streams.entry(std::thread::current().id()).or_insert_with(new))
    }

    pub(crate) fn add_stream(&self, stream: Arc<Stream>) {
        lock(&self.streams).push(stream);
    }

    /// All streams except the legacy one, without destroyed streams that are done.
    pub(crate) fn other_streams(&self) -> Vec<Arc<Stream>> {
        let mut streams = lock(&self.streams);
        streams.retain(|stream| !stream.finished());
        let mut all = streams.clone();
        drop(streams);
        all.extend(lock(&self.per_thread).values().cloned());
        all
    }

    /// Waits for all work of the context; returns its error, if any.
    pub(crate) fn synchronize(&self) -> Outcome {
        let streams = self.other_streams();
        self.legacy.tail().wait();
        for stream in streams {
            stream.tail().wait();
        }
        self.health.check()
    }

    // Lets queued work finish, then releases everything that the context owns. The table no longer has the context.
    fn close(&self) {
        self.health.closing.get_or_init(Instant::now);
        // There is no caller left to report the work's error to.
        let _ = self.synchronize();
        for stream in self.other_streams() {
            stream.close();
        }
        self.legacy.close();
        lock(&self.streams).clear();
        lock(&self.per_thread).clear();
        crate::stream::table::release_all_of(self.owner());
        crate::event::release_all_of(self.owner());
        crate::module::release_all_of(self.owner());
        crate::memory::table::release_all_of(self.owner());
        crate::external::release_all_of(self.owner());
    }
}

/// The calling thread's current context. `CUDA_ERROR_INVALID_CONTEXT` without one,
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED` when it was destroyed.
pub(crate) fn current() -> Result<Arc<Context>, Code> {
    let handle = stack::top().ok_or(INVALID_CONTEXT)?;
    table::find(handle).ok_or(CONTEXT_IS_DESTROYED)
}

/// The current context, if no asynchronous work failed in it.
pub(crate) fn usable() -> Result<Arc<Context>, Code> {
    let context = current()?;
    context.health.check()?;
    Ok(context)
}

/// The error that asynchronous work left in the owner's context, if that still lives.
pub(crate) fn check_owner(owner: Owner) -> Outcome {
    match table::find(owner.context) {
        Some(context) if context.owner == owner => context.health.check(),
        _ => Ok(()),
    }
}
