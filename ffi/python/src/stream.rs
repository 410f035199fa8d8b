//! Streams and events: the numbers that Python passes, the objects that keep streams alive, the native halves of `Stream` and
//! `TimedEvent` in `vkgdr.stream`. Also `Event`, with the objects that pending work keeps alive.
#![expect(unsafe_code, reason = "destroys streams and events")]

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyInt;
use pyo3::{PyTraverseError, PyVisit, intern};
use vkgdr::cudarc::driver::result;
use vkgdr::cudarc::driver::sys::{CUevent, CUstream};
use vkgdr::{Memory, StreamRef};

use crate::allocation::release_retired;
use crate::device::Vkgdr;
use crate::error::{Failure, Result};
use crate::interpreter::{Detached, detached, is_ending, lock};
use crate::memory_view::MemoryView;

/// The null stream handle: the legacy default stream of the current context.
pub(crate) const NULL_STREAM: u64 = 0;
/// The handle `CU_STREAM_LEGACY` (cuda.h), the same stream as the null handle.
pub(crate) const LEGACY_STREAM: u64 = 1;
/// `CU_STREAM_PER_THREAD` (cuda.h), a stream to which memory cannot be bound.
pub(crate) const PER_THREAD_STREAM: u64 = 2;

/// A stream of the context that is current.
pub(crate) fn current_stream(handle: u64) -> vkgdr::Result<StreamRef> {
    // SAFETY: every Python function that takes a stream requires its caller to keep the stream alive. What memory
    // is bound to, the memory keeps alive. A default stream lives as long as its context.
    unsafe { StreamRef::in_current_context(raw_stream(handle)) }
}

/// A stream handle as CUDA's pointer type.
pub(crate) fn raw_stream(handle: u64) -> CUstream {
    std::ptr::with_exposed_provenance_mut(as_address(handle))
}

/// A device address or a handle as a pointer-sized integer.
#[expect(clippy::cast_possible_truncation, reason = "CUDA supports 64-bit systems only")]
pub(crate) const fn as_address(number: u64) -> usize {
    number as usize
}

/// The handle of the stream that memory is bound to.
pub(crate) fn bound_handle(memory: &Memory) -> Option<u64> {
    memory.bound_stream().map(|stream| stream.addr() as u64)
}

/// A stream that Python passes: its handle, and the object that keeps it alive; none if its owner does.
pub(crate) struct Stream {
    pub(crate) handle: u64,
    pub(crate) object: Option<Py<PyAny>>,
    /// Whether the object is this package's, with whose last reference the stream ends, and not before.
    is_ours: bool,
    /// Whether no object ends it: a default stream, one that its owner keeps alive, or PyTorch's, which are of a pool.
    pub(crate) is_lasting: bool,
}

impl Stream {
    /// A stream that its owner keeps alive.
    pub(crate) const fn of(handle: u64) -> Self {
        Self { handle, object: None, is_ours: false, is_lasting: false }
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { object: self.object.as_ref().map(|object| object.clone_ref(py)), ..*self }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        if self.is_ours { visit.call(&self.object) } else { Ok(()) }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.handle == other.handle && self.object.as_ref().map(Py::as_ptr) == other.object.as_ref().map(Py::as_ptr)
    }
}

impl<'py> FromPyObject<'_, 'py> for Stream {
    type Error = PyErr;

    /// Of a stream of any library, or a number. That of a bound stream, a `StreamNumber`, has its object.
    fn extract(stream: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        static HANDLE_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (py, is_plain) = (stream.py(), stream.is_exact_instance_of::<PyInt>());
        if let (true, Ok(handle)) = (is_plain, stream.extract()) {
            return Ok(Self::of(handle));
        }
        let handle = HANDLE_OF.import(py, "vkgdr._interfaces", "handle_of")?.call1((stream,))?.extract()?;
        let object = match stream.is_instance_of::<PyInt>() {
            true => stream.getattr_opt(intern!(py, "_keeper"))?,
            false => Some(stream.to_owned()),
        };
        let owned = object.as_ref().and_then(|one| Some(one.cast::<CudaHandle>().ok()?.get().owned));
        let has = |name| object.as_ref().is_some_and(|one| one.hasattr(name).unwrap_or(false));
        let is_lasting =
            handle <= PER_THREAD_STREAM || owned == Some(false) || has("cuda_stream") || has("native_handle");
        Ok(Self { handle, object: object.map(Bound::unbind), is_ours: owned == Some(true), is_lasting })
    }
}

