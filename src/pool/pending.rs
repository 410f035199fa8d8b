//! Free chunks that the device may still use.
//!
//! A chunk that was bound to a stream which the pool keeps alive stays with that stream, to be lent for it again at once. One
//! that was bound to a raw stream waits for an event. Any other, and one whose event cannot be asked, waits for the whole
//! context. No lock is held over a call of the driver.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUstream;

use super::classes::Classes;
use crate::driver::context::Context;
use crate::driver::cuda::cuda;
use crate::memory::binding::Binding;
use crate::memory::chunk::FreeChunk;
use crate::{Error, Event, Result};

type Chunks = Vec<FreeChunk>;

/// Chunks that wait for an event on a stream.
#[derive(Debug)]
struct EventFrees {
    event: Arc<Event>,
    /// The address of the stream, which may be gone.
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
    for_streams: HashMap<usize, StreamFrees>,
    for_events: VecDeque<EventFrees>,
    /// The number of chunks here.
    len: usize,
    /// Whether the pool is gone, so that nothing is kept.
    closed: bool,
}

/// The free chunks of a pool that the device may still use.
#[derive(Debug)]
pub(super) struct PendingFrees {
    state: Mutex<State>,
    context: Context,
    classes: Classes,
}

/// Chunks that were taken out while the drivers are asked about them, and are still counted. Those left when it is dropped,
/// such as by the panic of a logger, wait for the whole context.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pending: &'a PendingFrees,
    chunks: Chunks,
}

impl Taken<'_> {
    /// The chunks, which do not wait any more.
    pub(super) fn into_free(mut self) -> Chunks {
        self.pending.remove_from_len(self.chunks.len());
        std::mem::take(&mut self.chunks)
    }

    /// Keeps the chunks until an event on a stream.
    pub(super) fn wait_for(mut self, event: Arc<Event>, stream: usize) {
        let chunks = std::mem::take(&mut self.chunks);
        self.pending.queue(EventFrees { event, stream, chunks });
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.chunks.is_empty() {
            self.pending.move_to_context(std::mem::take(&mut self.chunks));
        }
    }
}

/// As [`Error::ends_all_work`], of an error that is only logged.
fn ends_all_work(error: &Error) -> bool {
    log::debug!("a pending free of a pool: {error}");
    error.ends_all_work()
}

impl PendingFrees {
    /// How many events each new one polls, so that they do not pile up.
    const POLLED: usize = 2;

    pub(super) fn new(context: Context, classes: Classes) -> Self {
        Self { state: Mutex::default(), context, classes }
    }

    /// The number of chunks here.
    pub(super) fn len(&self) -> usize {
        self.lock().len
    }

    /// The bytes of the chunks that wait for the whole context.
    pub(super) fn for_context_bytes(&self) -> usize {
        self.lock().for_context_bytes
    }

    /// Keeps a chunk until the whole context has finished.
    pub(super) fn add_for_context(&self, chunk: FreeChunk) {
        self.add(chunk, |state, chunk| {
            state.for_context_bytes += self.classes.size(chunk.class().into());
            state.for_context.push(chunk);
        });
    }

    /// Keeps a chunk, unless the pool is gone: then its block waits for the context by itself.
    fn add(&self, chunk: FreeChunk, keep: impl FnOnce(&mut State, FreeChunk)) {
        let mut state = self.lock();
        if state.closed {
            // Unlocked: with its last chunk the block goes.
            drop(state);
            return drop(chunk);
        }
        state.len += 1;
        keep(&mut state, chunk);
    }

    /// Keeps a chunk for the stream that it was bound to, which `binding` keeps alive.
    pub(super) fn add_for_stream(&self, chunk: FreeChunk, mut binding: Binding) {
        let Some(stream) = binding.stream() else { return self.add_for_context(chunk) };
        self.add(chunk, |state, chunk| {
            let frees = state.for_streams.entry(stream.addr()).or_default();
            frees.by_class.entry(chunk.class()).or_default().push(chunk);
            if frees.binding.stream().is_none() {
                std::mem::swap(&mut frees.binding, &mut binding);
            }
        });
        // Unlocked: dropping the last reference to a stream may call the driver.
        drop(binding);
    }

    /// A chunk that was bound to `stream` before, which need not wait for it.
    pub(super) fn take_for_stream(&self, stream: CUstream, class: u16) -> Option<FreeChunk> {
        let mut state = self.lock();
        let chunk = state.for_streams.get_mut(&stream.addr())?.by_class.get_mut(&class)?.pop()?;
        state.len -= 1;
        Some(chunk)
    }

