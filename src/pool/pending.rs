//! [`PendingFrees`]: free chunks of a pool that the device may still use.
//!
//! A chunk that was bound to a stream which the program still holds stays with that stream, which can reuse it at once.
//! One that was bound to a raw stream, or to a stream that only the pool keeps alive, waits for an event. Any other,
//! and one whose event cannot be queried, waits for the whole context. The numbers of streams and of events are
//! bounded. No lock is held over a call of the driver.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;

use cudarc::driver::sys::CUstream;

use super::classes::Classes;
use crate::chunk::FreeChunk;
use crate::device::deferred_frees::{Deferred, DeferredFrees, WaitScope};
use crate::driver::context::Context;
use crate::driver::cuda::cuda;
use crate::lock::{Lock, LockGuard};
use crate::report::report;
use crate::stream::binding::Binding;
use crate::{Error, Event, Result};

type Chunks = Vec<FreeChunk>;

/// Chunks that wait for an event on a stream.
#[derive(Debug)]
struct EventFrees {
    event: Arc<Event>,
    /// The address of the stream, which may have been destroyed.
    stream: usize,
    chunks: Chunks,
}

/// Chunks that only their stream can use, until another user needs them.
#[derive(Debug, Default)]
struct StreamFrees {
    /// Keeps the stream alive.
    binding: Binding,
    by_class: HashMap<u16, Chunks>,
}

#[derive(Debug, Default)]
struct State {
    /// Chunks that wait for the whole context.
    for_context: Chunks,
    for_context_bytes: usize,
    /// Other contexts that the chunks in `for_context` wait for, too.
    other_contexts: HashSet<Context>,
    for_streams: HashMap<usize, StreamFrees>,
    for_events: VecDeque<EventFrees>,
    /// The number of chunks here.
    len: usize,
    /// Whether the last clone of the pool was dropped, so that nothing is kept.
    closed: bool,
}

/// The free chunks of a pool that the device may still use.
pub(super) struct PendingFrees {
    state: Lock<State>,
    context: Context,
    classes: Classes,
    /// The GPU's deferred frees.
    deferred: &'static DeferredFrees,
}

/// Logs an error. Returns [`Error::ends_all_work`].
fn ends_all_work(error: &Error) -> bool {
    report!(Debug, "a pending free of a pool: {error}");
    error.ends_all_work()
}

/// Waits for contexts, and logs errors. Returns true if all of their work has ended.
fn finish_all<'a>(contexts: impl IntoIterator<Item = &'a Context>) -> bool {
    contexts.into_iter().fold(true, |all, context| {
        let finished = context.finish();
        if let Err(error) = &finished {
            report!(Warn, "waiting for a context that read memory of a pool: {error}");
        }
        all & finished.is_ok()
    })
}

/// Chunks of a closed pool, whose other contexts could not be waited for.
struct ClosedChunks {
    other_contexts: Vec<Context>,
    chunks: Chunks,
}

impl Deferred for ClosedChunks {
    fn is_ready(&self, scope: WaitScope) -> bool {
        self.other_contexts.iter().all(|&other| scope.covers(other)) && self.wait()
    }

    fn wait(&self) -> bool {
        finish_all(&self.other_contexts)
    }

    fn release(self: Box<Self>) {
        drop(self.chunks);
    }
}

impl PendingFrees {
    /// The number of events that are polled for each new one, so that events do not pile up.
    const POLLED: usize = 2;
    /// The most streams that are kept alive. With more, the chunks of all streams wait for events instead.
    const MAX_STREAMS: usize = 32;
    /// The most events. With more, the chunks of the oldest event wait for the whole context.
    const MAX_EVENTS: usize = 1024;

    pub(super) fn new(context: Context, classes: Classes, deferred: &'static DeferredFrees) -> Self {
        Self { state: Lock::default(), context, classes, deferred }
    }

    /// The number of chunks here.
    pub(super) fn len(&self) -> usize {
        self.lock().len
    }

    /// The bytes of the chunks that wait for the whole context.
    pub(super) fn for_context_bytes(&self) -> usize {
        self.lock().for_context_bytes
    }

    /// Keeps a chunk until the whole context and the contexts `others` have finished.
    pub(super) fn add_for_contexts(&self, chunk: FreeChunk, others: &[Context]) {
        let refused = self.add(chunk, |state, chunk| {
            state.other_contexts.extend(others);
            state.for_context_bytes += self.classes.size(chunk.class().into());
            state.for_context.push(chunk);
        });
        if let Some(chunk) = refused {
            self.drop_closed(vec![chunk], others.to_vec());
        }
    }

