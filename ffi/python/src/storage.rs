//! `Storage`: the memory of an allocation, with the Python objects that it needs.
#![expect(unsafe_code, reason = "lets a release wait for the context")]

use std::ops::Range;
use std::sync::Arc;

use pyo3::prelude::*;
use vkgdr::{DropPolicy, Memory, StreamRef};

use crate::detached::Detached;
use crate::error::{Failure, Result};
use crate::kept::{Kept, KeptStreams, bound_handle};
use crate::raw_stream::Stream;

/// The error message for memory that was freed.
pub(crate) const FREED: &str = "the memory was freed";

/// The memory of an allocation, with the Python objects that it needs.
#[derive(Clone)]
pub(crate) enum Storage {
    /// This package's memory.
    Ours(Arc<Owned>),
    /// Device memory that another library allocated and keeps alive.
    Foreign(Arc<Kept>),
    /// An empty range, without an allocation.
    Empty,
    Freed,
}

/// This package's memory. The order of the fields drops the memory first, so the kept objects outlive its last user.
pub(crate) struct Owned {
    pub(crate) memory: Detached<Memory>,
    pub(crate) kept: Kept,
}

impl Owned {
    /// Frees the memory and then what it kept, detached from `py`, if there is one.
    pub(crate) fn free(self, py: Option<Python<'_>>) -> Result<()> {
        let Self { memory, kept } = self;
        if memory.is_left() && !kept.has_owner() {
            return Ok(());
        }
        let memory = memory.into_inner();
        let freed = match py {
            Some(py) => py.detach(|| memory.free()),
            None => memory.free(),
        };
        drop(kept);
        Ok(freed?)
    }
}

impl Storage {
    /// This package's memory; an error for memory of another library and for an empty range.
    pub(crate) fn ours(&self) -> Result<&Memory> {
        match self {
            Self::Ours(owned) => Ok(&owned.memory),
            Self::Empty => Err(Failure::Invalid("the memory is empty".into())),
            Self::Foreign(_) => {
                let text = "the memory was allocated by another library: it has only a device pointer";
                Err(Failure::Invalid(text.into()))
            }
            Self::Freed => Err(Failure::Gone(FREED)),
        }
    }

    /// This package's memory, if it is some.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Ours(owned) => Some(&owned.memory),
            Self::Foreign(_) | Self::Empty | Self::Freed => None,
        }
    }

    pub(crate) fn kept(&self) -> Option<&Kept> {
        match self {
            Self::Ours(owned) => Some(&owned.kept),
            Self::Foreign(kept) => Some(kept),
            Self::Empty | Self::Freed => None,
        }
    }

    /// Keeps the objects of all streams that the memory is bound to until the returned value is dropped.
    pub(crate) fn keep_streams(&self) -> Option<KeptStreams<'_>> {
        Some(self.kept()?.keep_streams(self.memory()?))
    }

    /// Makes the CPU's writes to a range visible to the device. Does nothing for memory of another library.
    pub(crate) fn flush(&self, range: Range<usize>) -> Result<()> {
        self.memory().map_or(Ok(()), |memory| Ok(memory.flush(range)?))
    }

    /// Makes the device's writes to a range visible to the CPU. Does nothing for memory of another library.
    pub(crate) fn invalidate(&self, range: Range<usize>) -> Result<()> {
        self.memory().map_or(Ok(()), |memory| Ok(memory.invalidate(range)?))
    }

    /// Records that a stream, of any context, uses the memory: its release waits for that use. The stream's objects are kept until
    /// then; one without objects is kept alive by its owner.
    pub(crate) fn record_use(&self, stream: StreamRef, argument: &Stream) -> Result<()> {
        let Self::Ours(owned) = self else { return Ok(()) };
        owned.memory.record_use(stream)?;
        if bound_handle(&owned.memory) != Some(argument.handle) {
            owned.kept.add_used(argument);
        }
        Ok(())
    }

    /// The same for a stream that may end before the memory is freed unless it has objects: then the release names no stream of the
    /// memory's context, and waits for that.
    pub(crate) fn note_use(&self, stream: StreamRef, argument: &Stream) -> Result<()> {
        let Some(memory) = self.memory() else { return Ok(()) };
        let is_own = stream.context() == memory.context();
        if !argument.objects.is_empty() || is_own && bound_handle(memory) == Some(argument.handle) {
            return self.record_use(stream, argument);
        }
        // SAFETY: waits for more than before.
        unsafe { memory.set_drop_policy(DropPolicy::WaitForContext) };
        if is_own { Ok(()) } else { self.record_use(stream, argument) }
    }
}
