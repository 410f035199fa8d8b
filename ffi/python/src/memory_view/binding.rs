//! The stream that memory is bound to: its handle, together with the objects that keep it alive.
#![expect(unsafe_code, reason = "binds memory to streams that the caller owns")]

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyTuple, PyType};
use vkgdr::Memory;

use super::MemoryView;
use crate::error::{Failure, Result};
use crate::raw_stream::Stream;
use crate::storage::Storage;

impl MemoryView {
    /// Runs `work`, detached from the interpreter, on the storage. The streams that the memory is bound to stay alive
    /// meanwhile, whatever other threads bind it to.
    pub(crate) fn with_streams<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Storage) -> Result<T> + Send,
    ) -> Result<T> {
        let storage = self.live()?.storage()?;
        let streams = storage.keep_streams();
        let result = py.detach(|| work(&storage));
        drop(streams);
        result
    }

    /// The bound stream's handle, a Python integer that keeps the stream's objects alive.
    pub(crate) fn bound_handle<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let storage = self.live()?.storage()?;
        let (Some(memory), Some(kept)) = (storage.memory(), storage.kept()) else { return Ok(None) };
        let Some((handle, objects)) = kept.bound_stream(py, memory) else { return Ok(None) };
        if objects.is_empty() {
            return Ok(Some(PyInt::new(py, handle).into_any()));
        }
        let class = CLASS.import(py, "vkgdr._stream_handle", "StreamNumber")?;
        Ok(Some(class.call1((handle, PyTuple::new(py, objects)?))?))
    }

    /// Waits for the bound stream, if there is one.
    pub(crate) fn wait_for_bound(&self, py: Python<'_>) -> Result<()> {
        self.with_streams(py, |storage| match storage.memory() {
            Some(memory) => Ok(memory.wait_for_stream()?),
            None => Ok(()),
        })
    }
}

#[pymethods]
impl MemoryView {
    #[getter]
    fn bound_stream<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        self.bound_handle(py)
    }

    /// Binds the allocation to a stream, and keeps its objects while it is bound.
    fn bind_stream(&self, py: Python<'_>, stream: Stream) -> Result<()> {
        let storage = self.live()?.storage()?;
        storage.ours()?;
        let streams = storage.keep_streams();
        if let Some(kept) = storage.kept() {
            kept.add_stream(py, &stream);
        }
        // SAFETY: the object that keeps the stream alive was added to those that stay while the memory is bound to it; for a
        // bare handle that is the caller's obligation.
        let bound = py.detach(|| unsafe { storage.ours()?.bind_raw_stream(stream.raw()) }.map_err(Into::into));
        drop(streams);
        bound
    }

    fn unbind_stream(&self, py: Python<'_>) -> Result<()> {
        self.with_streams(py, |storage| Ok(Memory::unbind_stream(storage.ours()?)?))
    }

    /// Whether a stream belongs to the memory's context, or to the current one if the memory is another library's.
    fn has_stream(&self, py: Python<'_>, stream: u64) -> Result<bool> {
        match py.detach(|| self.stream(stream).map(drop)) {
            Err(Failure::Driver(vkgdr::Error::ForeignStream)) => Ok(false),
            found => found.map(|()| true),
        }
    }

    fn record_stream(&self, py: Python<'_>, stream: Stream) -> Result<()> {
        let storage = self.live()?.storage()?;
        // Dropped detached: this may be the memory's last reference by then.
        py.detach(move || {
            let storage = storage;
            // Others release their memory without knowing of the use. Nothing is released with an empty range.
            if !matches!(storage, Storage::Empty) {
                storage.ours()?;
            }
            storage.record_use(self.stream(stream.handle)?, &stream)
        })
    }

    fn wait_for_stream(&self, py: Python<'_>) -> Result<()> {
        self.wait_for_bound(py)
    }
}