    /// Drops chunks of the closed pool, once `others` have finished: the blocks wait for their own context only.
    fn drop_closed(&self, chunks: Chunks, others: Vec<Context>) {
        if !finish_all(&others) {
            self.deferred.push(Box::new(ClosedChunks { other_contexts: others, chunks }));
        }
    }

    fn add_for_context(&self, chunk: FreeChunk) {
        self.add_for_contexts(chunk, &[]);
    }

    /// Keeps a chunk. Returns it if the pool is closed, to be dropped without the lock: its block waits for the
    /// context.
    fn add(&self, chunk: FreeChunk, keep: impl FnOnce(&mut State, FreeChunk)) -> Option<FreeChunk> {
        let mut state = self.lock();
        if state.closed {
            return Some(chunk);
        }
        state.len += 1;
        keep(&mut state, chunk);
        None
    }

    /// Keeps a chunk for the stream that it was bound to, which `binding` keeps alive. Returns chunks whose events have
    /// passed meanwhile.
    pub(super) fn add_for_stream(&self, chunk: FreeChunk, mut binding: Binding) -> Chunks {
        let Some(stream) = binding.stream() else {
            self.add_for_context(chunk);
            return Chunks::new();
        };
        self.add(chunk, |state, chunk| {
            let frees = state.for_streams.entry(stream.addr()).or_default();
            frees.by_class.entry(chunk.class()).or_default().push(chunk);
            if frees.binding.stream().is_none() {
                mem::swap(&mut frees.binding, &mut binding);
            }
        });
        // Unlocked: dropping the last reference to a stream may call the driver.
        drop(binding);
        if self.release_streams() { self.poll(Self::POLLED) } else { Chunks::new() }
    }

    /// Makes the chunks of streams that only the pool holds wait for events, and the chunks of all streams if there are
    /// too many. Returns true if there were any such streams.
    fn release_streams(&self) -> bool {
        let released: Vec<_> = {
            let mut state = self.lock();
            let all = state.for_streams.len() > Self::MAX_STREAMS;
            state.for_streams.extract_if(|_, frees| all || frees.binding.is_last_of_stream()).collect()
        };
        let any = !released.is_empty();
        self.fence(released);
        any
    }

    /// Releases the streams that only the pool holds. Returns the chunks whose events have passed.
    pub(super) fn collect(&self) -> Chunks {
        self.release_streams();
        self.poll(usize::MAX)
    }

    /// Takes a chunk that was bound to `stream` before. The stream need not wait before it uses the chunk.
    pub(super) fn take_for_stream(&self, stream: CUstream, class: u16) -> Option<FreeChunk> {
        let mut state = self.lock();
        let chunk = state.for_streams.get_mut(&stream.addr())?.by_class.get_mut(&class)?.pop()?;
        state.len -= 1;
        Some(chunk)
    }

    /// Keeps a chunk until the stream that it was bound to has finished its work so far. Returns chunks whose events have
    /// passed meanwhile.
    pub(super) fn add_for_event(&self, chunk: FreeChunk, binding: &Binding) -> Result<Chunks> {
        match self.record(binding) {
            Ok(event) => {
                let stream = binding.stream().map_or(0, |stream| stream.addr());
                self.add(chunk, |state, chunk| {
                    state.for_events.push_back(EventFrees { event, stream, chunks: vec![chunk] });
                });
                self.limit_events();
            }
            Err(error) => {
                self.add_for_context(chunk);
                // All work has ended with the context, if that is gone: no error, as for dedicated memory.
                if error.is_fatal_to_context() || !error.ends_all_work() {
                    return Err(error);
                }
            }
        }
        Ok(self.poll(Self::POLLED))
    }

    /// Takes a chunk that was bound to a stream at this address before, with the event to wait for first: another
    /// stream may have the address now.
    pub(super) fn take_for_event(&self, stream: CUstream, class: u16) -> Option<(FreeChunk, Arc<Event>)> {
        let mut state = self.lock();
        let found = state.for_events.iter_mut().filter(|frees| frees.stream == stream.addr()).find_map(|frees| {
            let index = frees.chunks.iter().position(|chunk| chunk.class() == class)?;
            Some((frees.chunks.swap_remove(index), frees.event.clone()))
        });
        // An entry without chunks is removed when its event has passed.
        let found = found?;
        state.len -= 1;
        Some(found)
    }

    /// Puts back a result of [`take_for_event`](Self::take_for_event).
    pub(super) fn put_back(&self, chunk: FreeChunk, event: Arc<Event>, stream: CUstream) {
        self.add(chunk, |state, chunk| {
            state.for_events.push_back(EventFrees { event, stream: stream.addr(), chunks: vec![chunk] });
        });
    }