    /// Keeps a chunk until the stream that it was bound to has finished its work so far. Returns chunks whose events have
    /// passed meanwhile.
    pub(super) fn add_for_event(&self, chunk: FreeChunk, binding: &Binding) -> Result<Chunks> {
        self.lock().len += 1;
        let chunk = self.taken(vec![chunk]);
        let event = self.record(binding)?;
        chunk.wait_for(event, binding.stream().map_or(0, |stream| stream.addr()));
        Ok(self.poll(Self::POLLED))
    }

    /// A chunk that was bound to a stream at this address before, with the event to wait for first: another stream may have
    /// the address now.
    pub(super) fn take_for_event(&self, stream: CUstream, class: u16) -> Option<(Taken<'_>, Arc<Event>)> {
        let mut state = self.lock();
        let (chunk, event) =
            state.for_events.iter_mut().filter(|frees| frees.stream == stream.addr()).find_map(|frees| {
                let index = frees.chunks.iter().position(|chunk| chunk.class() == class)?;
                Some((frees.chunks.swap_remove(index), frees.event.clone()))
            })?;
        // An entry without chunks goes when its event has passed.
        Some((self.taken(vec![chunk]), event))
    }

    /// Takes the chunks whose events have passed, of the first `most` events. Does not wait.
    pub(super) fn poll(&self, most: usize) -> Chunks {
        let mut free = self.taken(Vec::new());
        let count = self.lock().for_events.len().min(most);
        for _ in 0..count {
            let Some(EventFrees { event, stream, chunks }) = self.lock().for_events.pop_front() else { break };
            let mut chunks = self.taken(chunks);
            match event.is_complete() {
                Ok(false) => chunks.wait_for(event, stream),
                // Such as one that a capture recorded: it never passes.
                Err(error) if !ends_all_work(&error) => drop(chunks),
                Ok(true) | Err(_) => free.chunks.append(&mut chunks.chunks),
            }
        }
        free.into_free()
    }

    /// Chunks that `len` includes.
    fn taken(&self, chunks: Chunks) -> Taken<'_> {
        Taken { pending: self, chunks }
    }

    /// Queues chunks that `len` includes.
    fn queue(&self, frees: EventFrees) {
        let mut state = self.lock();
        if state.closed {
            // Unlocked: with its last chunk a block goes.
            drop(state);
            return drop(frees);
        }
        state.for_events.push_back(frees);
    }

    /// Records an event on each stream with chunks, so that any stream may use these after it.
    pub(super) fn fence_streams(&self) {
        let for_streams = std::mem::take(&mut self.lock().for_streams);
        let taken = for_streams.into_iter().map(|(stream, StreamFrees { binding, by_class })| {
            (stream, binding, self.taken(by_class.into_values().flatten().collect()))
        });
        // All before the first call of the driver.
        let taken: Vec<_> = taken.collect();
        for (stream, binding, chunks) in taken {
            if chunks.chunks.is_empty() {
                continue;
            }
            match self.record(&binding) {
                Ok(event) => chunks.wait_for(event, stream),
                Err(error) => {
                    drop(chunks);
                    log::debug!("an event for memory of a pool: {error}");
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
        let (mut chunks, for_streams, for_events) = {
            let mut state = self.lock();
            state.for_context_bytes = 0;
            let State { for_context, for_streams, for_events, .. } = &mut *state;
            (std::mem::take(for_context), std::mem::take(for_streams), std::mem::take(for_events))
        };
        // They keep streams and events alive until the wait is over.
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
        let chunks = self.taken(chunks);
        let answer = self.context.run(|| cuda()?.context_synchronize());
        drop((bindings, events));
        if let Err(error) = answer
            && !ends_all_work(&error)
        {
            return Err(error);
        }
        Ok(chunks.into_free())
    }

    /// Takes everything, and keeps nothing from now on. Dropping what was taken may call the driver: the blocks of the chunks
    /// wait for the context by themselves.
    #[must_use]
    pub(super) fn close(&self) -> impl Sized + use<> {
        std::mem::replace(&mut *self.lock(), State { closed: true, ..State::default() })
    }

    /// Keeps chunks that `len` includes until the whole context has finished.
    fn move_to_context(&self, chunks: Chunks) {
        self.remove_from_len(chunks.len());
        chunks.into_iter().for_each(|chunk| self.add_for_context(chunk));
    }

    /// Subtracts chunks that were taken out, unless the pool was closed meanwhile.
    fn remove_from_len(&self, chunks: usize) {
        let mut state = self.lock();
        state.len = state.len.saturating_sub(chunks);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
