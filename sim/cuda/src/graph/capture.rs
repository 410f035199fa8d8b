//! Captures: streams whose work becomes nodes of a graph instead of being done.
//!
//! A capture starts on one stream and takes in others that wait for its events. What may not happen during a capture
//! invalidates it, as documented (CUDA programming guide, "Prohibited and Unhandled Operations").
//!
//! Locks are taken in this order: the streams that capture, a capture's state, its graph.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::{self, ThreadId};

use super::operation::Operation;
use super::state::{self, Graph};
use crate::code::{
    Code, ILLEGAL_STATE, NOT_SUPPORTED, Outcome, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE, STREAM_CAPTURE_UNJOINED, STREAM_CAPTURE_UNMATCHED,
    STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD,
};
use crate::control::site::Site;
use crate::handle;
use crate::owner::Owner;
use crate::queue::{NON_BLOCKING, Stream};
use crate::sync::lock;

/// `CUstreamCaptureMode`.
pub(crate) const GLOBAL: u32 = 0;
pub(crate) const RELAXED: u32 = 2;

/// Functions that a real driver may let wait for a capturing stream, and therefore forbids, as CUDA does cudaMalloc. Those
/// that ask events call [`check_unsafe`] themselves.
const UNSAFE: [&str; 7] = [
    "cuMemAlloc",
    "cuMemAllocHost",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemHostAlloc",
];

/// One capture.
pub(crate) struct Capture {
    pub(super) id: u64,
    mode: u32,
    thread: ThreadId,
    origin: u64,
    pub(super) graph: Arc<Graph>,
    /// Whether the capture made the graph.
    is_new: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    invalid: bool,
    // By stream, the nodes that its next one comes after.
    tips: HashMap<u64, Vec<usize>>,
}

struct Member {
    capture: Arc<Capture>,
    owner: Owner,
    blocking: bool,
}

static MEMBERS: LazyLock<Mutex<HashMap<u64, Member>>> = LazyLock::new(Mutex::default);
/// The number of members, so that programs without captures pay for one load.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Sets the calling thread's mode; returns the one before.
pub(crate) fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

/// The capture that a stream takes part in.
pub(crate) fn of(stream: &Stream) -> Option<Arc<Capture>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    lock(&MEMBERS).get(&stream.id).map(|member| Arc::clone(&member.capture))
}

fn captures_where(wanted: impl Fn(&Member) -> bool) -> Vec<Arc<Capture>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    lock(&MEMBERS).values().filter(|member| wanted(member)).map(|member| Arc::clone(&member.capture)).collect()
}

fn invalidate(captures: &[Arc<Capture>], code: Code) -> Outcome {
    captures.iter().for_each(|capture| lock(&capture.state).invalid = true);
    if captures.is_empty() { Ok(()) } else { Err(code) }
}

