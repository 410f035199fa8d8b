//! The order of a memory's uses on cudarc's streams: a read waits for earlier writes, a write for all earlier uses, on
//! whichever streams of the memory's context they were submitted.
//!
//! Every stream has an event for its reads and one for its writes. Kernel launches differ: cudarc tells an argument neither
//! the stream nor the time of its launch, and a launch waits for the two events of a cudarc slice and records one of
//! them. Uses that these two events do not cover are joined into them on a side stream.
#![expect(unsafe_code, reason = "its events live as long as the order")]

use std::mem;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::driver::{CudaEvent, CudaStream, CudaView, CudaViewMut};

use super::default_stream::DefaultStream;
use super::launch_slice::LaunchSlice;
use super::pinned::{Pinned, abandon_event};
use crate::Result;
use crate::driver::context::{Context, Entered, keeping_current};
use crate::driver::cuda::cuda;
use crate::driver::owned_stream::OwnedStream;
use crate::driver::{LEGACY_STREAM, PER_THREAD_STREAM, process};

/// What a use does to the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    /// Whether one of two uses must wait for the other.
    pub(crate) fn conflicts_with(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// What submits uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    /// A stream, by its handle.
    Stream(usize),
    /// The per-thread default stream of a thread.
    Thread(ThreadId),
    /// Kernel launches, on any stream.
    Launch,
    /// Earlier kernel launches, joined on the side stream.
    EarlierLaunches,
}

impl User {
    fn of(stream: CUstream) -> Self {
        match stream.addr() {
            PER_THREAD_STREAM => Self::Thread(thread::current().id()),
            LEGACY_STREAM => Self::Stream(0),
            address => Self::Stream(address),
        }
    }
}

/// Whether a stream is the legacy default stream of its context.
pub(crate) fn is_legacy(stream: CUstream) -> bool {
    User::of(stream) == User::Stream(0)
}

/// Uses of a user, the last of which recorded the event or is about to.
#[derive(Debug, Clone, Copy)]
struct Use {
    user: User,
    access: Access,
    /// Lives as long as the order.
    event: &'static CudaEvent,
}

/// How a use is recorded after it was submitted.
#[derive(Debug)]
pub(crate) enum Recording<'a> {
    Event(&'a CudaEvent),
    /// Not in an event: the CPU waits for it.
    Wait,
}

/// The order of the uses of one memory. Dropped when the memory is free, so that no use is submitted any more.
#[derive(Debug)]
pub(crate) struct StreamOrder {
    context: Context,
    /// None once it was freed.
    slice: Option<LaunchSlice>,
    state: Mutex<State>,
    side: OnceLock<OwnedStream>,
    default_stream: Arc<DefaultStream>,
}

#[derive(Debug, Default)]
struct State {
    uses: Vec<Use>,
    /// Events without a use.
    spare: Vec<&'static CudaEvent>,
    /// All events but the slice's.
    events: Vec<Pinned<CudaEvent>>,
    /// Whether a stream has recorded uses, so that launches probably do.
    recording: bool,
}

impl StreamOrder {
    /// Users that are told apart. The CPU waits for uses of any further one.
    const MOST_USES: usize = 64;

    /// The order of the uses of `len` bytes at `pointer`, memory of `context`. None when the driver gives no events.
    pub(crate) fn new(
        context: Context,
        default_stream: Arc<DefaultStream>,
        pointer: CUdeviceptr,
        len: usize,
    ) -> Option<Self> {
        // SAFETY: the order frees the slice before it drops the stream.
        let make = || Ok(unsafe { LaunchSlice::new(&default_stream, pointer, len) });
        let slice = context.run(make).ok()??;
        Some(Self { context, slice: Some(slice), state: Mutex::default(), side: OnceLock::new(), default_stream })
    }

    /// Whether a stream can record this order's events: cudarc compares the contexts' values.
    pub(crate) fn accepts(&self, stream: &CudaStream) -> bool {
        stream.context() == self.default_stream.context()
    }

    /// Whether a stream has recorded uses, so that launches probably do.
    pub(crate) fn is_recording(&self) -> bool {
        self.state().recording
    }

    /// Makes a stream wait for the uses that it must not overtake.
    pub(crate) fn wait(&self, stream: &CudaStream, access: Access) {
        let waits = self.state().waits(User::of(stream.cu_stream()), access);
        waits.into_iter().for_each(|event| wait(stream, event));
    }

