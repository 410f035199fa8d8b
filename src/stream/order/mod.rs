//! [`StreamOrder`]: orders the uses of one memory across cudarc's streams.
//!
//! A read waits for earlier writes, a write for all earlier uses, on whichever streams of the memory's context they
//! were submitted.
//!
//! Every stream has an event for its reads and one for its writes. Kernel launches share the event pairs of up to four
//! cudarc slices, see [`launches`].
#![expect(unsafe_code, reason = "its events live as long as the order")]

mod launch_slice;
mod launches;
mod stable_box;

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
use crate::driver::{LEGACY_STREAM, PER_THREAD_STREAM, fork};
use crate::lock::{Lock, LockGuard};
use crate::stream::DefaultStream;
use launch_slice::{LaunchSlice, LaunchSlices};
use stable_box::{StableBox, abandon_event};

/// How a use accesses the bytes.
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

/// The submitter of a use.
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

/// All uses by one user with one access. The latest has recorded the event, or is about to.
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

/// The order of the uses of one memory. Dropped when the memory is free, after all uses were submitted.
#[derive(Debug)]
pub(crate) struct StreamOrder {
    context: Context,
    /// The first slice is made with the order, the others by launches. The drop frees them in their context.
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
    /// All events that do not belong to a slice.
    events: Vec<StableBox<CudaEvent>>,
    /// Whether a stream recorded uses; then launches probably do, too.
    recording: bool,
}

impl StreamOrder {
    /// The maximum number of (user, access) pairs with an event; beyond it the CPU waits for uses by others.
    const MAX_USES: usize = 64;

    /// The order of the uses of `len` bytes at `pointer`, memory of `context`. `None` if the driver creates no events.
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

    /// Whether a stream recorded uses; then launches probably do, too.
    pub(crate) fn is_recording(&self) -> bool {
        self.state().recording
    }

    /// Makes a stream wait for the uses that it must not overtake.
    pub(crate) fn wait(&self, stream: &CudaStream, access: Access) {
        let waits = self.state().waits(User::of(stream.cu_stream()), access);
        waits.into_iter().for_each(|event| wait(stream, event));
    }

    /// [`wait`](Self::wait), and returns how to record the use. `is_alone` returns true if no other thread can be
    /// submitting uses.
    pub(crate) fn submit(&self, stream: &CudaStream, access: Access, is_alone: impl FnOnce() -> bool) -> Recording<'_> {
        let user = User::of(stream.cu_stream());
        let (alone, waits) = {
            let mut state = self.state();
            state.recording = true;
            // Under the lock: a lookup may find the memory at any time, but its uses are added here only after this.
            let alone = is_alone();
            if alone && access == Access::Write {
                state.forget_complete(&self.slices);
            }
            (alone, state.waits(user, access))
        };
        waits.into_iter().for_each(|event| wait(stream, event));
        // A copy that reads gets an event of its own: its guard may record after a launch has reused the launches'
        // event.
        let of_launches = (access == Access::Write && alone).then(|| self.slices.first().write());
        self.recording(user, access, of_launches)
    }

    /// Records the uses that were submitted to a stream of this context so far without an event.
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

    /// Returns the event to record: `of_launches` if it is given and unused, otherwise the user's own.
    fn recording(&self, user: User, access: Access, of_launches: Option<&'static CudaEvent>) -> Recording<'_> {
        if let Some(recording) = self.state().recording(user, access, of_launches) {
            return recording;
        }
        // Without the lock: a refusal by the driver may be logged.
        let made = self.context.run(|| Ok(self.default_stream.private().context().new_event(None).ok()));
        let Ok(Some(made)) = made else { return Recording::Wait };
        let made = StableBox::new(made);
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
        // Clears the error that cudarc keeps: otherwise the next user of this context gets it.
        let _ = self.default_stream.private().context().check_err();
    }

    /// [`free`](Self::free) after CUDA destroyed events and streams with the context.
    fn abandon(&mut self) {
        let state = mem::take(self.state.get_mut());
        // SAFETY: nothing uses the events of free memory, and the default stream refers to the context.
        state.events.into_iter().for_each(|event| unsafe { abandon_event(event) });
        self.slices.take().for_each(LaunchSlice::abandon);
        if let Some(side) = self.side.get_mut() {
            side.abandon();
        }
    }

    /// Makes a stream of the context wait for all recorded uses.
    ///
    /// # Safety
    ///
    /// The stream must be live.
    pub(crate) unsafe fn finish_on(&self, stream: CUstream) -> Result<()> {
        let events: Vec<_> = self.state().uses.iter().map(|each| each.event).collect();
        // The events are destroyed with their context, so they are queried only within it.
        self.context.run(|| {
            for event in events.into_iter().filter(|event| !is_complete(event)) {
                // SAFETY: the event lives as long as the order, and the stream by this method's contract.
                unsafe { cuda()?.stream_wait_event(stream, event.cu_event()) }?;
            }
            Ok(())
        })
    }
}

impl Drop for StreamOrder {
    fn drop(&mut self) {
        if fork::is_forked() {
            // Everything is the parent's.
            return;
        }
        match self.context.try_enter() {
            Ok(Entered::Current(_guard)) => {
                self.free();
                self.side.take();
            }
            Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => self.abandon(),
            // The driver destroys events and streams whichever context is current; cudarc changes the current context.
            Err(_) => keeping_current(|| self.free()),
        }
    }
}

impl State {
    /// The events that a use by `user` waits for, including its own: another stream may have had its handle before.
    fn waits(&self, user: User, access: Access) -> Vec<&'static CudaEvent> {
        let earlier = |each: &&Use| each.access.conflicts_with(access) || each.user == user;
        self.uses.iter().filter(earlier).map(|each| each.event).collect()
    }

    fn has(&self, event: &CudaEvent) -> bool {
        self.uses.iter().any(|each| ptr::eq(each.event, event))
    }

    /// How to record a use: in the event of the user's earlier uses, else in `of_launches` if no use has it, else in a
    /// spare event. `None` if there is no spare event.
    fn recording(
        &mut self,
        user: User,
        access: Access,
        of_launches: Option<&'static CudaEvent>,
    ) -> Option<Recording<'static>> {
        if let Some(known) = self.uses.iter().find(|each| (each.user, each.access) == (user, access)) {
            return Some(Recording::Event(known.event));
        }
        if self.uses.len() >= StreamOrder::MAX_USES {
            return Some(Recording::Wait);
        }
        let event = of_launches.filter(|event| !self.has(event)).or_else(|| self.spare.pop())?;
        self.uses.push(Use { user, access, event });
        Some(Recording::Event(event))
    }

    /// Forgets uses whose events have passed. The caller has the only reference: no guard is about to record one of
    /// them.
    fn forget_complete(&mut self, slices: &LaunchSlices) {
        let passed = self.uses.extract_if(.., |each| is_complete(each.event)).map(|each| each.event);
        let spare: Vec<_> = passed.filter(|event| !slices.have(event)).collect();
        self.spare.extend(spare);
    }

    /// Assigns an event of a slice to launches.
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

/// Makes a stream wait for an event; if the driver refuses, the CPU waits. cudarc keeps an error of this for
/// `CudaContext::check_err`, and keeps an earlier error, which the wait would consume.
fn wait(stream: &CudaStream, event: &CudaEvent) {
    let earlier = stream.context().check_err();
    let waited = stream.wait(event).or_else(|_| event.synchronize());
    stream.context().record_err(waited);
    stream.context().record_err(earlier);
}
