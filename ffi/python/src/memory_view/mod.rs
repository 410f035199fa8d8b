//! `MemoryView`: a range of an allocation, the native half of every memory object.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

mod binding;
mod python;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use vkgdr::{Memory, StreamRef};

use crate::allocation::{Allocation, Use};
use crate::error::{Failure, Result, in_bytes};
use crate::host_buffer::HostBuffer;
use crate::raw_stream::{NULL_STREAM, raw_stream};
use crate::storage::{FREED, Storage};

/// A live view's use of its allocation, and the Python object `Vkgdr` that the memory was allocated from, if known.
struct Held {
    used: Use,
    owner: Option<Py<PyAny>>,
}

/// A range of an allocation.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct MemoryView {
    allocation: Arc<Allocation>,
    /// None once the view is freed.
    held: Mutex<Option<Held>>,
    freed: AtomicBool,
    offset: usize,
    len: usize,
    readonly: bool,
    /// Whether this is the allocation's first view, which reports the kept objects to the garbage collector.
    root: bool,
    /// Whether dropping the view leaks the memory unless it was freed, as in vkgdr 0.1.
    by_hand: bool,
}

impl MemoryView {
    fn whole(used: Use, owner: Option<Py<PyAny>>, readonly: bool, by_hand: bool) -> Self {
        let len = used.allocation().len;
        let mut whole = Self::ranged(Held { used, owner }, 0, len, readonly, by_hand);
        whole.root = true;
        whole
    }

    fn ranged(held: Held, offset: usize, len: usize, readonly: bool, by_hand: bool) -> Self {
        let allocation = held.used.allocation().clone();
        let (held, freed) = (Mutex::new(Some(held)), AtomicBool::new(false));
        Self { allocation, held, freed, offset, len, readonly, root: false, by_hand }
    }

    /// A range of an allocation that was found by its address. None if its context was destroyed: the address may have
    /// been reused since.
    pub(crate) fn found((used, offset): (Use, usize), len: usize) -> Option<Self> {
        let readonly = used.allocation().readonly;
        let found = Self::ranged(Held { used, owner: None }, offset, len, readonly, false);
        found.check_context().is_ok().then_some(found)
    }

    /// This view, marked read-only.
    pub(crate) fn readonly(mut self) -> Self {
        self.readonly = true;
        self
    }

    /// Whether the view keeps another library's owner of its bytes.
    pub(crate) fn keeps_an_owner(&self) -> bool {
        self.held().as_ref().is_some_and(|held| held.used.beside().is_some())
    }

    /// All of a memory.
    pub(crate) fn of(memory: Memory, owner: Py<PyAny>) -> Self {
        Self::whole(Allocation::of(memory, false), Some(owner), false, false)
    }

    pub(crate) fn foreign(device: i32, device_ptr: u64, len: usize, readonly: bool, keep: Py<PyAny>) -> Self {
        Self::whole(Allocation::foreign(device, device_ptr, len, keep), None, readonly, false)
    }

    /// The allocation, unless it or this view was freed.
    #[inline]
    pub(crate) fn live(&self) -> Result<&Arc<Allocation>> {
        if self.freed.load(Ordering::Acquire) || self.allocation.is_freed() {
            return Err(Failure::Gone(FREED));
        }
        Ok(&self.allocation)
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a use, with this view's owner.
    fn hold(&self, py: Python<'_>) -> Result<Held> {
        self.live()?;
        let held = self.held();
        let held = held.as_ref().ok_or(Failure::Gone(FREED))?;
        Ok(Held { used: held.used.clone(), owner: held.owner.as_ref().map(|owner| owner.clone_ref(py)) })
    }

    /// A further view of the same bytes.
    pub(crate) fn again(&self, py: Python<'_>) -> Result<Self> {
        Ok(Self::ranged(self.hold(py)?, self.offset, self.len, self.readonly, false))
    }

    /// Adds a use, which keeps the memory alive even when this view is freed.
    pub(crate) fn join(&self) -> Result<Use> {
        self.live()?;
        self.held().as_ref().map(|held| held.used.clone()).ok_or(Failure::Gone(FREED))
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The offset of the first byte in its allocation.
    pub(crate) const fn start(&self) -> usize {
        self.offset
    }

    pub(crate) const fn is_readonly(&self) -> bool {
        self.readonly
    }

    #[inline]
    pub(crate) fn device_address(&self) -> Result<u64> {
        Ok(self.live()?.device_ptr()? + self.offset as u64)
    }

    /// The device address for array interfaces: 0 for an empty view.
    pub(crate) fn shown_address(&self) -> Result<u64> {
        self.device_address().map(|address| if self.len == 0 { 0 } else { address })
    }

    /// The host address; None for memory without a host view.
    pub(crate) fn host_address(&self) -> Result<Option<usize>> {
        Ok(self.live()?.host_ptr()?.map(|start| start + self.offset))
    }

    /// The host address, or an error for memory without a host view.
    pub(crate) fn visible(&self) -> Result<usize> {
        let kind = self.live()?.kind;
        self.host_address()?.ok_or_else(|| vkgdr::Error::NoHostView { kind }.into())
    }

    /// Checks a range of this view; `None` means to the end.
    #[inline]
    pub(crate) fn range(&self, offset: usize, len: Option<usize>) -> Result<(usize, usize)> {
        let size = self.len;
        let len = len.unwrap_or(size.saturating_sub(offset));
        if offset <= size && len <= size - offset {
            Ok((offset, len))
        } else {
            Err(vkgdr::Error::OutOfRange { offset, len, size }.into())
        }
    }

    /// Runs `work`, detached from the interpreter, on the storage and a range of this view, in offsets of the memory.
    fn with_range<T: Send>(
        &self,
        py: Python<'_>,
        (offset, len): (usize, usize),
        work: impl FnOnce(&Storage, std::ops::Range<usize>) -> Result<T> + Send,
    ) -> Result<T> {
        let allocation = self.live()?;
        let start = self.offset + offset;
        let storage = allocation.storage()?;
        // Dropped in the closure: if the memory was freed meanwhile, this drop releases it and may wait.
        py.detach(move || {
            let storage = storage;
            work(&storage, start..start + len)
        })
    }

    /// Runs `work` on this package's memory, detached from the interpreter. An error for a part of an allocation: `work` shares
    /// all of it with another process.
    fn with_whole<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Memory) -> vkgdr::Result<T> + Send) -> Result<T> {
        let whole = self.live()?.len;
        if (self.offset, self.len) != (0, whole) {
            return Err(Failure::Invalid(format!(
                "a part of memory cannot be shared: share the whole memory of {}, and the offset {}",
                in_bytes(whole),
                self.offset
            )));
        }
        self.with_range(py, (0, whole), |storage, _| Ok(work(storage.ours()?)?))
    }

