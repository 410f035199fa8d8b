//! The order of a memory's uses on cudarc's streams: a read waits for earlier writes, a write for all earlier uses, on
//! whichever streams of the memory's context they were submitted.
//!
//! Every stream has an event for its reads and one for its writes. Kernel launches share the two events of a cudarc slice,
//! see [`launches`].
#![expect(unsafe_code, reason = "its events live as long as the order")]

mod launch_slice;
mod launches;
mod pinned;

use std::mem;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::driver::{CudaEvent, CudaStream};

use crate::Result;
use crate::driver::context::{Context, Entered, keeping_current};
use crate::driver::cuda::cuda;
use crate::driver::owned_stream::OwnedStream;
use crate::driver::{LEGACY_STREAM, PER_THREAD_STREAM, process};
use crate::lock::{Lock, LockGuard};
use crate::stream::DefaultStream;
use launch_slice::{LaunchSlice, LaunchSlices};
use pinned::{Pinned, abandon_event};

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
    /// The first is made with the order, the others for launches. Freed by the drop, in its context.
    slices: LaunchSlices,
    state: Lock<State>,
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

    /// The order of the uses of `len` bytes at `pointer`, memory of `context`. `None` when the driver gives no events.
    pub(crate) fn new(
        context: Context,
        default_stream: Arc<DefaultStream>,
        pointer: CUdeviceptr,
        len: usize,
    ) -> Option<Self> {
        // SAFETY: the order frees the slice before it drops the stream.
        let make = || Ok(unsafe { LaunchSlice::new(&default_stream, pointer, len) });
        let slices = LaunchSlices::new(context.run(make).ok()??);
        Some(Self { context, slices, state: Lock::default(), side: OnceLock::new(), default_stream })
    }

    /// Whether a stream can record this order's events: cudarc compares the contexts' values.
    pub(crate) fn accepts(&self, stream: &CudaStream) -> bool {
        stream.context() == self.default_stream.private().context()
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

    /// As [`wait`](Self::wait), and tells how the use is recorded. `is_alone` says that no other thread can be submitting uses.
    pub(crate) fn submit(&self, stream: &CudaStream, access: Access, is_alone: impl FnOnce() -> bool) -> Recording<'_> {
        let user = User::of(stream.cu_stream());
        let (alone, waits) = {
            let mut state = self.state();
            state.recording = true;
            // Under the lock: a lookup may find the memory at any time, but adds its use to those here only afterwards.
            let alone = is_alone();
            if alone && access == Access::Write {
                state.forget_complete(&self.slices);
            }
            (alone, state.waits(user, access))
        };
        waits.into_iter().for_each(|event| wait(stream, event));
        // A copy that reads has an event of its own: its guard may still record it after a launch has used that of launches.
        let of_launches = (access == Access::Write && alone).then(|| self.slices.first().write());
        self.recording(user, access, of_launches)
    }

    /// Adds the uses that a stream of this context was given so far, and did not record.
    ///
    /// # Safety
    ///
    /// The stream must be live.
    pub(crate) unsafe fn record_earlier(&self, stream: CUstream, access: Access) -> Result<()> {
        let recording = self.recording(User::of(stream), access, None);
        let event = match recording {
            Recording::Event(event) => event.cu_event(),
            Recording::Wait => return self.context.run(|| cuda()?.context_synchronize()),
        };
        // SAFETY: the event lives as long as the order, and the stream by this method's contract.
        self.context.run(|| unsafe { cuda()?.event_record(event, stream) })
    }

    /// The event of a user's uses: that of launches if it is given and has no use, else one of its own.
    fn recording(&self, user: User, access: Access, of_launches: Option<&'static CudaEvent>) -> Recording<'_> {
        if let Some(recording) = self.state().recording(user, access, of_launches) {
            return recording;
        }
        // Without the lock: the driver may refuse, and that be logged.
        let made = self.context.run(|| Ok(self.default_stream.private().context().new_event(None).ok()));
        let Ok(Some(made)) = made else { return Recording::Wait };
        let made = Pinned::new(made);
        let mut state = self.state();
        // SAFETY: freed with the order.
        state.spare.push(unsafe { made.get() });
        state.events.push(made);
        state.recording(user, access, None).unwrap_or(Recording::Wait)
    }

    fn state(&self) -> LockGuard<'_, State> {
        self.state.lock()
    }

    /// Frees the events. Called once, by the drop.
    fn free(&mut self) {
        let state = mem::take(self.state.get_mut());
        // SAFETY: nothing uses the events of free memory.
        state.events.into_iter().for_each(|event| drop(unsafe { event.into_box() }));
        self.slices.take().for_each(LaunchSlice::free);
        // An error that cudarc keeps would be that of the next memory of this context.
        let _ = self.default_stream.private().context().check_err();
    }

    /// As [`free`](Self::free), after CUDA destroyed events and streams with the context.
    fn abandon(&mut self) {
        let state = mem::take(self.state.get_mut());
        // SAFETY: nothing uses the events of free memory, and the default stream refers to the context.
        state.events.into_iter().for_each(|event| unsafe { abandon_event(event) });
        self.slices.take().for_each(LaunchSlice::abandon);
        if let Some(side) = self.side.get_mut() {
            side.abandon();
        }
    }
}

impl Drop for StreamOrder {
    fn drop(&mut self) {
        if process::is_forked() {
            // Everything is the parent's.
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

    /// Where to record a use: in the event of the user's earlier uses, else in that of launches if no other use has it, else in
    /// a spare one. `None` where there is no event to record in.
    fn recording(
        &mut self,
        user: User,
        access: Access,
        of_launches: Option<&'static CudaEvent>,
    ) -> Option<Recording<'static>> {
        if let Some(known) = self.uses.iter().find(|each| (each.user, each.access) == (user, access)) {
            return Some(Recording::Event(known.event));
        }
        if self.uses.len() >= StreamOrder::MOST_USES {
            return Some(Recording::Wait);
        }
        let event = of_launches.filter(|event| !self.has(event)).or_else(|| self.spare.pop())?;
        self.uses.push(Use { user, access, event });
        Some(Recording::Event(event))
    }

    /// Forgets uses whose events have passed. The caller has the memory alone: no guard is about to record one.
    fn forget_complete(&mut self, slices: &LaunchSlices) {
        let passed = self.uses.extract_if(.., |each| is_complete(each.event)).map(|each| each.event);
        let spare: Vec<_> = passed.filter(|event| !slices.have(event)).collect();
        self.spare.extend(spare);
    }

    /// Leaves an event of the slice to launches.
    fn leave_to_launches(&mut self, event: &'static CudaEvent, access: Access) {
        match self.uses.iter_mut().find(|each| ptr::eq(each.event, event)) {
            Some(known) => known.user = User::Launch,
            None => self.uses.push(Use { user: User::Launch, access, event }),
        }
    }
}

fn is_complete(event: &CudaEvent) -> bool {
    event.try_is_complete().unwrap_or(false)
}

/// Makes a stream wait for an event; where the driver refuses, the CPU waits. Errors are cudarc's to return
/// (`CudaContext::check_err`), as is an earlier one that it keeps, which its functions would consume.
fn wait(stream: &CudaStream, event: &CudaEvent) {
    let earlier = stream.context().check_err();
    let waited = stream.wait(event).or_else(|_| event.synchronize());
    stream.context().record_err(waited);
    stream.context().record_err(earlier);
}