/// Python objects that memory needs: such as a context or the owner of foreign memory, and those that keep its streams alive.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) owners: Vec<Py<PyAny>>,
    /// Views of memory that must be freed by hand. The collector does not see them, so that it does not free it either.
    pub(crate) leaked: Vec<Py<MemoryView>>,
    /// The stream that the memory is bound to; and earlier ones while there are operations, which may have read their handles.
    pub(crate) bound: Vec<Stream>,
    /// The operations under way, which may bind the memory, or use the stream that it is bound to.
    pub(crate) operations: usize,
    /// Streams that use the memory until it is freed.
    pub(crate) used: Vec<Stream>,
}

impl Objects {
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.leaked.is_empty() && self.bound.is_empty() && self.used.is_empty()
    }

    /// Keeps a stream that the memory is about to be bound to.
    pub(crate) fn add_bound(&mut self, stream: Stream) {
        self.bound.retain(|bound| !bound.is_same(&stream));
        self.bound.push(stream);
    }

    /// Ends an operation. The last one takes all streams but the one that the memory is bound to, with its newest object.
    pub(crate) fn end(&mut self, memory: Option<&Memory>) -> Vec<Stream> {
        // None are left where all objects were taken before.
        self.operations = self.operations.saturating_sub(1);
        if self.operations > 0 || self.bound.is_empty() {
            return Vec::new();
        }
        let (bound, mut places) = (memory.and_then(bound_handle), 0..);
        let kept = self.bound.iter().rposition(|stream| Some(stream.handle) == bound);
        self.bound.extract_if(.., |_| places.next() != kept).collect()
    }

    /// The stream that the memory is bound to, with its object.
    pub(crate) fn bound(&self, py: Python<'_>, memory: &Memory) -> Option<Stream> {
        let handle = bound_handle(memory)?;
        let own = self.bound.iter().rfind(|kept| kept.handle == handle);
        Some(own.map_or(Stream::of(handle), |own| own.clone_ref(py)))
    }

    /// Reports the objects to the garbage collector, except those of other libraries' streams.
    ///
    /// A stream must outlive the memory that is bound to it, whose release names the stream. The collector runs the finalizers
    /// of all garbage before it drops any of it. A stream of another library may end in its finalizer, unlike this package's
    /// own. A reference that is not reported keeps the stream out of the garbage until the memory is released. The price: a
    /// cycle through the object of such a stream itself is never collected.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.owners.iter().try_for_each(|object| visit.call(object))?;
        self.bound.iter().chain(&self.used).try_for_each(|stream| stream.traverse(visit))
    }
}

/// A `CUstream` or a `CUevent`, the base of `Stream` and `TimedEvent`. One that is owned is destroyed with the last reference.
///
/// Not by a finalizer: the garbage collector runs those of a cycle before it drops any of its objects. The memory bound to a
/// stream still records an event on it when it is dropped.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct CudaHandle {
    #[pyo3(get, name = "_handle")]
    handle: u64,
    #[pyo3(get, name = "_owned")]
    owned: bool,
    is_event: bool,
    /// What keeps the context alive in which it was made; `None` for one that the program has current, and that outlives it.
    owner: Option<Detached<vkgdr::Vkgdr>>,
}

#[pymethods]
impl CudaHandle {
    #[new]
    #[pyo3(signature = (handle, owned = false, owner = None, is_event = false))]
    fn new(handle: u64, owned: bool, owner: Option<&Bound<'_, Vkgdr>>, is_event: bool) -> Result<Self> {
        let owner = owner.map(|owner| owner.get().gpu()).transpose()?.map(Detached::new);
        Ok(Self { handle, owned, is_event, owner })
    }
}

impl Drop for CudaHandle {
    fn drop(&mut self) {
        // Nothing belongs to a forked child.
        if !self.owned || vkgdr::is_forked() || self.owner.is_none() && is_ending() {
            return;
        }
        detached(|| {
            if self.owner.as_ref().is_some_and(|owner| owner.context_is_destroyed()) {
                return;
            }
            let _ = if self.is_event {
                let event: CUevent = std::ptr::with_exposed_provenance_mut(as_address(self.handle));
                // SAFETY: `vkgdr.stream` created the event for this object alone, which cannot be copied.
                unsafe { result::event::destroy(event) }
            } else {
                // SAFETY: as above, for a stream.
                unsafe { result::stream::destroy(raw_stream(self.handle)) }
            };
        });
    }
}

/// A point in a stream's work.
///
/// An event is complete once all work that was submitted to the stream before it is done. Dropping one does not wait.
#[pyclass(frozen, module = "vkgdr.stream")]
pub(crate) struct Event {
    /// None for work that was done before the event was created. At the interpreter's end its context may be gone.
    event: Option<Detached<Arc<vkgdr::Event>>>,
}

/// Host buffers and memory objects that a stream may still use, until an event. Without one, those of memory that was freed without
/// the interpreter.
type InUse = (Option<Arc<vkgdr::Event>>, Box<dyn Send>);

