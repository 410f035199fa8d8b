//! `Storage`: the memory of an allocation, with the Python objects that it needs.
#![expect(unsafe_code, reason = "binds memory to the default stream")]

use std::ops::{Deref, Range};
use std::sync::Arc;

use vkgdr::{Memory, PoolMemory, StreamRef};

use crate::detached::Detached;
use crate::error::{Failure, Result};
use crate::kept::{Kept, KeptStreams};
use crate::raw_stream::{NULL_STREAM, PER_THREAD_STREAM, raw_stream};

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
    pub(crate) memory: Detached<AnyMemory>,
    pub(crate) kept: Kept,
}

/// Memory of an allocation of its own, or of a pool, which returns there by a faster way than other memory is freed.
pub(crate) enum AnyMemory {
    Dedicated(Memory),
    Pooled(PoolMemory),
}

impl Deref for AnyMemory {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        match self {
            Self::Dedicated(memory) => memory,
            Self::Pooled(memory) => memory,
        }
    }
}

impl AnyMemory {
    pub(crate) fn free(self) -> vkgdr::Result<()> {
        match self {
            Self::Dedicated(memory) => memory.free(),
            Self::Pooled(memory) => memory.free(),
        }
    }
}

/// Lets a later release name no stream, and wait for the whole context: the stream that the memory is bound to may end before.
pub(crate) fn forget_stream(memory: &Memory) {
    // No other stream than the bound one needs to exist.
    memory.record_use(raw_stream(PER_THREAD_STREAM));
    // SAFETY: the legacy default stream lives as long as its context.
    let _ = unsafe { memory.bind_raw_stream(raw_stream(NULL_STREAM)) };
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
        match self {
            Self::Ours(owned) => Ok(owned.memory.flush(range)?),
            Self::Foreign(_) | Self::Empty | Self::Freed => Ok(()),
        }
    }

    /// Makes the device's writes to a range visible to the CPU. Does nothing for memory of another library.
    pub(crate) fn invalidate(&self, range: Range<usize>) -> Result<()> {
        match self {
            Self::Ours(owned) => Ok(owned.memory.invalidate(range)?),
            Self::Foreign(_) | Self::Empty | Self::Freed => Ok(()),
        }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.ours()?.write(offset, bytes)?)
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        Ok(self.ours()?.read(offset, bytes)?)
    }

    /// Fills a range, whose length is a multiple of the pattern's, with repetitions of the pattern.
    pub(crate) fn fill(&self, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        Ok(self.ours()?.fill_pattern(range, pattern)?)
    }

    /// Records that a stream, of any context, uses the memory: its release waits for that use. May wait.
    pub(crate) fn note_use(&self, stream: StreamRef) -> Result<()> {
        match self.memory() {
            Some(memory) => Ok(memory.record_use_by(stream)?),
            None => Ok(()),
        }
    }
}
