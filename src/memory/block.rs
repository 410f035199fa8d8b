//! What a [`Memory`] refers to: a [`Block`], or a part of one that belongs to a [`Home`], and the release of both.
#![forbid(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use super::{Memory, UsedStream, Uses};
use crate::access::copy::{self, CopyRoutine};
use crate::addresses::Lookup;
use crate::allocation::Allocation;
use crate::driver::context::{Context, Entered};
use crate::driver::fork;
use crate::lock::Lock;
use crate::report::{log_failure, report};
use crate::retire::Fence;
use crate::{Error, Result, Vkgdr};

/// What all references to a memory share.
pub(crate) struct Inner {
    /// `None` during the release only.
    block: Option<Arc<Block>>,
    /// Where the memory begins in the block, and its requested bytes.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Whether the device may have used the bytes: its address was asked for, or a use recorded. A home alone asks.
    pub(super) exposed: AtomicBool,
    pub(crate) uses: Lock<Uses>,
    /// What takes the memory back; `None` for all of a block that nothing divides.
    pub(super) home: Option<Arc<dyn Home>>,
    /// The pool's chunk. `None` for dedicated memory of a pool, and for an allocator's, which is found by its address.
    pub(crate) chunk: Option<Chunk>,
    /// The C library's handle of the memory, as a number; 0 without one.
    pub(super) c_handle: AtomicUsize,
}

/// A place in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) span: u32,
    pub(crate) index: u32,
}

/// A pool or an allocator: what divides blocks, and takes the parts back.
pub(crate) trait Home: Send + Sync {
    /// Takes back memory whose last reference was dropped, without uses if the device never had it.
    fn take_back(self: Arc<Self>, memory: &Inner, block: Arc<Block>, uses: Option<Uses>) -> Result<()>;

    /// Whether it takes back memory of a chunk without a call of a driver, if no stream is recorded for that.
    fn is_caching(&self) -> bool {
        false
    }
}

impl Inner {
    /// `len` bytes at an offset of a block.
    pub(crate) fn new(
        block: Arc<Block>,
        (offset, len): (usize, usize),
        home: Option<Arc<dyn Home>>,
        chunk: Option<Chunk>,
    ) -> Self {
        let (exposed, uses, c_handle) = Default::default();
        Self { block: Some(block), offset, len, exposed, uses, home, chunk, c_handle }
    }

    /// All of a block, which lookups find from now on.
    pub(crate) fn whole(mut block: Block, home: Option<Arc<dyn Home>>) -> Arc<Self> {
        Arc::new_cyclic(|whole| {
            let whole = whole.clone();
            block.list(Box::new(move |_| whole.upgrade().map(Memory::of)));
            let len = block.allocation().len();
            Self::new(Arc::new(block), (0, len), home, None)
        })
    }

    #[inline]
    pub(super) fn block(&self) -> &Arc<Block> {
        self.block.as_ref().expect("only the release takes the block")
    }

    pub(crate) fn context(&self) -> Context {
        self.block().context()
    }

    /// Reads the uses; in a forked child those at the fork, or none if a thread of the parent held the lock then.
    pub(super) fn uses<T>(&self, read: impl FnOnce(&Uses) -> T) -> T {
        if fork::is_forked() {
            return read(&self.uses.try_lock().map(|uses| uses.clone()).unwrap_or_default());
        }
        read(&self.uses.lock())
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

    /// Releases the memory, or returns it to its home. A second call does nothing. In a forked child, nothing is released.
    pub(super) fn release(&mut self) -> Result<()> {
        let Some(block) = self.block.take() else { return Ok(()) };
        if fork::is_forked() {
            let _ = ManuallyDrop::new((block, self.home.take()));
            return Ok(());
        }
        let mut take_uses = || std::mem::take(self.uses.get_mut());
        let Some(home) = self.home.take() else { return block.release_after(take_uses()) };
        let uses = self.exposed.get_mut().then(take_uses);
        home.take_back(self, block, uses)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        log_failure("memory", self.release());
    }
}

/// A live allocation with the context that it was made in: all of one memory, or divided by a pool or an allocator.
///
/// A drop releases it at once. The last reference is dropped only after the device has finished with all of it.
pub(crate) struct Block {
    /// `None` during the release only.
    allocation: Option<Allocation>,
    context: Context,
    /// How the CPU copies this memory.
    routine: CopyRoutine,
}

impl Block {
    /// Memory made by `allocate`, in the handle's primary context if it retains that, else in the current context.
    pub(crate) fn new(owner: &Vkgdr, allocate: impl FnOnce() -> Result<Allocation>) -> Result<Self> {
        match owner.primary_context() {
            Some(context) => Self::in_context(context, allocate),
            None => owner.current_context().and_then(|context| Ok(Self::of(allocate()?, context))),
        }
    }