    /// A stream of the memory's context, or of the current one if the memory is another library's.
    pub(crate) fn stream(&self, handle: u64) -> Result<StreamRef> {
        let storage = self.live()?.storage()?;
        Ok(match storage.memory() {
            // SAFETY: every Python function that takes a stream requires its caller to keep the stream alive, and the number of a
            // bound stream does so itself.
            Some(memory) => unsafe { memory.stream(raw_stream(handle)) },
            // SAFETY: as above.
            None => unsafe { StreamRef::in_current_context(raw_stream(handle)) },
        }?)
    }

    /// Checks that the memory's context was not destroyed. That of another library's memory is not known.
    pub(crate) fn check_context(&self) -> Result<()> {
        if self.context_address()?.is_none() {
            return Ok(());
        }
        // Making a stream reference enters the context.
        self.stream(NULL_STREAM).map(drop)
    }

    /// A stream of the memory's context or, if it belongs to another one, of the current context.
    pub(crate) fn stream_of_any_context(&self, handle: u64) -> Result<StreamRef> {
        match self.stream(handle) {
            Err(Failure::Driver(vkgdr::Error::ForeignStream)) => {
                // SAFETY: as for `stream`.
                Ok(unsafe { StreamRef::in_current_context(raw_stream(handle)) }?)
            }
            other => other,
        }
    }

    /// The CUDA context as a number; None for memory that another library allocated.
    pub(crate) fn context_address(&self) -> Result<Option<usize>> {
        self.live()?.briefly(|storage| Ok(storage.memory().map(|memory| memory.context().addr())))
    }

    pub(crate) fn flush_range(&self, py: Python<'_>, offset: usize, len: Option<usize>) -> Result<()> {
        let (offset, len) = self.range(offset, len)?;
        let allocation = self.live()?;
        if allocation.coherent {
            // Does not wait, so detaching from the interpreter would cost more than it gains.
            let start = self.offset + offset;
            return allocation.briefly(|storage| storage.flush(start..start + len));
        }
        self.with_range(py, (offset, len), Storage::flush)
    }

    pub(crate) fn invalidate_range(&self, py: Python<'_>, offset: usize, len: Option<usize>) -> Result<()> {
        let (offset, len) = self.range(offset, len)?;
        let allocation = self.live()?;
        if allocation.coherent {
            std::sync::atomic::fence(Ordering::Acquire);
            return Ok(());
        }
        self.with_range(py, (offset, len), Storage::invalidate)
    }

    /// Whether host bytes overlap the host view of a range of this view.
    fn shares_bytes(&self, (offset, len): (usize, usize), bytes: &HostBuffer) -> Result<bool> {
        Ok(self.live()?.shares_bytes((self.offset + offset, len), (bytes.address().addr(), bytes.len())))
    }

    fn writable(&self) -> Result<()> {
        if self.readonly { Err(Failure::Invalid("the memory is read-only".into())) } else { Ok(()) }
    }
}

impl Drop for MemoryView {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Held { used, .. }) = held
            && self.by_hand
        {
            used.leak();
        }
    }
}
