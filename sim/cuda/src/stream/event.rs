//! Events: points in a stream that can be asked about, waited for and timed.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent_flags;

use super::table as streams;
use crate::boundary::exports;
use crate::code::{CAPTURED_EVENT, Code, INVALID_HANDLE, INVALID_VALUE, NOT_READY, OUT_OF_MEMORY, Outcome};
use crate::context::{self, Context, stale};
use crate::ffi::Out;
use crate::graph::capture::{self, Point};
use crate::graph::{self, Operation, Work};
use crate::handle::Handles;
use crate::health::Health;
use crate::owner::Owner;
use crate::pool;
use crate::queue::{Marker, Placement, Stream};
use crate::sync::lock;
use simcommon::payload::{Kind, Payload};

const BLOCKING_SYNC: u32 = CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
const DISABLE_TIMING: u32 = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
const EXTERNAL: u32 = 1;
const INTERPROCESS: u32 = CUevent_flags::CU_EVENT_INTERPROCESS as u32;

#[derive(Clone)]
enum Recorded {
    Live {
        marker: Marker,
        time: Arc<OnceLock<Instant>>,
        /// The number in the payload; 0 without one.
        number: u64,
    },
    /// In a stream that captured.
    Captured(Point),
}

impl Recorded {
    /// The point in a stream. An event of a capture has none.
    fn marker(&self) -> Result<&Marker, Code> {
        match self {
            Recorded::Live { marker, .. } => Ok(marker),
            Recorded::Captured(_) => Err(CAPTURED_EVENT),
        }
    }
}

struct Event {
    flags: u32,
    owner: Owner,
    health: Arc<Health>,
    last: Mutex<Option<Recorded>>,
    /// Of an event that other processes may have.
    payload: Option<Arc<Payload>>,
}

/// The longest wait in the kernel for another process, after which a wait looks whether it must end.
const PAUSE: Duration = Duration::from_millis(10);

/// The last record of an event, where another process made it.
struct Elsewhere {
    payload: Arc<Payload>,
    number: u64,
}

impl Event {
    /// Sets the last record. The one before, which may be the last to hold a graph with the program's objects, is dropped with
    /// the event unlocked: the objects' destructors may wait for threads that use the event.
    fn set_last(&self, record: Recorded) {
        let before = lock(&self.last).replace(record);
        drop(before);
    }

    fn elsewhere(&self) -> Option<Elsewhere> {
        let payload = self.payload.as_ref()?;
        let number = payload.last_record();
        let own = match &*lock(&self.last) {
            Some(Recorded::Live { number, .. }) => *number,
            _ => 0,
        };
        (number > own).then(|| Elsewhere { payload: Arc::clone(payload), number })
    }
}

impl Elsewhere {
    fn wait(&self, health: &Health) {
        while !self.payload.wait_for_record(self.number, PAUSE) && !health.ends_waits() {}
    }
}

/// The payload of an event that was created for other processes.
pub(crate) fn payload(event: usize) -> Result<Arc<Payload>, Code> {
    get(event)?.payload.clone().ok_or(INVALID_HANDLE)
}

/// An event of another process: its handle.
pub(crate) fn open(context: &Context, payload: Payload) -> usize {
    insert(context, INTERPROCESS | DISABLE_TIMING, Some(Arc::new(payload)))
}

fn insert(context: &Context, flags: u32, payload: Option<Arc<Payload>>) -> usize {
    let health = Arc::clone(&context.health);
    let event = Event { flags, owner: context.owner(), health, last: Mutex::new(None), payload };
    EVENTS.insert(Arc::new(event))
}

static EVENTS: Handles<Arc<Event>> = Handles::new(INVALID_HANDLE);

fn get(event: usize) -> Result<Arc<Event>, Code> {
    EVENTS.find(event).ok_or_else(|| stale::unknown("event", event))
}

fn last(event: usize) -> Result<Option<Recorded>, Code> {
    Ok(lock(&get(event)?.last).clone())
}

/// Refuses handles of no event.
pub(crate) fn check(event: usize) -> Outcome {
    get(event).map(drop)
}

/// The number of live events.
pub(crate) fn count() -> usize {
    EVENTS.count()
}

