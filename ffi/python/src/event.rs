//! `Event`, and the Python objects that pending work keeps alive.
#![forbid(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use vkgdr::StreamRef;

use crate::detached::is_ending;
use crate::error::Result;

/// A point in a stream's work.
///
/// An event is complete once all work that was submitted to the stream before it is done. Dropping one does not wait.
#[pyclass(frozen, module = "vkgdr.stream")]
pub(crate) struct Event {
    /// None for work that was done before the event was created.
    event: Option<Arc<vkgdr::Event>>,
}

impl Drop for Event {
    fn drop(&mut self) {
        if is_ending() {
            // Its context may be gone.
            let _left = ManuallyDrop::new(self.event.take());
        }
    }
}

/// Host buffers and memory objects that a stream may still use.
struct InUse {
    until: Arc<vkgdr::Event>,
    objects: Vec<Py<PyAny>>,
}

/// Whether the objects of an entry may go.
enum State {
    Pending,
    Done,
    /// A stream capture recorded the event: it never completes, and asking for it again may end the capture.
    Captured,
}

impl InUse {
    fn state(&self) -> State {
        /// cuda.h's `CUDA_ERROR_CAPTURED_EVENT`.
        const CAPTURED_EVENT: i32 = 907;
        match self.until.is_complete() {
            Ok(true) => State::Done,
            Ok(false) => State::Pending,
            Err(error) if error.cuda_code() == Some(CAPTURED_EVENT) => State::Captured,
            Err(vkgdr::Error::Forked) => State::Done,
            Err(error) if error.ends_all_work() => State::Done,
            Err(_) => State::Pending,
        }
    }
}

static IN_USE: Mutex<Vec<InUse>> = Mutex::new(Vec::new());

/// Frees what garbage and finished copies keep, before memory that was exhausted is asked for once more.
pub(crate) fn make_room(py: Python<'_>) -> Result<()> {
    py.import("gc")?.call_method0("collect")?;
    tidy();
    Ok(())
}

/// Releases the entries whose work is done.
pub(crate) fn tidy() {
    let entries = std::mem::take(&mut *in_use());
    let (mut pending, mut done, mut captured) = (Vec::new(), Vec::new(), Vec::new());
    // Not under the lock: `state` calls the driver, and logging or dropping an object may run Python code.
    for entry in entries {
        match entry.state() {
            State::Pending => pending.push(entry),
            State::Done => done.push(entry),
            State::Captured => captured.push(entry),
        }
    }
    in_use().extend(pending);
    for entry in captured {
        leak(entry.objects);
    }
    drop(done);
}

/// Keeps what was lent to the device for ever.
pub(crate) fn leak<T>(lent: T) {
    log::error!("leaking what a copy was lent: the device may still use it, and cannot be waited for");
    let _leaked = ManuallyDrop::new(lent);
}

fn in_use() -> MutexGuard<'static, Vec<InUse>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Event {
    /// An event that is complete from the start.
    pub(crate) const fn complete() -> Self {
        Self { event: None }
    }

    /// Records an event on a stream, and keeps `objects` alive until it is complete; for ever if the stream is captured.
    pub(crate) fn on(py: Python<'_>, stream: &StreamRef, objects: Vec<Py<PyAny>>) -> Result<Self> {
        let lends = !objects.is_empty();
        let (event, is_captured) = py.detach(|| {
            // Where this cannot be told, the event's first query tells it.
            let is_captured = lends && stream.is_capturing().unwrap_or(false);
            Ok::<_, vkgdr::Error>((Arc::new(stream.record()?), is_captured))
        })?;
        tidy();
        if is_captured {
            // The device uses them whenever the graph is launched.
            leak(objects);
        } else if lends {
            in_use().push(InUse { until: event.clone(), objects });
        }
        Ok(Self { event: Some(event) })
    }

    /// CUDA's event; None for work that was done before the event was created.
    pub(crate) fn recorded(&self) -> Option<&vkgdr::Event> {
        self.event.as_deref()
    }
}

#[pymethods]
impl Event {
    /// Whether the work submitted before the event is done. Does not wait.
    #[getter]
    fn is_complete(&self) -> Result<bool> {
        tidy();
        self.event.as_ref().map_or(Ok(true), |event| Ok(event.is_complete()?))
    }

    /// The same as `is_complete`, under numba's and pycuda's name.
    fn query(&self) -> Result<bool> {
        self.is_complete()
    }

    /// Waits until the work submitted before the event is done.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        if let Some(event) = &self.event {
            py.detach(|| event.synchronize())?;
        }
        tidy();
        Ok(())
    }

    /// The same as `synchronize`, under pyopencl's name.
    fn wait(&self, py: Python<'_>) -> Result<()> {
        self.synchronize(py)
    }

    /// The `CUevent` as a number; 0 for work that was done before the event was created.
    #[getter]
    fn handle(&self) -> usize {
        self.event.as_ref().map_or(0, |event| event.raw().addr())
    }

    fn __repr__(&self) -> String {
        let state = match self.event.as_ref().map(|event| event.is_complete()) {
            None | Some(Ok(true)) => "complete".to_owned(),
            Some(Ok(false)) => "pending".to_owned(),
            Some(Err(error)) => error.to_string(),
        };
        format!("<vkgdr.stream.Event: {state}>")
    }
}

/// An event that is complete from the start.
#[pyfunction]
pub(crate) fn complete() -> Event {
    Event::complete()
}
