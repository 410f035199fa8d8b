//! `Block`: a range of an allocation, the native half of every memory object.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

mod python;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use vkgdr::cudarc::driver::sys::CUstream;
use vkgdr::{Memory, StreamRef};

use crate::error::{Failure, Result};
use crate::host_buffer::HostBuffer;
use crate::shared::{FREED, Shared, Use, Whose};

/// A range of an allocation.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct Block {
    shared: Arc<Shared>,
    /// This block's use of the allocation; None once the block is freed.
    held: Mutex<Option<Use>>,
    freed: AtomicBool,
    offset: usize,
    len: usize,
    readonly: bool,
    /// An object that lives as long as this block: another library's owner of the bytes.
    beside: Option<Py<PyAny>>,
    /// Whether this is the allocation's first block, which reports the kept objects to the garbage collector.
    root: bool,
    /// Whether dropping the block leaks the memory unless it was freed, as in vkgdr 0.1.
    by_hand: bool,
}

/// The null stream handle: the legacy default stream of the current context.
pub(crate) const NULL_STREAM: u64 = 0;
/// The handle `CU_STREAM_LEGACY` (cuda.h), the same stream as the null handle.
pub(crate) const LEGACY_STREAM: u64 = 1;

/// A stream handle as CUDA's pointer type.
pub(crate) fn raw_stream(handle: u64) -> CUstream {
    std::ptr::with_exposed_provenance_mut(as_address(handle))
}

/// A device address or a handle as a pointer-sized integer.
#[expect(clippy::cast_possible_truncation, reason = "CUDA supports 64-bit systems only")]
pub(crate) const fn as_address(number: u64) -> usize {
    number as usize
}

impl Block {
    fn whole(used: Use, readonly: bool, by_hand: bool) -> Self {
        let len = used.shared().len;
        let mut whole = Self::ranged(used, 0, len, readonly, by_hand);
        whole.root = true;
        whole
    }

    fn ranged(used: Use, offset: usize, len: usize, readonly: bool, by_hand: bool) -> Self {
        let shared = used.shared().clone();
        let (held, freed) = (Mutex::new(Some(used)), AtomicBool::new(false));
        Self { shared, held, freed, offset, len, readonly, beside: None, root: false, by_hand }
    }

    /// A range of an allocation that was found by its address. None if its context was destroyed: the address may have
    /// been reused since.
    pub(crate) fn found((used, offset): (Use, usize), len: usize, readonly: bool) -> Option<Self> {
        let found = Self::ranged(used, offset, len, readonly, false);
        found.check_context().is_ok().then_some(found)
    }

    /// This block, with an additional object that it keeps alive.
    pub(crate) fn with(mut self, object: Py<PyAny>) -> Self {
        self.beside = Some(object);
        self
    }

    /// A chunk of a pool.
    pub(crate) fn pooled(memory: Memory) -> Self {
        Self::whole(Shared::pooled(memory), false, false)
    }

    /// A dedicated allocation.
    pub(crate) fn unpooled(memory: Memory) -> Self {
        Self::whole(Shared::ours(memory), false, false)
    }

    pub(crate) fn foreign(device: i32, device_ptr: u64, len: usize, readonly: bool, keep: Py<PyAny>) -> Self {
        Self::whole(Shared::foreign(device, device_ptr, len, keep), readonly, false)
    }

    /// The allocation, unless it or this block was freed.
    #[inline]
    pub(crate) fn live(&self) -> Result<&Arc<Shared>> {
        if self.freed.load(Ordering::Acquire) || self.shared.is_gone() {
            return Err(Failure::Gone(FREED));
        }
        Ok(&self.shared)
    }