/// Forgets the events of a destroyed context.
pub(crate) fn release_all_of(owner: Owner) {
    stale::orphan(&EVENTS, |event| event.owner == owner);
}

fn create(out: Out<usize>, flags: u32) -> Outcome {
    out.required()?;
    let context = context::usable()?;
    let shared = flags & INTERPROCESS != 0;
    if flags & !(BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS) != 0 || shared && flags & DISABLE_TIMING == 0 {
        return Err(INVALID_VALUE);
    }
    let payload = if shared { Some(Payload::create(Kind::Event, 0).map_err(|_| OUT_OF_MEMORY)?) } else { None };
    out.set(insert(&context, flags, payload.map(Arc::new)))
}

fn record(event: usize, stream: usize) -> Outcome {
    let stream = streams::capturable(stream)?;
    let recorded = get_for(event, &stream)?;
    if let Some(point) = capture::point(&stream)? {
        recorded.set_last(Recorded::Captured(point));
        return Ok(());
    }
    record_on(event, &stream)
}

/// The event, to be recorded in the stream: both must be of one context.
fn get_for(event: usize, stream: &Stream) -> Result<Arc<Event>, Code> {
    let event = get(event)?;
    if event.owner == stream.owner { Ok(event) } else { Err(INVALID_HANDLE) }
}

/// Records the event in the stream's order, outside of captures.
fn record_on(event: usize, stream: &Arc<Stream>) -> Outcome {
    let event = get(event)?;
    let time = Arc::new(OnceLock::new());
    let clock = Arc::clone(&time);
    let shared = event.payload.as_ref().map(|payload| (Arc::clone(payload), payload.next_signal()));
    let number = shared.as_ref().map_or(0, |(_, number)| *number);
    let record = shared.clone();
    let work = move |_: &Health| {
        clock.get_or_init(Instant::now);
        if let Some((payload, number)) = record {
            payload.complete(number);
        }
    };
    let marker = match stream.submit_after(Vec::new(), Placement::Anywhere, Box::new(work)) {
        Ok(marker) => marker,
        Err(code) => {
            // Or others would wait for it.
            if let Some((payload, number)) = shared {
                payload.complete(number);
            }
            return Err(code);
        }
    };
    if shared.is_some() {
        // Other processes may wait for it, of which `SIMCUDA_LATE=1` does not know.
        marker.ask();
    }
    event.set_last(Recorded::Live { marker, time, number });
    Ok(())
}

