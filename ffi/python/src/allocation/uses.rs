//! [`Use`]: the count of an allocation's users.
#![forbid(unsafe_code)]

use std::mem::{ManuallyDrop, replace};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use vkgdr::Memory;

use super::Allocation;
use crate::error::Result;
use crate::kept::Kept;
use crate::logging;
use crate::storage::Storage;

/// One user of an allocation. The last one frees it.
pub(crate) struct Use {
    allocation: Arc<Allocation>,
    /// Whether this use was given up already.
    left: bool,
    /// Another library's owner of the bytes, such as a tensor, whose library may reuse them once it is gone. Lives as long as
    /// this use and all that were cloned from it.
    beside: Option<Arc<Kept>>,
}

impl Use {
    pub(super) const fn first(allocation: Arc<Allocation>) -> Self {
        Self { allocation, left: false, beside: None }
    }

    /// Adds a use; None if there is no use left, so that the memory is being freed.
    pub(crate) fn join(allocation: Arc<Allocation>) -> Option<Self> {
        let more = |users: usize| (users > 0).then_some(users + 1);
        #[allow(deprecated, reason = "its new name, try_update, needs Rust 1.95")]
        let joined = allocation.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        joined.is_ok().then(|| Self::first(allocation))
    }

    /// This use, with an object that it keeps alive.
    pub(crate) fn with(mut self, object: Py<PyAny>) -> Self {
        let kept = Kept::default();
        kept.add(object);
        self.beside = Some(Arc::new(kept));
        self
    }

    /// What it keeps alive beside the allocation, and its clones do.
    pub(crate) const fn beside(&self) -> Option<&Arc<Kept>> {
        self.beside.as_ref()
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// Gives the use up; the last one frees the memory and returns the release's error.
    pub(crate) fn release(mut self, py: Python<'_>) -> Result<()> {
        if self.leave() { self.allocation.force(py) } else { Ok(()) }
    }

    /// Gives the use up, without Python; the last one frees the memory. Runs `prepare` on the memory before, which is told
    /// whether the memory is released by this call: then nothing else uses it, not even an operation under way.
    pub(crate) fn release_with(mut self, prepare: impl FnOnce(&Memory, bool)) -> Result<()> {
        // Before this use ends: from then on another thread may free the memory, which must stay until it is prepared.
        let storage = self.allocation.storage();
        if self.leave() {
            drop(storage);
            return self.allocation.take_away_with(None, prepare);
        }
        if let Some(memory) = storage.as_ref().ok().and_then(Storage::memory) {
            prepare(memory, false);
        }
        Ok(())
    }

    /// Frees the memory although other uses exist.
    pub(crate) fn force(self, py: Python<'_>) -> Result<()> {
        self.allocation.force(py)
    }

    /// Leaks the memory: it is never freed.
    pub(crate) fn leak(self) {
        let _leaked = ManuallyDrop::new(self);
    }

    /// Gives the use up; true if it was the last one, so that the caller must free the memory.
    fn leave(&mut self) -> bool {
        !replace(&mut self.left, true) && self.allocation.users.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        self.allocation.users.fetch_add(1, Ordering::Relaxed);
        Self { allocation: self.allocation.clone(), left: false, beside: self.beside.clone() }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if !self.leave() {
            return;
        }
        // A view may be dropped on any thread, including one that is unknown to Python.
        let freed = logging::attached(|py| self.allocation.take_away(Some(py)))
            .unwrap_or_else(|| self.allocation.take_away(None));
        if let Err(failure) = freed {
            log::warn!("freeing memory: {failure}");
        }
    }
}
