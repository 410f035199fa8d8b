//! `Block`: a range of an allocation, the native half of every memory object.
#![expect(unsafe_code, reason = "uses streams that belong to somebody else")]

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
    /// Taken when this block is freed.
    held: Mutex<Option<Use>>,
    freed: AtomicBool,
    offset: usize,
    len: usize,
    readonly: bool,
    /// What must live as long as this block: another library's claim on the bytes.
    beside: Option<Py<PyAny>>,
    /// Whether this block answers for what the allocation keeps alive: the one that it was made with.
    root: bool,
    /// Whether the memory leaks unless it is freed, as in vkgdr 0.1.
    by_hand: bool,
}

/// The null handle of a stream: the legacy default stream of the context that is current.
pub(crate) const NULL_STREAM: u64 = 0;
/// The handle `CU_STREAM_LEGACY` (cuda.h), the same stream as the null handle.
pub(crate) const LEGACY_STREAM: u64 = 1;

/// A stream's handle as CUDA has it.
pub(crate) fn raw_stream(handle: u64) -> CUstream {
    std::ptr::with_exposed_provenance_mut(as_address(handle))
}

/// A device address or a handle as the number that a pointer has.
#[expect(clippy::cast_possible_truncation, reason = "CUDA has no 32-bit systems any more")]
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

    /// Some of an allocation that was found by an address. None if its context was destroyed: then the address may be
    /// another's by now.
    pub(crate) fn found((used, offset): (Use, usize), len: usize, readonly: bool) -> Option<Self> {
        let found = Self::ranged(used, offset, len, readonly, false);
        found.check_context().is_ok().then_some(found)
    }

    /// As this block, which keeps an object alive beside the memory.
    pub(crate) fn with(mut self, object: Py<PyAny>) -> Self {
        self.beside = Some(object);
        self
    }

    /// A piece of a pool.
    pub(crate) fn pooled(memory: Memory) -> Self {
        Self::whole(Shared::pooled(memory), false, false)
    }

    /// An allocation.
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

    /// A further use, which keeps the memory also when this block is freed.
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

    /// The device address as the interfaces between libraries want it: 0 where there are no bytes.
    pub(crate) fn shown_address(&self) -> Result<u64> {
        self.device_address().map(|address| if self.len == 0 { 0 } else { address })
    }

    /// The host address; none for memory that the CPU cannot see.
    pub(crate) fn host_address(&self) -> Result<Option<usize>> {
        Ok(self.live()?.host_ptr.map(|start| start + self.offset))
    }

    /// The host address, or the error that there is none.
    pub(crate) fn visible(&self) -> Result<usize> {
        let kind = self.live()?.kind;
        self.host_address()?.ok_or_else(|| vkgdr::Error::NoHostView { kind }.into())
    }

    /// Checks a range of this block. None is all from `offset` on.
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

    /// Runs `work` on the memory and the range of it that a range of this block is.
    fn with_range<T: Send>(
        &self,
        py: Python<'_>,
        (offset, len): (usize, usize),
        work: impl FnOnce(&Memory, std::ops::Range<usize>) -> vkgdr::Result<T> + Send,
    ) -> Result<T> {
        let shared = self.live()?;
        let start = self.offset + offset;
        let backing = shared.backing()?;
        // Its end too may wait, if it was freed meanwhile.
        py.detach(move || {
            let backing = backing;
            Ok(work(backing.ours()?, start..start + len)?)
        })
    }

    /// A stream of the memory's context.
    pub(crate) fn stream(&self, handle: u64) -> Result<StreamRef> {
        let stream = match &self.live()?.backing()?.whose {
            // SAFETY: the caller of every Python function that takes a stream keeps it alive.
            Whose::Ours(memory) => unsafe { memory.stream(raw_stream(handle)) },
            // SAFETY: as above.
            Whose::Foreign | Whose::Nothing => unsafe { StreamRef::in_current_context(raw_stream(handle)) },
        };
        Ok(stream?)
    }

    /// Checks that the memory's context was not destroyed.
    pub(crate) fn check_context(&self) -> Result<()> {
        // Making a stream of it enters it.
        self.stream(NULL_STREAM).map(drop)
    }

    /// A stream of the memory's context, or else of the current one.
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

    /// Notes that a stream uses the memory, so that it does not go before.
    pub(crate) fn note_use(&self, stream: StreamRef) -> Result<()> {
        self.live()?.briefly(|backing| {
            backing.note_use(stream);
            Ok(())
        })
    }

    /// The CUDA context, as a number; none for memory that another library allocated.
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
            // Nothing that waits: not worth letting other threads run.
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

    /// Whether host bytes lie in a range of this block, in part at least.
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