    /// Adds a use, which keeps the memory alive even when this block is freed.
    pub(crate) fn join(&self) -> Result<Use> {
        self.live()?;
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone().ok_or(Failure::Gone(FREED))
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_readonly(&self) -> bool {
        self.readonly
    }

    #[inline]
    pub(crate) fn device_address(&self) -> Result<u64> {
        Ok(self.live()?.device_ptr()? + self.offset as u64)
    }

    /// The device address for array interfaces: 0 for an empty block.
    pub(crate) fn shown_address(&self) -> Result<u64> {
        self.device_address().map(|address| if self.len == 0 { 0 } else { address })
    }

    /// The host address; None for memory without a host view.
    pub(crate) fn host_address(&self) -> Result<Option<usize>> {
        Ok(self.live()?.host_ptr.map(|start| start + self.offset))
    }

    /// The host address, or an error for memory without a host view.
    pub(crate) fn visible(&self) -> Result<usize> {
        let kind = self.live()?.kind;
        self.host_address()?.ok_or_else(|| vkgdr::Error::NoHostView { kind }.into())
    }

    /// Checks a range of this block; `None` means to the end.
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

    /// Runs `work`, detached from the interpreter, on the memory and a range of this block, in offsets of the memory.
    fn with_range<T: Send>(
        &self,
        py: Python<'_>,
        (offset, len): (usize, usize),
        work: impl FnOnce(&Memory, std::ops::Range<usize>) -> vkgdr::Result<T> + Send,
    ) -> Result<T> {
        let shared = self.live()?;
        let start = self.offset + offset;
        let backing = shared.backing()?;
        // Dropped in the closure: if the memory was freed meanwhile, this drop releases it and may wait.
        py.detach(move || {
            let backing = backing;
            Ok(work(backing.ours()?, start..start + len)?)
        })
    }

    /// A stream of the memory's context.
    pub(crate) fn stream(&self, handle: u64) -> Result<StreamRef> {
        let stream = match &self.live()?.backing()?.whose {
            // SAFETY: every Python function that takes a stream requires its caller to keep the stream alive.
            Whose::Ours(memory) => unsafe { memory.stream(raw_stream(handle)) },
            // SAFETY: as above.
            Whose::Foreign | Whose::Nothing => unsafe { StreamRef::in_current_context(raw_stream(handle)) },
        };
        Ok(stream?)
    }

    /// Checks that the memory's context was not destroyed.
    pub(crate) fn check_context(&self) -> Result<()> {
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

    /// Waits for the bound stream, if there is one.
    pub(crate) fn wait_for_bound(&self, py: Python<'_>) -> Result<()> {
        let backing = self.live()?.backing()?;
        py.detach(move || {
            let backing = backing;
            match &backing.whose {
                Whose::Ours(memory) => Ok(memory.wait_for_stream()?),
                Whose::Foreign | Whose::Nothing => Ok(()),
            }
        })
    }

    /// Records that a stream uses the memory: its release waits for that use.
    pub(crate) fn note_use(&self, stream: StreamRef) -> Result<()> {
        self.live()?.briefly(|backing| {
            backing.note_use(stream);
            Ok(())
        })
    }

    /// The CUDA context as a number; None for memory that another library allocated.
    pub(crate) fn context_address(&self) -> Result<Option<usize>> {
        self.live()?.briefly(|backing| {
            Ok(match &backing.whose {
                Whose::Ours(memory) => Some(memory.context().addr()),
                Whose::Foreign | Whose::Nothing => None,
            })
        })
    }

    /// The bound stream's handle.
    pub(crate) fn bound_handle(&self) -> Result<Option<u64>> {
        self.live()?.briefly(|backing| {
            Ok(match &backing.whose {
                Whose::Ours(memory) => memory.bound_stream().map(|stream| stream.addr() as u64),
                Whose::Foreign | Whose::Nothing => None,
            })
        })
    }

    pub(crate) fn flush_range(&self, py: Python<'_>, offset: usize, len: Option<usize>) -> Result<()> {
        let (offset, len) = self.range(offset, len)?;
        let shared = self.live()?;
        if shared.coherent {
            // Does not wait, so detaching from the interpreter would cost more than it gains.
            let start = self.offset + offset;
            return shared.briefly(|backing| match &backing.whose {
                Whose::Ours(memory) => Ok(memory.flush(start..start + len)?),
                Whose::Foreign | Whose::Nothing => Ok(()),
            });
        }
        self.with_range(py, (offset, len), |memory, range| memory.flush(range))
    }

    pub(crate) fn invalidate_range(&self, py: Python<'_>, offset: usize, len: Option<usize>) -> Result<()> {
        let (offset, len) = self.range(offset, len)?;
        let shared = self.live()?;
        if shared.coherent {
            std::sync::atomic::fence(Ordering::Acquire);
            return Ok(());
        }
        self.with_range(py, (offset, len), |memory, range| memory.invalidate(range))
    }

    /// Whether host bytes overlap the host view of a range of this block.
    fn shares_bytes(&self, (offset, len): (usize, usize), bytes: &HostBuffer) -> Result<bool> {
        let Some(start) = self.host_address()?.map(|start| start + offset) else { return Ok(false) };
        let other = bytes.address().addr();
        Ok(other < start + len && start < other + bytes.len())
    }

    fn writable(&self) -> Result<()> {
        if self.readonly { Err(Failure::Invalid("the memory is read-only".into())) } else { Ok(()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(used) = held
            && self.by_hand
        {
            used.leak();
        }
    }
}