    /// As [`wait`](Self::wait), and tells how the use is recorded. `alone` is whether nobody else can be submitting uses.
    pub(crate) fn submit(&self, stream: &CudaStream, access: Access, alone: bool) -> Recording<'_> {
        let user = User::of(stream.cu_stream());
        let (waits, recording) = {
            let mut state = self.state();
            state.recording = true;
            let waits = state.waits(user, access);
            if alone && access == Access::Write {
                state.supersede(self.slice());
            }
            (waits, self.recording(&mut state, user, access))
        };
        waits.into_iter().for_each(|event| wait(stream, event));
        recording
    }

    /// Adds the uses that a stream of this context was given so far, and did not record.
    ///
    /// # Safety
    ///
    /// The stream must be live.
    pub(crate) unsafe fn record_earlier(&self, stream: CUstream, access: Access) -> Result<()> {
        let event = match self.recording(&mut self.state(), User::of(stream), access) {
            Recording::Event(event) => event.cu_event(),
            Recording::Wait => return self.context.run(|| cuda()?.context_synchronize()),
        };
        // SAFETY: the event lives as long as the order, and the stream by this method's contract.
        self.context.run(|| unsafe { cuda()?.event_record(event, stream) })
    }

    fn recording(&self, state: &mut State, user: User, access: Access) -> Recording<'_> {
        let known = state.uses.iter().find(|each| (each.user, each.access) == (user, access));
        if let Some(known) = known {
            return Recording::Event(known.event);
        }
        if state.uses.len() >= Self::MOST_USES {
            return Recording::Wait;
        }
        let of_launches = slice_event(self.slice(), access);
        let event = if state.has(of_launches) { self.spare_event(state) } else { Some(of_launches) };
        event.map_or(Recording::Wait, |event| {
            state.uses.push(Use { user, access, event });
            Recording::Event(event)
        })
    }

    /// An event without a use. None when the driver gives none.
    fn spare_event(&self, state: &mut State) -> Option<&'static CudaEvent> {
        if let Some(event) = state.spare.pop() {
            return Some(event);
        }
        let made = self.context.run(|| Ok(self.default_stream.context().new_event(None).ok())).ok()??;
        let event = Pinned::new(made);
        // SAFETY: freed with the order.
        let reference = unsafe { event.get() };
        state.events.push(event);
        Some(reference)
    }

    /// The argument of a launch that reads a region, `len` bytes at `pointer`. The launch waits for earlier writes.
    ///
    /// # Safety
    ///
    /// The bytes must be this memory's, and the region at the address `region` be borrowed while the argument is used.
    pub(crate) unsafe fn argument<'a>(&self, region: usize, pointer: CUdeviceptr, len: usize) -> &'a CudaView<'a, u8> {
        self.prepare_launch(Access::Read, false);
        // SAFETY: by this method's contract; a borrowed region keeps its memory's order.
        unsafe { self.slice().argument(region, pointer, len) }
    }

    /// As [`argument`](Self::argument), of a launch that writes and waits for all earlier uses.
    ///
    /// # Safety
    ///
    /// As for [`argument`](Self::argument), and the region must be borrowed exclusively.
    pub(crate) unsafe fn argument_mut<'a>(
        &self,
        region: usize,
        pointer: CUdeviceptr,
        len: usize,
        alone: bool,
    ) -> &'a mut CudaViewMut<'a, u8> {
        self.prepare_launch(Access::Write, alone);
        // SAFETY: by this method's contract; a borrowed region keeps its memory's order.
        unsafe { self.slice().argument_mut(region, pointer, len) }
    }

    /// Joins the uses that a launch must wait for into the events that it waits for, and saves what it overwrites.
    fn prepare_launch(&self, access: Access, alone: bool) {
        let slice = self.slice();
        let mut state = self.state();
        let awaited = |event: &CudaEvent| {
            ptr::eq(event, slice.write()) || (access == Access::Write && ptr::eq(event, slice.read()))
        };
        let conflicting = state.uses.iter().filter(|each| each.access.conflicts_with(access));
        let mut missing: Vec<_> = conflicting.map(|each| each.event).filter(|&event| !awaited(event)).collect();
        let overwrites = access == Access::Read && state.has(slice.read());
        if alone && access == Access::Write {
            state.supersede(slice);
        }
        state.leave_to_launches(slice_event(slice, access), access);
        // None if there is nothing to save, or no event for it.
        let saved = if overwrites { self.earlier_launches(&mut state) } else { None };
        drop(state);

        missing.retain(|event| !is_complete(event));
        let joined = self.context.run(|| {
            if !missing.is_empty() {
                // A launch that writes waits for both events.
                let target = if access == Access::Write { slice.read() } else { slice.write() };
                missing.push(target);
                self.join(&missing, target)?;
            }
            if !overwrites || is_complete(slice.read()) {
                return Ok(());
            }
            match saved {
                Some(saved) => self.join(&[slice.read()], saved),
                None => cuda()?.context_synchronize(),
            }
        });
        if joined.is_err() {
            // The last resort; where the driver refuses this too, it refuses the launch.
            drop(self.context.run(|| cuda()?.context_synchronize()));
        }
    }

    /// The event of launches whose own event later ones recorded. It accumulates: the side stream passes joins in turn.
    fn earlier_launches(&self, state: &mut State) -> Option<&'static CudaEvent> {
        let known = state.uses.iter().find(|each| each.user == User::EarlierLaunches);
        if let Some(known) = known {
            return Some(known.event);
        }
        let event = self.spare_event(state)?;
        state.uses.push(Use { user: User::EarlierLaunches, access: Access::Read, event });
        Some(event)
    }

    /// Records `target` after all `events`. The context must be current.
    fn join(&self, events: &[&CudaEvent], target: &CudaEvent) -> Result<()> {
        let side = match self.side.get() {
            Some(side) => side,
            None => {
                let made = OwnedStream::new()?;
                self.side.get_or_init(|| made)
            }
        };
        for event in events {
            // SAFETY: events live as long as the order.
            unsafe { side.wait(event.cu_event()) }?;
        }
        // SAFETY: as above.
        unsafe { side.record(target.cu_event()) }
    }

    /// Makes a stream of the context, which is bound to the memory, wait for launches on others.
    ///
    /// # Safety
    ///
    /// The stream must be live.
    pub(crate) unsafe fn wait_for_launches(&self, stream: CUstream) -> Result<()> {
        let state = self.state();
        let launches = state.uses.iter().filter(|each| matches!(each.user, User::Launch | User::EarlierLaunches));
        let launches: Vec<_> = launches.map(|each| each.event).filter(|event| !is_complete(event)).collect();
        drop(state);
        if launches.is_empty() {
            return Ok(());
        }
        self.context.run(|| {
            for event in launches {
                // SAFETY: the event lives as long as the order, and the stream by this method's contract.
                unsafe { cuda()?.stream_wait_event(stream, event.cu_event()) }?;
            }
            Ok(())
        })
    }

    const fn slice(&self) -> &LaunchSlice {
        self.slice.as_ref().expect("freed by the drop alone")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&mut self) {
        let Some(slice) = self.slice.take() else { return };
        let state = mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: nothing uses the events of free memory.
        state.events.into_iter().for_each(|event| drop(unsafe { event.into_box() }));
        slice.free();
    }

    /// As [`free`](Self::free), after CUDA destroyed events and streams with the context.
    fn abandon(&mut self) {
        let Some(slice) = self.slice.take() else { return };
        let state = mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: nothing uses the events of free memory, and the default stream refers to the context.
        state.events.into_iter().for_each(|event| unsafe { abandon_event(event) });
        slice.abandon();
        if let Some(side) = self.side.get_mut() {
            side.abandon();
        }
    }
}

