//! The order of a consumer's streams after the work on exported memory.
#![expect(unsafe_code, reason = "names the default streams of the current context")]

use pyo3::prelude::*;
use vkgdr::StreamRef;

use crate::error::{INVALID_CONTEXT, Result};
use crate::kept::bound_handle;
use crate::memory_view::MemoryView;
use crate::raw_stream::{PER_THREAD_STREAM, Stream, raw_stream};
use crate::storage::Storage;

/// Records that the consumer's streams use the memory, and makes them wait for the work submitted to the bound one.
///
/// The release waits for the consumer's work then, in whichever context: its deleter may run before that has finished.
pub(super) fn order(view: &MemoryView, storage: &Storage, consumer: u64) -> Result<()> {
    // Another library's memory, or none: neither is it bound, nor is it freed here.
    let Some(memory) = storage.memory() else { return Ok(()) };
    let bound = bound_handle(memory);
    for follower in consumers(view, consumer)? {
        if bound == Some(consumer) && follower.context() == memory.context() {
            continue;
        }
        // Before the wait: a call that fails may have handed the memory's work on.
        storage.note_use(follower, &Stream::of(consumer))?;
        if let Some(bound) = bound {
            follower.wait(&view.stream(bound)?.record()?)?;
        }
    }
    Ok(())
}

/// Makes a consumer's streams wait for the work submitted to the stream of a tensor whose memory is not bound to one.
#[pyfunction]
pub(crate) fn dlpack_order(py: Python<'_>, view: &MemoryView, consumer: u64, stream: u64) -> Result<()> {
    py.detach(|| {
        let event = view.stream_of_any_context(stream)?.record()?;
        consumers(view, consumer)?.into_iter().try_for_each(|follower| Ok(follower.wait(&event)?))
    })
}

/// The streams that a consumer's handle may mean. Each context has default streams of its own, and the protocol does not say
/// whose is meant: that of the memory's context, or that of the current one, in which the consumer calls.
pub(super) fn consumers(view: &MemoryView, consumer: u64) -> Result<Vec<StreamRef>> {
    let mut streams = vec![view.stream_of_any_context(consumer)?];
    if consumer <= PER_THREAD_STREAM {
        // SAFETY: a default stream lives as long as its context, which the consumer has current.
        match unsafe { StreamRef::in_current_context(raw_stream(consumer)) } {
            Ok(current) if current.context() != streams[0].context() => streams.push(current),
            Err(error) if error.cuda_code() != Some(INVALID_CONTEXT) => return Err(error.into()),
            // The memory's context, or none, is current.
            _ => {}
        }
    }
    Ok(streams)
}