/// Refuses what cannot be captured, on a stream that captures.
pub(crate) fn refuse(stream: &Stream) -> Outcome {
    invalidate(&Vec::from_iter(of(stream)), STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses work that CUDA captures in a node that is not simulated. The capture stays valid.
pub(crate) fn refuse_node(stream: &Stream) -> Outcome {
    match of(stream) {
        None => Ok(()),
        Some(capture) if capture.is_invalid() => Err(STREAM_CAPTURE_INVALIDATED),
        Some(_) => Err(NOT_SUPPORTED),
    }
}

/// The captures of streams that wait for this one, which is the legacy stream.
fn captures_behind(stream: &Stream) -> Vec<Arc<Capture>> {
    if stream.is_legacy() {
        captures_where(|member| member.blocking && member.owner == stream.owner)
    } else {
        Vec::new()
    }
}

/// Refuses work on the legacy stream while a stream captures that waits for it.
pub(crate) fn refuse_implicit(stream: &Stream) -> Outcome {
    invalidate(&captures_behind(stream), STREAM_CAPTURE_IMPLICIT)
}

/// As [`refuse_implicit`], and leaves the captures valid.
pub(super) fn check_implicit(stream: &Stream) -> Outcome {
    if captures_behind(stream).is_empty() { Ok(()) } else { Err(STREAM_CAPTURE_IMPLICIT) }
}

/// Refuses to wait for a context with a stream that captures.
pub(crate) fn refuse_context(owner: Owner) -> Outcome {
    invalidate(&captures_where(|member| member.owner == owner), STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses functions that are not safe while something is captured.
pub(crate) fn check_call(site: &Site) -> Outcome {
    if COUNT.load(Ordering::Acquire) == 0 || !UNSAFE.contains(&site.base()) { Ok(()) } else { check_unsafe() }
}

/// Refuses what is not safe while something is captured, by the modes of the captures and of the thread.
pub(crate) fn check_unsafe() -> Outcome {
    if COUNT.load(Ordering::Acquire) == 0 || MODE.get() == RELAXED {
        return Ok(());
    }
    let own = thread::current().id();
    let forbids = |capture: &Capture| match capture.mode {
        RELAXED => false,
        mode => capture.thread == own || (mode == GLOBAL && MODE.get() == GLOBAL),
    };
    invalidate(&captures_where(|member| forbids(&member.capture)), STREAM_CAPTURE_UNSUPPORTED)
}

/// Adds a node if the stream captures; whether it does.
pub(crate) fn add(stream: &Stream, operation: impl FnOnce() -> Operation) -> Result<bool, Code> {
    add_result(stream, || Ok(operation()))
}

/// As [`add`], for work that may be refused.
pub(crate) fn add_result(stream: &Stream, operation: impl FnOnce() -> Result<Operation, Code>) -> Result<bool, Code> {
    let Some(capture) = of(stream) else { return Ok(false) };
    let operation = operation()?;
    let mut state = lock(&capture.state);
    if state.invalid {
        return Err(STREAM_CAPTURE_INVALIDATED);
    }
    let after = state.tips.get(&stream.id).cloned().unwrap_or_default();
    let node = capture.graph.add(operation, after)?;
    state.tips.insert(stream.id, vec![node]);
    Ok(true)
}

/// Takes a stream into a capture, the first of which starts it. False if the stream takes part in one already, or if the
/// capture has ended; an invalid capture takes in none.
fn join(stream: &Stream, capture: &Arc<Capture>, nodes: Vec<usize>) -> Result<bool, Code> {
    let (owner, blocking) = (stream.owner, stream.flags & NON_BLOCKING == 0);
    let mut members = lock(&MEMBERS);
    let mut state = lock(&capture.state);
    let lives = state.tips.is_empty() || members.values().any(|member| Arc::ptr_eq(&member.capture, capture));
    if !lives || members.contains_key(&stream.id) {
        return Ok(false);
    }
    if state.invalid {
        return Err(STREAM_CAPTURE_INVALIDATED);
    }
    state.tips.insert(stream.id, nodes);
    drop(state);
    members.insert(stream.id, Member { capture: Arc::clone(capture), owner, blocking });
    COUNT.store(members.len(), Ordering::Release);
    Ok(true)
}

/// Starts a capture into a new graph, or behind `after` in a given one.
pub(super) fn begin(stream: &Stream, mode: u32, graph: Option<Arc<Graph>>, after: Vec<usize>) -> Outcome {
    if stream.is_legacy() {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    let is_new = graph.is_none();
    let graph = graph.unwrap_or_else(Graph::new);
    if is_new {
        state::insert(Arc::clone(&graph));
    }
    let capture = Arc::new(Capture {
        id: handle::next_id(),
        mode,
        thread: thread::current().id(),
        origin: stream.id,
        is_new,
        graph,
        state: Mutex::default(),
    });
    if join(stream, &capture, after)? {
        return Ok(());
    }
    capture.discard();
    Err(ILLEGAL_STATE)
}

/// Ends the capture that started on this stream.
pub(super) fn end(stream: &Stream) -> Result<Arc<Capture>, Code> {
    let capture = of(stream).ok_or(ILLEGAL_STATE)?;
    if capture.origin != stream.id {
        lock(&capture.state).invalid = true;
        return Err(STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != thread::current().id() {
        return Err(STREAM_CAPTURE_WRONG_THREAD);
    }
    if !leave(&capture) {
        return Err(ILLEGAL_STATE);
    }
    let outcome = capture.outcome(stream);
    if outcome.is_err() {
        capture.discard();
    }
    outcome.map(|()| capture)
}

impl Capture {
    /// Whether the capture is complete.
    fn outcome(&self, stream: &Stream) -> Outcome {
        let state = lock(&self.state);
        if state.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let own = state.tips.get(&stream.id).cloned().unwrap_or_default();
        let joined = |node: &usize| own.iter().any(|end| end == node || self.graph.is_before(*node, *end));
        if state.tips.values().flatten().all(joined) { Ok(()) } else { Err(STREAM_CAPTURE_UNJOINED) }
    }

    /// Destroys the graph of a capture that made one and gives none.
    fn discard(&self) {
        if self.is_new {
            // The program may have destroyed it.
            let _ = state::remove(self.graph.handle);
        }
    }
}

/// Its streams capture no longer. False if another thread has ended it.
fn leave(capture: &Arc<Capture>) -> bool {
    let mut members = lock(&MEMBERS);
    let before = members.len();
    members.retain(|_, member| !Arc::ptr_eq(&member.capture, capture));
    COUNT.store(members.len(), Ordering::Release);
    members.len() < before
}

fn forget(capture: &Arc<Capture>) {
    if leave(capture) {
        capture.discard();
    }
}

/// A capture ends with the stream where it started. Another stream that is destroyed leaves it, with its nodes: cuda.core
/// destroys streams once the origin waits for them, and a stream that nothing waits for stays unjoined.
pub(crate) fn destroyed(stream: &Stream) {
    let Some(capture) = of(stream) else { return };
    if capture.origin == stream.id {
        return forget(&capture);
    }
    let mut members = lock(&MEMBERS);
    members.remove(&stream.id);
    COUNT.store(members.len(), Ordering::Release);
}

/// The captures of a destroyed context end.
pub(crate) fn release_all_of(owner: Owner) {
    captures_where(|member| member.owner == owner).iter().for_each(forget);
}

/// The point of a capture at which an event was recorded.
#[derive(Clone)]
pub(crate) struct Point {
    capture: Arc<Capture>,
    nodes: Vec<usize>,
}

/// The point that an event records on a stream that captures.
pub(crate) fn point(stream: &Stream) -> Result<Option<Point>, Code> {
    let Some(capture) = of(stream) else { return Ok(None) };
    let nodes = capture.tips(stream)?;
    Ok(Some(Point { capture, nodes }))
}

/// Lets a stream wait for an event: one that was recorded in a capture takes the stream into it. Whether that was all.
pub(crate) fn wait(stream: &Stream, point: Option<Point>) -> Result<bool, Code> {
    let own = of(stream);
    if own.as_ref().is_some_and(|own| own.is_invalid()) {
        return Err(STREAM_CAPTURE_INVALIDATED);
    }
    let Some(Point { capture, nodes }) = point else {
        // Only an external event may come from outside.
        return own.map_or(Ok(false), |own| invalidate(&[own], STREAM_CAPTURE_ISOLATION).map(|()| true));
    };
    match own {
        Some(own) if Arc::ptr_eq(&own, &capture) => {
            own.change_tips(stream, |tips| add_missing(tips, nodes))?;
        }
        Some(own) => return invalidate(&[own, capture], STREAM_CAPTURE_MERGE).map(|()| true),
        None if captures_where(|member| Arc::ptr_eq(&member.capture, &capture)).is_empty() => {
            return Err(STREAM_CAPTURE_ISOLATION);
        }
        None if stream.is_legacy() => return invalidate(&[capture], STREAM_CAPTURE_IMPLICIT).map(|()| true),
        // The stream or the capture is no longer as it was.
        None if !join(stream, &capture, nodes.clone())? => return wait(stream, Some(Point { capture, nodes })),
        None => {}
    }
    Ok(true)
}

/// Adds those nodes that are not there.
pub(super) fn add_missing(tips: &mut Vec<usize>, nodes: Vec<usize>) {
    for node in nodes {
        if !tips.contains(&node) {
            tips.push(node);
        }
    }
}

impl Capture {
    pub(super) fn is_invalid(&self) -> bool {
        lock(&self.state).invalid
    }

    /// The nodes that the stream's next one comes after.
    pub(super) fn tips(&self, stream: &Stream) -> Result<Vec<usize>, Code> {
        let state = lock(&self.state);
        if state.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        Ok(state.tips.get(&stream.id).cloned().unwrap_or_default())
    }

    /// Changes the nodes that the stream's next one comes after. Other threads capture none meanwhile.
    pub(super) fn change_tips(&self, stream: &Stream, change: impl FnOnce(&mut Vec<usize>)) -> Outcome {
        let mut state = lock(&self.state);
        if state.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        change(state.tips.entry(stream.id).or_default());
        Ok(())
    }
}