impl Drop for StreamOrder {
    fn drop(&mut self) {
        if process::is_forked() {
            // Everything is the parent's.
            mem::forget((self.slice.take(), mem::take(&mut self.state), self.default_stream.clone()));
            return;
        }
        match self.context.try_enter() {
            Ok(Entered::Current(_guard)) => {
                self.free();
                self.side.take();
            }
            Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => self.abandon(),
            // The driver destroys events and streams with any context current, and cudarc changes it.
            Err(_) => keeping_current(|| self.free()),
        }
    }
}

impl State {
    /// The events that a use of `user` waits for: its own included, since another stream may have had its handle before.
    fn waits(&self, user: User, access: Access) -> Vec<&'static CudaEvent> {
        let earlier = |each: &&Use| each.access.conflicts_with(access) || each.user == user;
        self.uses.iter().filter(earlier).map(|each| each.event).collect()
    }

    fn has(&self, event: &CudaEvent) -> bool {
        self.uses.iter().any(|each| ptr::eq(each.event, event))
    }

    /// Ends all uses: the next one waits for them, and all later ones for that.
    fn supersede(&mut self, slice: &LaunchSlice) {
        let events = self.uses.drain(..).map(|each| each.event);
        self.spare.extend(events.filter(|event| !ptr::eq(*event, slice.read()) && !ptr::eq(*event, slice.write())));
    }

    /// Leaves an event of the slice to launches.
    fn leave_to_launches(&mut self, event: &'static CudaEvent, access: Access) {
        match self.uses.iter_mut().find(|each| ptr::eq(each.event, event)) {
            Some(known) => known.user = User::Launch,
            None => self.uses.push(Use { user: User::Launch, access, event }),
        }
    }
}

/// The event that launches record.
const fn slice_event(slice: &LaunchSlice, access: Access) -> &'static CudaEvent {
    match access {
        Access::Read => slice.read(),
        Access::Write => slice.write(),
    }
}

fn is_complete(event: &CudaEvent) -> bool {
    event.try_is_complete().unwrap_or(false)
}

/// Makes a stream wait for an event; where the driver refuses, the CPU waits. Errors are cudarc's to return
/// (`CudaContext::check_err`).
fn wait(stream: &CudaStream, event: &CudaEvent) {
    let waited = stream.wait(event).or_else(|_| event.synchronize());
    stream.context().record_err(waited);
}
