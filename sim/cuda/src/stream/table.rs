//! Stream handles: those of the program's streams, and the constants for the default streams.

use std::sync::Arc;

use cudarc::driver::sys::CUstream_flags;

use crate::code::{Code, INVALID_HANDLE};
use crate::context::{self, stale};
use crate::graph::capture;
use crate::handle::Handles;
use crate::owner::Owner;
use crate::queue::Stream;

/// The default stream of the functions that name none: a null handle.
pub(crate) const DEFAULT: usize = CUstream_flags::CU_STREAM_DEFAULT as usize;
// `((CUstream)0x1)` and `((CUstream)0x2)` in cuda.h, which cudarc does not have.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// The program's streams.
pub(crate) static STREAMS: Handles<Arc<Stream>> = Handles::new(INVALID_HANDLE);

/// The stream of that handle. [`DEFAULT`] and `CU_STREAM_LEGACY` are the current context's default stream,
/// `CU_STREAM_PER_THREAD` the calling thread's.
pub(crate) fn get(handle: usize) -> Result<Arc<Stream>, Code> {
    match handle {
        DEFAULT | LEGACY => Ok(context::current()?.streams.legacy()),
        PER_THREAD => Ok(context::current()?.streams.per_thread()),
        _ => STREAMS.find(handle).ok_or_else(|| stale::unknown("stream", handle)),
    }
}

/// The stream, for new work: a context must be current, and the stream's context must be without error. Streams that
/// capture are refused.
pub(crate) fn usable(handle: usize) -> Result<Arc<Stream>, Code> {
    let stream = capturable(handle)?;
    capture::refuse(&stream)?;
    Ok(stream)
}

/// As [`usable`], for work that CUDA captures in nodes that are not simulated: `CUDA_ERROR_NOT_SUPPORTED` on a stream that
/// captures.
pub(crate) fn outside_captures(handle: usize) -> Result<Arc<Stream>, Code> {
    let stream = capturable(handle)?;
    capture::refuse_node(&stream)?;
    Ok(stream)
}

/// As [`usable`], for work that can be captured.
pub(crate) fn capturable(handle: usize) -> Result<Arc<Stream>, Code> {
    context::current()?;
    let stream = get(handle)?;
    stream.health.check()?;
    capture::refuse_implicit(&stream)?;
    Ok(stream)
}

/// The stream, to wait for it. No context need be current, except for the default streams.
pub(super) fn waitable(handle: usize) -> Result<Arc<Stream>, Code> {
    let stream = get(handle)?;
    capture::refuse_implicit(&stream)?;
    capture::refuse(&stream)?;
    Ok(stream)
}

pub(super) fn remove(handle: usize) -> Result<Arc<Stream>, Code> {
    STREAMS.remove(handle).map_err(|_| stale::unknown("stream", handle))
}

/// Removes the handles of a destroyed context's streams.
pub(crate) fn release_all_of(owner: Owner) {
    stale::orphan(&STREAMS, |stream| stream.owner == owner);
}
