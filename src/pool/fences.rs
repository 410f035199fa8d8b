//! Free pieces that the device may still use, until it is known that it does not.
//!
//! Three sorts: those that nothing is known of wait for the whole context; those that were bound to a stream that is
//! kept alive stay with it, to be lent for it again at once; those behind an event wait for that, or for the context if the
//! event cannot be asked. No lock is held while a driver is called.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUstream;

use crate::driver::context::Context;
use crate::driver::cuda::cuda;
use crate::memory::binding::Binding;
use crate::memory::piece::FreePiece;
use crate::{Error, Event, Result};

type Pieces = Vec<FreePiece>;

/// Pieces that wait for an event on a stream.
#[derive(Debug)]
struct Parked {
    event: Arc<Event>,
    /// The address of the stream, which may be gone.
    stream: usize,
    pieces: Pieces,
}

/// Pieces that belong to a stream until somebody else needs them.
#[derive(Debug, Default)]
struct Shelf {
    /// Keeps the stream alive.
    binding: Binding,
    pieces: HashMap<u16, Pieces>,
}

#[derive(Debug, Default)]
struct State {
    unknown: Pieces,
    unknown_bytes: usize,
    shelves: HashMap<usize, Shelf>,
    parked: VecDeque<Parked>,
    /// How many pieces there are.
    held: usize,
    /// Whether the pool is gone: then nothing is kept.
    closed: bool,
}

/// The pieces of a pool that the device may still use.
#[derive(Debug)]
pub(super) struct Fences {
    state: Mutex<State>,
    context: Context,
    /// The bytes that a piece takes up at least.
    smallest: usize,
}

/// As [`Error::ends_all_work`], of an error that is not told otherwise.
fn ends_all_work(error: &Error) -> bool {
    log::debug!("memory of a pool that the device may still use: {error}");
    error.ends_all_work()
}

impl Fences {
    /// How many events a freed piece looks at, so that they do not pile up.
    const GLANCE: usize = 2;

    pub(super) fn new(context: Context, smallest: usize) -> Self {
        Self { state: Mutex::default(), context, smallest }
    }

    pub(super) fn held(&self) -> usize {
        self.lock().held
    }

    /// The bytes of the pieces that wait for the whole context. They count with what was asked for, and at least
    /// with the smallest size.
    pub(super) fn unknown_bytes(&self) -> usize {
        self.lock().unknown_bytes
    }

    /// Keeps a piece until the whole context has finished.
    pub(super) fn keep(&self, piece: FreePiece) {
        self.keep_with(piece, |state, piece| {
            state.unknown_bytes += piece.len().max(self.smallest);
            state.unknown.push(piece);
        });
    }

    /// Keeps a piece, unless the pool is gone: then its block waits for the context by itself.
    fn keep_with(&self, piece: FreePiece, keep: impl FnOnce(&mut State, FreePiece)) {
        let mut state = self.lock();
        if state.closed {
            // Unlocked: with the last piece the block goes.
            drop(state);
            return drop(piece);
        }
        state.held += 1;
        keep(&mut state, piece);
    }

    /// Keeps a piece for the stream that it was bound to, which `binding` keeps alive.
    pub(super) fn shelve(&self, piece: FreePiece, mut binding: Binding) {
        let Some(stream) = binding.stream() else { return self.keep(piece) };
        self.keep_with(piece, |state, piece| {
            let shelf = state.shelves.entry(stream.addr()).or_default();
            shelf.pieces.entry(piece.tag().class).or_default().push(piece);
            if shelf.binding.stream().is_none() {
                std::mem::swap(&mut shelf.binding, &mut binding);
            }
        });
        // Unlocked: what keeps a stream alive may call the driver when it goes.
        drop(binding);
    }

    /// A piece that was bound to `stream` before, and that no other stream needs to wait for.
    pub(super) fn take_shelved(&self, stream: CUstream, class: u16) -> Option<FreePiece> {
        let mut state = self.lock();
        let piece = state.shelves.get_mut(&stream.addr())?.pieces.get_mut(&class)?.pop()?;
        state.held -= 1;
        Some(piece)
    }

    /// Keeps a piece until the stream that it was bound to has come to where it is now. Gives the pieces that waited and
    /// need not any more.
    pub(super) fn park(&self, piece: FreePiece, binding: &Binding) -> Result<Pieces> {
        match self.record(binding) {
            Ok(event) => {
                let stream = binding.stream().map_or(0, |stream| stream.addr());
                self.keep_with(piece, |state, piece| {
                    state.parked.push_back(Parked { event, stream, pieces: vec![piece] });
                });
            }
            Err(error) => {
                self.keep(piece);
                return Err(error);
            }
        }
        Ok(self.poll(Self::GLANCE))
    }

