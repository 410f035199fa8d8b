//! External semaphores: those that Vulkan exported, signalled and waited for in a stream's order.
//!
//! The payload behind the descriptor is that of the layer `VK_LAYER_VKGDR_semaphores` (`payload.rs`), so that a Vulkan
//! device, this driver and other processes have the same semaphore.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUexternalSemaphoreHandleType;

use crate::boundary::exports;
use crate::code::{Code, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM, Outcome};
use crate::context;
use crate::fd;
use crate::ffi::{In, Out};
use crate::graph::{self, Difference, Operation, Work, capture};
use crate::handle::Handles;
use crate::health::Health;
use crate::layout::{SemaphoreHandle, SemaphoreParameters};
use crate::owner::Owner;
use crate::queue::{Placement, Stream};
use crate::stream::table as streams;
use simcommon::payload::{Kind, Payload};
use simcommon::say;

const OPAQUE_FD: u32 = CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD as u32;
const TIMELINE_FD: u32 = CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD as u32;
const LAST: u32 = CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32 as u32;

/// The longest wait in the kernel, after which a wait looks whether it must end.
const PAUSE: Duration = Duration::from_millis(10);

struct Semaphore {
    payload: Arc<Payload>,
    owner: Owner,
}

static SEMAPHORES: Handles<Semaphore> = Handles::new(INVALID_HANDLE);

/// The number of live external semaphores.
pub(crate) fn count() -> usize {
    SEMAPHORES.count()
}

/// Releases the external semaphores of a destroyed context.
pub(crate) fn release_all_of(owner: Owner) {
    SEMAPHORES.remove_where(|semaphore| semaphore.owner == owner);
}

fn import(out: Out<usize>, description: In<SemaphoreHandle>) -> Outcome {
    out.required()?;
    let description = description.get()?;
    let context = context::usable()?;
    let kind = match description.kind {
        OPAQUE_FD => Kind::Binary,
        TIMELINE_FD => Kind::Timeline,
        kind if (OPAQUE_FD..=LAST).contains(&kind) => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_VALUE),
    };
    if description.flags != 0 {
        return Err(INVALID_VALUE);
    }
    let fd = fd::borrow(description.fd()).map_err(|_| INVALID_HANDLE)?;
    let payload = Payload::import(fd).map_err(|_| OPERATING_SYSTEM)?;
    let payload = payload.filter(|payload| payload.kind() == Some(kind)).ok_or(INVALID_HANDLE)?;
    // CUDA takes ownership of the descriptor, on success only.
    drop(fd::take(fd));
    out.set(SEMAPHORES.insert(Semaphore { payload: Arc::new(payload), owner: context.owner() }))
}

/// Work that is queued keeps the payload.
fn destroy(semaphore: usize) -> Outcome {
    SEMAPHORES.remove(semaphore).map(drop)
}

/// A semaphore, and its value as the caller gave it, which matters for timelines only.
#[derive(Clone)]
struct Point {
    payload: Arc<Payload>,
    value: u64,
}

/// Signals of semaphores, or waits for them, in one piece of work.
#[derive(Clone)]
struct Points(Vec<Point>);

impl Points {
    /// Reads and checks a caller's arrays.
    fn new(semaphores: In<usize>, parameters: In<SemaphoreParameters>, count: u32) -> Result<Points, Code> {
        let mut points = Vec::new();
        let table = SEMAPHORES.lock();
        for index in 0..usize::try_from(count).map_err(|_| INVALID_VALUE)? {
            let (handle, parameters) = (semaphores.element(index)?, parameters.element(index)?);
            // The one flag is for NvSciSync.
            if parameters.flags != 0 {
                return Err(INVALID_VALUE);
            }
            let semaphore = table.get(&handle).ok_or(INVALID_HANDLE)?;
            points.push(Point { payload: Arc::clone(&semaphore.payload), value: parameters.value });
        }
        Ok(Points(points))
    }

    /// What keeps new points from taking their place in an executable graph: their number cannot change.
    fn difference(&self, new: &Points) -> Option<Difference> {
        (new.0.len() != self.0.len()).then_some(Difference::Parameters)
    }

    /// The points for one submission: each wait of a binary semaphore has its own signal.
    fn numbered(&self, number: fn(&Payload) -> u64) -> Vec<Point> {
        let numbered = |point: &Point| match point.payload.kind() {
            Some(Kind::Binary) => Point { payload: Arc::clone(&point.payload), value: number(&point.payload) },
            _ => point.clone(),
        };
        self.0.iter().map(numbered).collect()
    }

    /// Queues the signals. They start at once where `SIMCUDA_LATE=1` holds work back, since others may wait for them.
    fn signal(&self, stream: &Arc<Stream>) -> Outcome {
        let points = self.numbered(Payload::next_signal);
        let work = move || {
            points.iter().for_each(raise);
            Ok(())
        };
        stream.submit(Placement::Anywhere, work)?.ask();
        Ok(())
    }

    /// Queues the waits.
    fn wait(&self, stream: &Arc<Stream>) -> Outcome {
        let points = self.numbered(Payload::next_wait);
        let health = Arc::clone(&stream.health);
        let work = move || {
            points.iter().for_each(|point| await_value(point, &health));
            Ok(())
        };
        stream.submit(Placement::Worker, work)?;
        Ok(())
    }
}

/// The signals as a node of a graph.
struct Signal(Points);

impl Work for Signal {
    fn kind(&self) -> graph::Kind {
        graph::Kind::Signal
    }

    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        self.0.signal(stream)
    }

    fn difference(&self, new: &Operation) -> Option<Difference> {
        self.0.difference(&new.get::<Signal>()?.0)
    }
}

/// The waits as a node of a graph.
struct Await(Points);

impl Work for Await {
    fn kind(&self) -> graph::Kind {
        graph::Kind::Await
    }

    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        self.0.wait(stream)
    }

    fn difference(&self, new: &Operation) -> Option<Difference> {
        self.0.difference(&new.get::<Await>()?.0)
    }
}

fn raise(point: &Point) {
    let before = point.payload.advance(point.value);
    if before >= point.value {
        let value = point.value;
        say!("simcuda: an external semaphore at {before} is signalled with {value}, which is undefined on a GPU");
    }
}

fn await_value(point: &Point, health: &Health) {
    while !point.payload.wait(point.value, PAUSE) && !health.ends_waits() {}
}

fn signal(semaphores: In<usize>, parameters: In<SemaphoreParameters>, count: u32, stream: usize) -> Outcome {
    let stream = streams::capturable(stream)?;
    let points = Points::new(semaphores, parameters, count)?;
    if capture::add(&stream, || Operation::new(Signal(points.clone())))? {
        return Ok(());
    }
    points.signal(&stream)
}

fn wait(semaphores: In<usize>, parameters: In<SemaphoreParameters>, count: u32, stream: usize) -> Outcome {
    let stream = streams::capturable(stream)?;
    let points = Points::new(semaphores, parameters, count)?;
    if capture::add(&stream, || Operation::new(Await(points.clone())))? {
        return Ok(());
    }
    points.wait(&stream)
}

exports! {
    cuImportExternalSemaphore => import(out: Out<usize>, description: In<SemaphoreHandle>);
    cuDestroyExternalSemaphore => destroy(semaphore: usize), Release;
    cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync_ptsz =>
        signal(semaphores: In<usize>, parameters: In<SemaphoreParameters>, count: u32, stream: usize);
    cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz =>
        wait(semaphores: In<usize>, parameters: In<SemaphoreParameters>, count: u32, stream: usize);
}
