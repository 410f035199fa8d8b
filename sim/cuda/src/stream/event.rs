//! Events: points in a stream that can be asked about, waited for and timed.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Instant;

use cudarc::driver::sys::CUevent_flags;

use super::table as streams;
use crate::boundary::exports;
use crate::code::{CAPTURED_EVENT, Code, INVALID_HANDLE, INVALID_VALUE, NOT_READY, NOT_SUPPORTED, Outcome};
use crate::context::{self, stale};
use crate::ffi::Out;
use crate::graph::Operation;
use crate::graph::capture::{self, Point};
use crate::handle;
use crate::health::Health;
use crate::owner::Owner;
use crate::pool;
use crate::queue::{Marker, Placement, Stream};
use crate::sync::lock;

const BLOCKING_SYNC: u32 = CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
const DISABLE_TIMING: u32 = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
const EXTERNAL: u32 = 1;
const INTERPROCESS: u32 = CUevent_flags::CU_EVENT_INTERPROCESS as u32;

#[derive(Clone)]
enum Record {
    Live {
        marker: Marker,
        time: Arc<OnceLock<Instant>>,
    },
    /// In a stream that captured.
    Captured(Point),
}

impl Record {
    /// The point in a stream. An event of a capture has none.
    fn marker(&self) -> Result<&Marker, Code> {
        match self {
            Record::Live { marker, .. } => Ok(marker),
            Record::Captured(_) => Err(CAPTURED_EVENT),
        }
    }
}

struct Event {
    flags: u32,
    owner: Owner,
    health: Arc<Health>,
    last: Mutex<Option<Record>>,
}

static EVENTS: LazyLock<Mutex<HashMap<usize, Arc<Event>>>> = LazyLock::new(Mutex::default);

fn get(event: usize) -> Result<Arc<Event>, Code> {
    lock(&EVENTS).get(&event).cloned().ok_or_else(|| unknown(event))
}

/// The error for a handle without an event.
fn unknown(event: usize) -> Code {
    stale::object("event", event);
    INVALID_HANDLE
}

fn last(event: usize) -> Result<Option<Record>, Code> {
    Ok(lock(&get(event)?.last).clone())
}

/// Refuses handles of no event.
pub(crate) fn check(event: usize) -> Outcome {
    get(event).map(drop)
}

/// The number of live events.
pub(crate) fn count() -> usize {
    lock(&EVENTS).len()
}

/// Forgets the events of a destroyed context.
pub(crate) fn release_all_of(owner: Owner) {
    let mut events = lock(&EVENTS);
    stale::orphan(events.extract_if(|_, event| event.owner == owner).map(|(handle, _)| handle));
}

fn create(out: Out<usize>, flags: u32) -> Outcome {
    out.required()?;
    let context = context::usable()?;
    if flags & INTERPROCESS != 0 {
        return Err(NOT_SUPPORTED);
    }
    if flags & !(BLOCKING_SYNC | DISABLE_TIMING) != 0 {
        return Err(INVALID_VALUE);
    }
    let health = Arc::clone(&context.health);
    let event = Event { flags, owner: context.owner(), health, last: Mutex::new(None) };
    let handle = handle::next();
    lock(&EVENTS).insert(handle, Arc::new(event));
    out.set(handle)
}

fn record(event: usize, stream: usize) -> Outcome {
    let stream = streams::capturable(stream)?;
    let inner = get(event)?;
    if inner.owner != stream.owner {
        return Err(INVALID_HANDLE);
    }
    if let Some(point) = capture::point(&stream)? {
        *lock(&inner.last) = Some(Record::Captured(point));
        return Ok(());
    }
    record_on(event, &stream)
}

/// Records the event in the stream's order, outside of captures.
pub(crate) fn record_on(event: usize, stream: &Arc<Stream>) -> Outcome {
    let event = get(event)?;
    let time = Arc::new(OnceLock::new());
    let clock = Arc::clone(&time);
    let work = move |_: &Health| {
        clock.get_or_init(Instant::now);
    };
    let marker = stream.submit_after(Vec::new(), Placement::Anywhere, Box::new(work))?;
    *lock(&event.last) = Some(Record::Live { marker, time });
    Ok(())
}

/// `CU_EVENT_RECORD_EXTERNAL` makes a node of the graph's that records, and is for captures only.
fn record_with_flags(event: usize, stream: usize, flags: u32) -> Outcome {
    match flags {
        0 => record(event, stream),
        EXTERNAL => {
            let stream = streams::capturable(stream)?;
            check(event)?;
            let captured = capture::add(&stream, || Operation::Record(event))?;
            if captured { Ok(()) } else { Err(INVALID_VALUE) }
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Lets the stream's later work wait for the event.
pub(super) fn wait(event: usize, stream: &Arc<Stream>, external: bool) -> Outcome {
    check(event)?;
    if external && capture::add(stream, || Operation::Wait(event))? {
        return Ok(());
    }
    let point = match last(event)? {
        Some(Record::Captured(point)) => Some(point),
        _ => None,
    };
    if capture::wait(stream, point)? {
        return Ok(());
    }
    wait_on(event, stream)
}

/// As [`wait`], outside of captures.
pub(crate) fn wait_on(event: usize, stream: &Arc<Stream>) -> Outcome {
    let after = match last(event)? {
        Some(record) => vec![record.marker()?.clone()],
        None => Vec::new(),
    };
    stream.submit_after(after, Placement::Anywhere, Box::new(|_| ()))?;
    Ok(())
}

fn query(handle: usize) -> Outcome {
    get(handle)?.health.check()?;
    match last(handle)? {
        Some(record) if !record.marker()?.ask() => Err(NOT_READY),
        _ => Ok(()),
    }
}

/// Needs no current context.
fn synchronize(handle: usize) -> Outcome {
    let event = get(handle)?;
    if let Some(record) = last(handle)? {
        record.marker()?.wait();
    }
    pool::release_unused();
    event.health.check()
}

/// Work that still waits for the event is not affected.
fn destroy(event: usize) -> Outcome {
    let event = lock(&EVENTS).remove(&event).ok_or_else(|| unknown(event))?;
    event.health.check()
}

fn time_of(event: &Event) -> Result<Instant, Code> {
    if event.flags & DISABLE_TIMING != 0 {
        return Err(INVALID_HANDLE);
    }
    let last = lock(&event.last);
    match last.as_ref().ok_or(INVALID_HANDLE)? {
        Record::Live { marker, time } => time.get().filter(|_| marker.ask()).copied().ok_or(NOT_READY),
        Record::Captured(_) => Err(CAPTURED_EVENT),
    }
}

fn elapsed(out: Out<f32>, start: usize, end: usize) -> Outcome {
    out.required()?;
    let (start, end) = (get(start)?, get(end)?);
    start.health.check()?;
    let (start, end) = (time_of(&start)?, time_of(&end)?);
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