    fn record(&self, binding: &Binding) -> Result<Arc<Event>> {
        let event = self.context.run(|| binding.record())?;
        Ok(Arc::new(Event::new(event, self.context)))
    }

    /// A piece that was bound to a stream of this address before, with the event that whoever uses it has to wait for:
    /// it may be another stream now.
    pub(super) fn take_parked(&self, stream: CUstream, class: u16) -> Option<(FreePiece, Arc<Event>)> {
        let mut state = self.lock();
        let of_class = |pieces: &Pieces| pieces.iter().position(|piece| piece.tag().class == class);
        let found = state.parked.iter_mut().filter(|parked| parked.stream == stream.addr()).find_map(|parked| {
            let place = of_class(&parked.pieces)?;
            Some((parked.pieces.swap_remove(place), parked.event.clone()))
        });
        let found = found?;
        state.held -= 1;
        // An entry without pieces goes when its event has passed.
        Some(found)
    }

    /// Gives back what [`take_parked`](Self::take_parked) gave.
    pub(super) fn park_again(&self, piece: FreePiece, event: Arc<Event>, stream: CUstream) {
        self.keep_with(piece, |state, piece| {
            state.parked.push_back(Parked { event, stream: stream.addr(), pieces: vec![piece] });
        });
    }

    /// The pieces whose events have passed, of the first `most` events. Does not wait.
    pub(super) fn poll(&self, most: usize) -> Pieces {
        let mut free = Vec::new();
        let count = self.lock().parked.len().min(most);
        for _ in 0..count {
            let Some(parked) = self.lock().parked.pop_front() else { break };
            match parked.event.is_complete() {
                Ok(false) => self.park_back(parked),
                // Such as one that a capture recorded: it never passes.
                Err(error) if !ends_all_work(&error) => self.keep_all(parked.pieces),
                Ok(true) | Err(_) => free.extend(parked.pieces),
            }
        }
        self.uncount(free.len());
        free
    }

    /// Parks pieces that are counted already.
    fn park_back(&self, parked: Parked) {
        let mut state = self.lock();
        if state.closed {
            // Unlocked: with the last piece the block goes.
            drop(state);
            return drop(parked);
        }
        state.parked.push_back(parked);
    }

    /// Puts an event behind what the streams with pieces were given so far, so that the pieces may go elsewhere after it.
    pub(super) fn fence_shelves(&self) {
        let shelves = std::mem::take(&mut self.lock().shelves);
        for (stream, shelf) in shelves {
            let pieces: Pieces = shelf.pieces.into_values().flatten().collect();
            if pieces.is_empty() {
                continue;
            }
            match self.record(&shelf.binding) {
                Ok(event) => self.park_back(Parked { event, stream, pieces }),
                Err(error) => {
                    log::debug!("an event for memory of a pool: {error}");
                    self.keep_all(pieces);
                }
            }
        }
    }

    /// Waits for the whole context, and gives all pieces.
    pub(super) fn wait(&self) -> Result<Pieces> {
        let (unknown, shelves, parked) = {
            let mut state = self.lock();
            let State { unknown, unknown_bytes, shelves, parked, .. } = &mut *state;
            *unknown_bytes = 0;
            (std::mem::take(unknown), std::mem::take(shelves), std::mem::take(parked))
        };
        let mut streams = Vec::new();
        let mut pieces = unknown;
        for shelf in shelves.into_values() {
            pieces.extend(shelf.pieces.into_values().flatten());
            streams.push(shelf.binding);
        }
        let events = parked.into_iter().map(|parked| {
            pieces.extend(parked.pieces);
            parked.event
        });
        let events: Vec<_> = events.collect();
        if pieces.is_empty() {
            return Ok(pieces);
        }
        let answer = self.context.run(|| cuda()?.context_synchronize());
        drop((streams, events));
        if let Err(error) = answer
            && !ends_all_work(&error)
        {
            self.keep_all(pieces);
            return Err(error);
        }
        self.uncount(pieces.len());
        Ok(pieces)
    }

    /// Drops all pieces, and keeps none from now on. Their blocks wait for the context by themselves.
    pub(super) fn close(&self) {
        let state = std::mem::replace(&mut *self.lock(), State { closed: true, ..State::default() });
        // Unlocked: pieces, streams and events may call the drivers.
        drop(state);
    }

    /// Keeps pieces that are counted already until the whole context has finished.
    fn keep_all(&self, pieces: Pieces) {
        self.uncount(pieces.len());
        pieces.into_iter().for_each(|piece| self.keep(piece));
    }

    /// Takes pieces off the count that were taken out before, unless the pool has gone meanwhile.
    fn uncount(&self, pieces: usize) {
        let mut state = self.lock();
        state.held = state.held.saturating_sub(pieces);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
