//! What Python's streams do: record events, wait for them, and are waited for.
#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::error::Result;
use crate::event::Event;
use crate::memory_view::MemoryView;

/// Records an event on a stream of any context.
#[pyfunction]
pub(crate) fn record(py: Python<'_>, view: &MemoryView, stream: u64) -> Result<Event> {
    let stream = py.detach(|| view.stream_of_any_context(stream))?;
    Event::on(py, &stream, Vec::new())
}

/// Makes a stream of any context wait for an event.
#[pyfunction]
pub(crate) fn stream_wait(py: Python<'_>, view: &MemoryView, stream: u64, event: &Event) -> Result<()> {
    let Some(event) = event.recorded() else { return Ok(()) };
    py.detach(|| Ok(view.stream_of_any_context(stream)?.wait(event)?))
}

/// Waits for a stream of any context.
#[pyfunction]
pub(crate) fn stream_synchronize(py: Python<'_>, view: &MemoryView, stream: u64) -> Result<()> {
    py.detach(|| Ok(view.stream_of_any_context(stream)?.synchronize()?))
}
