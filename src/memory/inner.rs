//! What a [`Memory`] refers to: an [`Allocation`], or a part of one that belongs to a [`Home`], and its release.
#![forbid(unsafe_code)]

use std::mem::{self, ManuallyDrop};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::{DropPolicy, Memory, UsedStream, Uses};
use crate::allocation::Allocation;
use crate::driver::context::Context;
use crate::driver::fork;
use crate::lock::Lock;
use crate::report::log_failure;
use crate::{Error, Result};

/// What all references to a memory share.
pub(crate) struct Inner {
    /// `None` once released.
    allocation: Option<Arc<Allocation>>,
    /// Where the memory begins in the allocation, and its requested bytes.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Whether the device may have used the bytes: an address by which it can was asked for, or a use recorded.
    pub(super) exposed: AtomicBool,
    pub(crate) uses: Lock<Uses>,
    /// What takes the memory back: a pool, also for dedicated memory, or an allocator. `None` for other allocations.
    pub(super) home: Option<Arc<dyn Home>>,
    /// The pool's chunk. `None` for dedicated memory of a pool, and for an allocator's, which is found by its address.
    pub(crate) chunk: Option<Chunk>,
    /// The C library's handle of the memory, as a number; 0 without one.
    pub(super) c_handle: AtomicUsize,
}

/// A place in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) span: usize,
    pub(crate) index: usize,
}

/// A pool or an allocator: what divides its blocks, which are allocations, and takes the parts back.
pub(crate) trait Home: Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Takes back memory whose last reference was dropped.
    fn take_back(self: Arc<Self>, memory: &mut Inner, block: Arc<Allocation>) -> Result<()>;

    /// Whether memory of a chunk for which no stream is recorded returns without a call of a driver.
    fn is_caching(&self) -> bool {
        false
    }
}

impl Inner {
    /// `len` bytes at an offset of an allocation.
    pub(crate) fn new(
        allocation: Arc<Allocation>,
        (offset, len): (usize, usize),
        home: Option<Arc<dyn Home>>,
        chunk: Option<Chunk>,
    ) -> Self {
        let (exposed, uses, c_handle) = Default::default();
        Self { allocation: Some(allocation), offset, len, exposed, uses, home, chunk, c_handle }
    }

    /// All of an allocation, which lookups find from now on.
    pub(crate) fn whole(mut allocation: Allocation, home: Option<Arc<dyn Home>>) -> Arc<Self> {
        Arc::new_cyclic(|whole| {
            let whole = whole.clone();
            allocation.list(Box::new(move |_| whole.upgrade().map(Memory::of)));
            let len = allocation.len();
            Self::new(Arc::new(allocation), (0, len), home, None)
        })
    }

    #[inline]
    pub(super) fn allocation(&self) -> &Arc<Allocation> {
        self.allocation.as_ref().expect("only the release takes the allocation")
    }

    pub(crate) fn context(&self) -> Context {
        self.allocation().context()
    }

    /// Reads the uses; in a forked child those at the fork, or none if a thread of the parent held the lock then.
    pub(super) fn uses<T>(&self, read: impl FnOnce(&Uses) -> T) -> T {
        let uses = if fork::is_forked() { self.uses.try_lock() } else { Some(self.uses.lock()) };
        match uses {
            Some(uses) => read(&uses),
            None => read(&Uses::default()),
        }
    }

    pub(crate) fn bind(&self, stream: UsedStream) -> Result<()> {
        if stream.is_per_thread() {
            return Err(Error::PerThreadStream);
        }
        let before = self.uses.lock().bind(stream);
        // Without the lock: dropping a stream may call the driver.
        drop(before);
        Ok(())
    }

    pub(crate) fn take_uses(&mut self) -> Uses {
        mem::take(self.uses.get_mut())
    }

    /// Releases the memory, or returns it to its home. A second call does nothing. In a forked child, nothing is released.
    pub(super) fn release(&mut self) -> Result<()> {
        let Some(allocation) = self.allocation.take() else { return Ok(()) };
        if fork::is_forked() {
            let _ = ManuallyDrop::new((allocation, self.home.take()));
            return Ok(());
        }
        let Some(home) = self.home.take() else { return self.take_uses().free(allocation) };
        if !*self.exposed.get_mut() {
            // The device never had it.
            self.uses.get_mut().set_policy(DropPolicy::Immediate);
        }
        home.take_back(self, allocation)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        log_failure("memory", self.release());
    }
}