/// `CU_EVENT_RECORD_EXTERNAL` makes a node of the graph's that records, and is for captures only.
fn record_with_flags(event: usize, stream: usize, flags: u32) -> Outcome {
    match flags {
        0 => record(event, stream),
        EXTERNAL => {
            let stream = streams::capturable(stream)?;
            get_for(event, &stream)?;
            let captured = capture::add(&stream, || Operation::new(Record(event)))?;
            if captured { Ok(()) } else { Err(INVALID_VALUE) }
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Lets the stream's later work wait for the event.
pub(super) fn wait(event: usize, stream: &Arc<Stream>, external: bool) -> Outcome {
    check(event)?;
    if external {
        return if capture::add(stream, || Operation::new(Wait(event)))? { Ok(()) } else { Err(INVALID_VALUE) };
    }
    let point = match last(event)? {
        Some(Recorded::Captured(point)) => Some(point),
        _ => None,
    };
    if capture::wait(stream, point)? {
        return Ok(());
    }
    wait_on(event, stream)
}

/// As [`wait`], outside of captures.
fn wait_on(event: usize, stream: &Arc<Stream>) -> Outcome {
    if let Some(elsewhere) = get(event)?.elsewhere() {
        let work = move |health: &Health| elsewhere.wait(health);
        stream.submit_after(Vec::new(), Placement::Worker, Box::new(work))?;
        return Ok(());
    }
    let after = match last(event)? {
        Some(record) => vec![record.marker()?.clone()],
        None => Vec::new(),
    };
    stream.submit_after(after, Placement::Anywhere, Box::new(|_| ()))?;
    Ok(())
}

/// The record of an event, by its handle, as a node of a graph.
pub(crate) struct Record(pub(crate) usize);

impl Work for Record {
    fn kind(&self) -> graph::Kind {
        graph::Kind::Record
    }

    fn check(&self) -> Outcome {
        check(self.0)
    }

    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        record_on(self.0, stream)
    }
}

/// The wait for an event, by its handle, as a node of a graph.
pub(crate) struct Wait(pub(crate) usize);

impl Work for Wait {
    fn kind(&self) -> graph::Kind {
        graph::Kind::Wait
    }

    fn check(&self) -> Outcome {
        check(self.0)
    }

    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        wait_on(self.0, stream)
    }
}

/// Whether an event may be asked: not one of a capture, which is its error whatever else is captured (cudarc's test
/// `test_event_try_is_complete_preserves_capture_error`), and no other while a capture forbids it.
fn check_asked(event: &Event) -> Outcome {
    let forbidden = capture::check_unsafe();
    let is_captured = matches!(*lock(&event.last), Some(Recorded::Captured(_)));
    if is_captured { Err(CAPTURED_EVENT) } else { forbidden }
}

fn query(handle: usize) -> Outcome {
    let event = get(handle)?;
    check_asked(&event)?;
    event.health.check()?;
    if let Some(elsewhere) = event.elsewhere() {
        return if elsewhere.payload.is_complete(elsewhere.number) { Ok(()) } else { Err(NOT_READY) };
    }
    match last(handle)? {
        Some(record) if !record.marker()?.ask() => Err(NOT_READY),
        _ => Ok(()),
    }
}

/// Needs no current context.
fn synchronize(handle: usize) -> Outcome {
    let event = get(handle)?;
    check_asked(&event)?;
    if let Some(elsewhere) = event.elsewhere() {
        elsewhere.wait(&event.health);
    } else if let Some(record) = last(handle)? {
        record.marker()?.wait();
    }
    pool::release_unused();
    event.health.check()
}

/// Work that still waits for the event is not affected.
fn destroy(event: usize) -> Outcome {
    let event = EVENTS.remove(event).map_err(|_| stale::unknown("event", event))?;
    event.health.check()
}

/// The last record of an event that measures time. The record's time is set once its marker has passed.
fn timed(event: &Event) -> Result<(Marker, Arc<OnceLock<Instant>>), Code> {
    if event.flags & DISABLE_TIMING != 0 {
        return Err(INVALID_HANDLE);
    }
    match lock(&event.last).as_ref().ok_or(INVALID_HANDLE)? {
        Recorded::Live { marker, time, .. } => Ok((marker.clone(), Arc::clone(time))),
        Recorded::Captured(_) => Err(CAPTURED_EVENT),
    }
}

/// The time of a record that has completed.
fn time_of((marker, time): &(Marker, Arc<OnceLock<Instant>>)) -> Option<Instant> {
    if marker.ask() { time.get().copied() } else { None }
}

fn elapsed(out: Out<f32>, start: usize, end: usize) -> Outcome {
    out.required()?;
    let (start, end) = (get(start)?, get(end)?);
    start.health.check()?;
    // What is wrong with either event comes before what is not ready yet.
    let (start, end) = (timed(&start)?, timed(&end)?);
    // Both are asked about, so that both start where `SIMCUDA_LATE=1` holds work back.
    let (start, end) = time_of(&start).zip(time_of(&end)).ok_or(NOT_READY)?;
    let forward = end.saturating_duration_since(start).as_secs_f32();
    let backward = start.saturating_duration_since(end).as_secs_f32();
    out.set((forward - backward) * 1000.0)
}

exports! {
    cuEventCreate => create(out: Out<usize>, flags: u32);
    cuEventRecord, cuEventRecord_ptsz => record(event: usize, stream: usize);
    cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz =>
        record_with_flags(event: usize, stream: usize, flags: u32);
    cuEventQuery => query(event: usize);
    cuEventSynchronize => synchronize(event: usize);
    cuEventElapsedTime, cuEventElapsedTime_v2 => elapsed(out: Out<f32>, start: usize, end: usize);
    cuEventDestroy_v2, cuEventDestroy => destroy(event: usize), Release;
}