    /// Memory made by `allocate` in `context`, which need not be current.
    pub(crate) fn in_context(context: Context, allocate: impl FnOnce() -> Result<Allocation>) -> Result<Self> {
        context.run(allocate).map(|allocation| Self::of(allocation, context))
    }

    fn of(allocation: Allocation, context: Context) -> Self {
        // The first call of the process may log.
        let routine = CopyRoutine::of(allocation.memory_type().is_cached());
        Self { allocation: Some(allocation), context, routine }
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &Allocation {
        self.live().expect("only the release takes the allocation")
    }

    /// The allocation, until the release.
    #[inline]
    pub(super) const fn live(&self) -> Option<&Allocation> {
        self.allocation.as_ref()
    }

    /// Lists its addresses, see [`Allocation::list`].
    pub(crate) fn list(&mut self, lookup: Lookup) {
        self.allocation.as_mut().expect("only the release takes the allocation").list(lookup);
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }

    pub(crate) const fn routine(&self) -> CopyRoutine {
        self.routine
    }

    /// Makes the CPU's writes to a range visible to the device. Rounds outwards to whole atoms. The range must lie within the
    /// allocation.
    #[inline]
    pub(super) fn flush(&self, offset: usize, len: usize) -> Result<()> {
        fence(Ordering::Release);
        copy::order_writes(self.routine);
        let allocation = self.allocation();
        if allocation.memory_type().coherent || len == 0 { Ok(()) } else { allocation.flush(offset, len) }
    }

    /// Makes the device's writes to a range visible to the CPU, as [`flush`](Self::flush) the CPU's.
    #[inline]
    pub(super) fn invalidate(&self, offset: usize, len: usize) -> Result<()> {
        let allocation = self.allocation();
        if !allocation.memory_type().coherent && len > 0 {
            allocation.invalidate(offset, len)?;
        }
        copy::order_reads(self.routine);
        fence(Ordering::Acquire);
        Ok(())
    }

    /// [`release`](Self::release) once the device has finished with memory that was used so.
    pub(crate) fn release_after(self: Arc<Self>, uses: Uses) -> Result<()> {
        if self.allocation().existing().is_some() {
            // The device keeps memory of others: only the host's view ends.
            return self.release();
        }
        let (owner, context) = (self.allocation().owner().clone(), self.context);
        uses.release_after(&owner, context, move || self.release())
    }

    /// Releases the allocation as a drop does, and returns the first error. Where another thread still has a reference, it
    /// does.
    pub(crate) fn release(self: Arc<Self>) -> Result<()> {
        Arc::into_inner(self).map_or(Ok(()), |mut block| block.release_once())
    }

    /// [`release`](Self::release) of several.
    #[inline]
    pub(crate) fn release_all(blocks: Vec<Arc<Self>>) -> Result<()> {
        // Mostly none, of a pool.
        if blocks.is_empty() {
            return Ok(());
        }
        blocks.into_iter().map(Self::release).fold(Ok(()), Result::and)
    }

    pub(super) fn release_once(&mut self) -> Result<()> {
        let Some(allocation) = self.allocation.take() else { return Ok(()) };
        if fork::is_forked() {
            // The memory is the parent's.
            let _ = ManuallyDrop::new(allocation);
            return Ok(());
        }
        release(allocation, self.context)
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        log_failure("memory", self.release_once());
    }
}

/// Releases an allocation in its context. One that the driver does not make current for now is released later.
fn release(mut allocation: Allocation, context: Context) -> Result<()> {
    if allocation.existing().is_some() {
        // The device keeps the memory: only the host's view ends.
        return Ok(());
    }
    match context.try_enter() {
        Ok(Entered::Current(guard)) => {
            let released = allocation.release_cuda();
            let left = guard.leave();
            // After the context was left: the allocation's handle may be the last owner of that context. A caller that has entered
            // it, too, holds the handle.
            drop(allocation);
            released.and(left)
        }
        Ok(Entered::Destroyed(_)) => {
            let (len, kind) = (allocation.len(), allocation.kind());
            // CUDA's side went with the context, a primary one that was reset.
            allocation.release_without_cuda();
            report!(
                Warn,
                "the CUDA context of {len} bytes of {kind} memory was destroyed before the memory; freed without CUDA"
            );
            Ok(())
        }
        Ok(Entered::ShutDown(_)) => {
            // Left to the end of the process: the Vulkan driver may have shut down, too.
            let _ = ManuallyDrop::new(allocation);
            Ok(())
        }
        Err(error) => {
            let queue = allocation.owner().gpu().retired();
            queue.push(Fence::Contexts(vec![context]), move || release(allocation, context));
            Err(error)
        }
    }
}
