//! `Storage`: the memory of an allocation, with the Python objects that it needs.
#![forbid(unsafe_code)]

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use vkgdr::{Memory, PoolMemory, StreamRef};

use crate::error::{Failure, Result};
use crate::logging;

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
    pub(crate) memory: Lease,
    pub(crate) kept: Kept,
}

/// An allocation of its own, or memory of a pool, which returns there by a faster way than other memory is freed.
pub(crate) enum Lease {
    Dedicated(Memory),
    Pooled(PoolMemory),
}

impl Deref for Lease {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        match self {
            Self::Dedicated(memory) => memory,
            Self::Pooled(memory) => memory,
        }
    }
}

impl Lease {
    pub(crate) fn free(self) -> vkgdr::Result<()> {
        match self {
            Self::Dedicated(memory) => memory.free(),
            Self::Pooled(memory) => memory.free(),
        }
    }
}

/// Python objects that must live as long as the memory: a context, a stream, the owner of foreign memory.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Py<PyAny>>>);

impl Kept {
    pub(crate) fn add(&self, object: Py<PyAny>) {
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Once, however often the memory is bound to the same stream.
        if !objects.iter().any(|kept| kept.is(&object)) {
            objects.push(object);
        }
    }

    /// The objects.
    pub(crate) fn objects(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        objects.iter().map(|object| object.clone_ref(py)).collect()
    }

    /// Reports the objects to the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // Locked by a thread that uses the memory, which is not garbage then.
        let Ok(objects) = self.0.try_lock() else { return Ok(()) };
        objects.iter().try_for_each(|object| visit.call(object))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let objects = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !objects.is_empty() {
            // At once if this thread is attached; otherwise PyO3 defers the decrements to the next attached thread.
            logging::attached(|_| drop(objects));
        }
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

    /// Records that a stream uses the memory: its release waits for that use.
    pub(crate) fn note_use(&self, stream: StreamRef) {
        if let Some(memory) = self.memory() {
            memory.record_use(stream.raw());
        }
    }
}
