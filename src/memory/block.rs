//! [`Block`]: a live allocation with its context, and its release from any thread.
#![forbid(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::access::copy::CopyRoutine;
use crate::allocation::Allocation;
#[cfg(feature = "vulkan")]
use crate::allocation::ResourceBlock;
use crate::driver::context::{Context, Entered};
use crate::driver::fork;
use crate::report::report;
use crate::retire::Fence;
use crate::{MemoryKind, Result, Vkgdr};

/// A live allocation with the context that it was made in: all of one memory, or divided by a pool or an allocator.
///
/// A drop releases it at once. The last reference is dropped only after the device has finished with all of it.
#[derive(Debug)]
pub(crate) struct Block {
    /// `None` during the release only.
    allocation: Option<Allocation>,
    context: Context,
}

impl Block {
    /// Memory made by `allocate`, in the handle's primary context if it retains that, else in the current context.
    #[inline]
    pub(crate) fn new(owner: &Vkgdr, allocate: impl FnOnce() -> Result<Allocation>) -> Result<Self> {
        match owner.primary_context() {
            Some(context) => Self::in_context(context, allocate),
            None => {
                let context = owner.current_context()?;
                Ok(Self { allocation: Some(allocate()?), context })
            }
        }
    }

    fn in_context(context: Context, allocate: impl FnOnce() -> Result<Allocation>) -> Result<Self> {
        Ok(Self { allocation: Some(context.run(allocate)?), context })
    }

    /// Allocates `len` bytes in `context`, which need not be current.
    pub(crate) fn allocate(owner: &Vkgdr, len: usize, kind: MemoryKind, context: Context) -> Result<Self> {
        Self::in_context(context, || Allocation::new(owner, len, kind))
    }

    /// Allocates memory for buffers and images in `context`, which need not be current.
    #[cfg(feature = "vulkan")]
    pub(crate) fn allocate_resources(owner: &Vkgdr, block: &ResourceBlock, context: Context) -> Result<Self> {
        Self::in_context(context, || Allocation::allocate_resources(owner, block))
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &Allocation {
        self.allocation.as_ref().expect("only the release takes the allocation")
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }

    /// How the CPU copies this memory. The first call of the process may log.
    pub(crate) fn host_access(&self) -> CopyRoutine {
        CopyRoutine::of(self.allocation().memory_type().cached)
    }

    /// Releases the allocation as a drop does, and returns the first error. Where another thread still has a reference, it
    /// does.
    pub(crate) fn release(self: Arc<Self>) -> Result<()> {
        Arc::into_inner(self).map_or(Ok(()), |mut block| block.release_once())
    }

    /// [`release`](Self::release) of several.
    pub(crate) fn release_all(blocks: Vec<Arc<Self>>) -> Result<()> {
        blocks.into_iter().map(Self::release).fold(Ok(()), Result::and)
    }

    fn release_once(&mut self) -> Result<()> {
        let Some(allocation) = self.allocation.take() else { return Ok(()) };
        if fork::is_forked() {
            // The memory is the parent's.
            leave_to_the_system(allocation);
            return Ok(());
        }
        release(allocation, self.context)
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        if let Err(error) = self.release_once() {
            report!(Warn, "releasing memory: {error}");
        }
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
            let released = allocation.release();
            let left = guard.leave();
            // After the context was left: the allocation's handle may be the last owner of that context.
            drop(allocation);
            released.and(left)
        }
        Ok(Entered::Destroyed(_)) => {
            release_orphan(allocation);
            Ok(())
        }
        Ok(Entered::ShutDown(_)) => {
            leave_to_the_system(allocation);
            Ok(())
        }
        Err(error) => {
            let queue = allocation.owner().gpu().retired();
            queue.push(Fence::Contexts(vec![context]), move || release(allocation, context));
            Err(error)
        }
    }
}

/// Releases an allocation whose primary context was reset, and CUDA's side with it.
#[cold]
pub(crate) fn release_orphan(allocation: Allocation) {
    let (len, kind) = (allocation.len(), allocation.kind());
    allocation.release_without_cuda();
    report!(
        Warn,
        "the CUDA context of {len} bytes of {kind} memory was destroyed before the memory; freed without CUDA"
    );
}

/// Leaves memory to the end of the process, once CUDA has shut down: the Vulkan driver may have, too.
#[cold]
pub(crate) fn leave_to_the_system(allocation: Allocation) {
    let _ = ManuallyDrop::new(allocation);
}