    /// Polls the first `max` events, and takes the chunks of those that have passed. Does not wait.
    pub(super) fn poll(&self, max: usize) -> Chunks {
        let mut free = Vec::new();
        let count = self.lock().for_events.len().min(max);
        for _ in 0..count {
            let Some(frees) = self.lock().for_events.pop_front() else { break };
            match frees.event.is_complete() {
                Ok(false) => self.requeue(frees),
                // For example an event that a stream capture recorded: it never passes.
                Err(error) if !ends_all_work(&error) => self.move_to_context(frees.chunks),
                Ok(true) | Err(_) => free.extend(frees.chunks),
            }
        }
        self.remove_from_len(free.len());
        free
    }

    /// Queues chunks that `len` counts already.
    fn requeue(&self, frees: EventFrees) {
        let mut state = self.lock();
        if state.closed {
            // Without the lock: dropping the last chunk of a block releases the block.
            drop(state);
            return drop(frees);
        }
        state.for_events.push_back(frees);
    }

    /// Makes the chunks of the oldest event wait for the whole context if there are too many events.
    fn limit_events(&self) {
        let oldest = {
            let mut state = self.lock();
            if state.for_events.len() > Self::MAX_EVENTS { state.for_events.pop_front() } else { None }
        };
        if let Some(oldest) = oldest {
            self.move_to_context(oldest.chunks);
        }
    }

    /// Records an event on each stream with chunks, so that any stream may use the chunks after the event.
    pub(super) fn fence_streams(&self) {
        let for_streams = mem::take(&mut self.lock().for_streams);
        self.fence(for_streams);
    }

    fn fence(&self, for_streams: impl IntoIterator<Item = (usize, StreamFrees)>) {
        for (stream, StreamFrees { binding, by_class }) in for_streams {
            let chunks: Chunks = by_class.into_values().flatten().collect();
            if chunks.is_empty() {
                continue;
            }
            match self.record(&binding) {
                Ok(event) => {
                    self.requeue(EventFrees { event, stream, chunks });
                    self.limit_events();
                }
                Err(error) => {
                    report!(Debug, "an event for memory of a pool: {error}");
                    self.move_to_context(chunks);
                }
            }
        }
    }

    fn record(&self, binding: &Binding) -> Result<Arc<Event>> {
        let event = self.context.run(|| binding.record())?;
        Ok(Arc::new(Event::new(event, self.context)))
    }

    /// Waits for the whole context, and takes all chunks.
    pub(super) fn wait(&self) -> Result<Chunks> {
        let (mut chunks, others, for_streams, for_events) = {
            let mut state = self.lock();
            state.for_context_bytes = 0;
            let State { for_context, other_contexts, for_streams, for_events, .. } = &mut *state;
            (mem::take(for_context), mem::take(other_contexts), mem::take(for_streams), mem::take(for_events))
        };
        // Keep streams and events alive until the wait is over.
        let (mut bindings, mut events) = (Vec::new(), Vec::new());
        for StreamFrees { binding, by_class } in for_streams.into_values() {
            chunks.extend(by_class.into_values().flatten());
            bindings.push(binding);
        }
        for frees in for_events {
            chunks.extend(frees.chunks);
            events.push(frees.event);
        }
        if chunks.is_empty() {
            return Ok(chunks);
        }
        let answer = others.iter().try_for_each(|other| other.finish());
        let answer = answer.and_then(|()| self.context.run(|| cuda()?.context_synchronize()));
        drop((bindings, events));
        if let Err(error) = answer
            && !ends_all_work(&error)
        {
            self.move_to_contexts(chunks, &others.into_iter().collect::<Vec<_>>());
            return Err(error);
        }
        self.remove_from_len(chunks.len());
        Ok(chunks)
    }

    /// Drops all chunks, and keeps none from now on. Their blocks wait for the context by themselves.
    pub(super) fn close(&self) {
        let mut state = mem::replace(&mut *self.lock(), State { closed: true, ..State::default() });
        // Unlocked: dropping chunks, streams and events may call the driver.
        self.drop_closed(mem::take(&mut state.for_context), state.other_contexts.drain().collect());
    }

    /// Makes chunks that `len` counts already wait for the whole context.
    fn move_to_context(&self, chunks: Chunks) {
        self.move_to_contexts(chunks, &[]);
    }

    /// [`move_to_context`](Self::move_to_context) that waits for `others`, too.
    fn move_to_contexts(&self, chunks: Chunks, others: &[Context]) {
        self.remove_from_len(chunks.len());
        chunks.into_iter().for_each(|chunk| self.add_for_contexts(chunk, others));
    }

    /// Subtracts chunks that were taken out, unless the pool was closed meanwhile.
    fn remove_from_len(&self, chunks: usize) {
        let mut state = self.lock();
        state.len = state.len.saturating_sub(chunks);
    }

    fn lock(&self) -> LockGuard<'_, State> {
        self.state.lock()
    }
}
