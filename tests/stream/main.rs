//! Streams: bindings, copies on them, streams of other libraries, and drops that wait for them.

use support::cuda::Stream;
use vkgdr::cudarc::driver::sys::CUstream;
use vkgdr::{Memory, MemoryKind, OpenFlags, StreamRef};

mod binding;
mod captures;
mod copies;
mod drops;
mod foreign;

const NONE: OpenFlags = OpenFlags::empty();
const MAPPED: MemoryKind = MemoryKind::Mapped;

/// A stream of the memory's context.
#[track_caller]
#[expect(unsafe_code, reason = "the tests keep the stream")]
fn stream_of(memory: &Memory, stream: &Stream) -> vkgdr::Result<StreamRef> {
    // SAFETY: the tests' streams outlive the references.
    unsafe { memory.stream(stream.raw()) }
}

/// A stream of the current context.
#[expect(unsafe_code, reason = "the tests keep the stream")]
fn here(raw: CUstream) -> vkgdr::Result<StreamRef> {
    // SAFETY: as above.
    unsafe { StreamRef::in_current_context(raw) }
}