pub(crate) static IN_USE: Mutex<VecDeque<InUse>> = Mutex::new(VecDeque::new());

/// Runs `allocate` detached. Where memory, descriptors or allocations are exhausted, frees what garbage and finished copies keep,
/// and retired memory, and tries once more.
pub(crate) fn with_room<T: Send>(py: Python<'_>, allocate: impl Fn() -> Result<T> + Sync) -> Result<T> {
    match py.detach(&allocate) {
        Err(Failure::Driver(error)) if error.is_exhaustion() => {
            py.import("gc")?.call_method0("collect")?;
            tidy(usize::MAX);
            py.detach(|| {
                release_retired((0, 0));
                allocate()
            })
        }
        allocated => allocated,
    }
}

/// Drops the objects that no stream uses any more, until `most` were asked that one still uses. These move behind the others.
pub(crate) fn tidy(most: usize) {
    let is_gone = |error: vkgdr::Error| error.ends_all_work() || matches!(error, vkgdr::Error::Forked);
    let is_over = |until: &Arc<vkgdr::Event>| until.is_complete().unwrap_or_else(is_gone);
    let (mut left, mut pending) = (lock(&IN_USE).len(), 0);
    while left > 0 && pending < most {
        left -= 1;
        // Not under the lock: the query calls the driver, and dropping an object may run Python code.
        let Some(entry) = lock(&IN_USE).pop_front() else { break };
        if !entry.0.as_ref().is_none_or(is_over) {
            lock(&IN_USE).push_back(entry);
            pending += 1;
        }
    }
}

impl Event {
    /// Makes later work of a stream wait for the event.
    pub(crate) fn precede(&self, stream: &StreamRef) -> Result<()> {
        self.event.as_ref().map_or(Ok(()), |event| Ok(stream.wait(event)?))
    }

    /// Records an event on a stream, and keeps `objects` alive until it is complete; for ever if the stream is captured. Where it
    /// cannot be recorded, waits for the stream instead.
    pub(crate) fn on(py: Python<'_>, stream: &StreamRef, objects: Vec<Py<PyAny>>) -> Result<Self> {
        let lends = !objects.is_empty();
        let is_idle = || stream.synchronize().map_or_else(|error| error.ends_all_work(), |()| true);
        let (recorded, must_leak) = py.detach(|| {
            let recorded = stream.record().map(Arc::new);
            // A capture's device work uses the objects whenever its graph is launched.
            let is_captured = lends && stream.is_capturing().unwrap_or(false);
            let must_leak = is_captured || lends && recorded.is_err() && !is_idle();
            (recorded, must_leak)
        });
        tidy(8);
        if must_leak {
            log::error!("leaking what a copy was lent: the device may still use it, and cannot be waited for");
            let _leaked = ManuallyDrop::new(objects);
        } else if let (true, Ok(event)) = (lends, &recorded) {
            lock(&IN_USE).push_back((Some(event.clone()), Box::new(objects)));
        }
        Ok(Self { event: Some(Detached::in_context(recorded?, false)) })
    }
}

#[pymethods]
impl Event {
    /// Whether the work submitted before the event is done. Does not wait.
    #[getter]
    fn is_complete(&self) -> Result<bool> {
        tidy(8);
        self.event.as_ref().map_or(Ok(true), |event| Ok(event.is_complete()?))
    }

    /// The same as `is_complete`, under numba's and pycuda's name.
    fn query(&self) -> Result<bool> {
        self.is_complete()
    }

    /// Waits until the work submitted before the event is done.
    pub(crate) fn synchronize(&self, py: Python<'_>) -> Result<()> {
        self.event.as_ref().map_or(Ok(()), |event| py.detach(|| event.synchronize()))?;
        tidy(8);
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
    Event { event: None }
}

/// Records an event on a stream of any context.
#[pyfunction]
pub(crate) fn record(py: Python<'_>, view: &MemoryView, stream: Stream) -> Result<Event> {
    let found = py.detach(|| view.stream_of_any_context(stream.handle))?;
    Event::on(py, &found, Vec::new())
}

/// Makes the streams that are named wait for an event.
#[pyfunction]
pub(crate) fn stream_wait(py: Python<'_>, view: &MemoryView, stream: Stream, event: &Event) -> Result<()> {
    py.detach(|| view.streams_named(stream.handle)?.iter().try_for_each(|named| event.precede(named)))
}

/// Waits for a stream of any context.
#[pyfunction]
pub(crate) fn stream_synchronize(py: Python<'_>, view: &MemoryView, stream: Stream) -> Result<()> {
    py.detach(|| Ok(view.stream_of_any_context(stream.handle)?.synchronize()?))
}
