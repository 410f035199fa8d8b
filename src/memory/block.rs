//! A block: a live allocation with its context, and the pool that lends parts of it, if any. How it is released, from any
//! thread.
//!
//! Memory is released once the device is known to have finished with it. Where that cannot be found out at once, it waits
//! among the GPU's deferred frees.
#![expect(unsafe_code, reason = "takes the allocation out of its owner")]

use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::binding::{Binding, DropPolicy};
use super::chunk::FreeChunk;
use crate::access::copy::HostAccess;
use crate::access::view::View;
use crate::allocation::Allocation;
use crate::copy_engine::CopyEngines;
use crate::device::deferred_frees::Deferred;
use crate::driver::context::{Context, ContextGuard, Entered};
use crate::driver::cuda::cuda;
use crate::driver::event::Event;
use crate::driver::process;
use crate::{Error, MemoryKind, Result, Vkgdr};

/// A pool, as its blocks know it.
pub(crate) trait ChunkPool: Debug + Send + Sync {
    /// Its unique id.
    fn id(&self) -> u32;
    /// Takes back a chunk that nobody holds any more.
    fn take_back(self: Arc<Self>, chunk: FreeChunk) -> Result<()>;
}

/// A live allocation with the context that it was made in.
#[derive(Debug)]
pub(crate) struct Block {
    /// Taken by the release, which is the last use.
    allocation: ManuallyDrop<Allocation>,
    released: bool,
    context: Context,
    /// Those of its GPU, which every small copy counts itself at.
    engines: &'static CopyEngines,
    pool: Option<Arc<dyn ChunkPool>>,
    pool_id: u32,
}

impl Block {
    /// Memory made by `allocate`, in the handle's primary context if it retains that, else in the current context.
    pub(super) fn dedicated(owner: &Vkgdr, allocate: impl FnOnce() -> Result<Allocation>) -> Result<Self> {
        let (allocation, context) = match owner.primary_context() {
            Some(context) => (context.run(allocate)?, context),
            None => {
                let context = owner.current_context()?;
                (allocate()?, context)
            }
        };
        Ok(Self::new(allocation, context, None))
    }

    /// Allocates `len` bytes for `pool` in `context`, which need not be current.
    pub(crate) fn pooled(
        owner: &Vkgdr,
        len: usize,
        kind: MemoryKind,
        context: Context,
        pool: Option<Arc<dyn ChunkPool>>,
    ) -> Result<Self> {
        context.run(|| Ok(Self::new(Allocation::new(owner, len, kind)?, context, pool)))
    }

    fn new(allocation: Allocation, context: Context, pool: Option<Arc<dyn ChunkPool>>) -> Self {
        let pool_id = pool.as_ref().map_or(u32::MAX, |pool| pool.id());
        let engines = allocation.owner().gpu().copy_engines();
        Self { allocation: ManuallyDrop::new(allocation), released: false, context, engines, pool, pool_id }
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }

    #[inline]
    pub(super) const fn engines(&self) -> &'static CopyEngines {
        self.engines
    }

    pub(super) const fn is_pooled(&self) -> bool {
        self.pool.is_some()
    }

    #[inline]
    pub(super) const fn pool(&self) -> Option<&Arc<dyn ChunkPool>> {
        self.pool.as_ref()
    }

    /// The id of the pool, or one that no pool has.
    #[inline]
    pub(crate) const fn pool_id(&self) -> u32 {
        self.pool_id
    }

    /// How the CPU copies this memory. The first call of the process may log.
    pub(crate) fn host_access(&self) -> HostAccess {
        View::whole(&self.allocation).access()
    }

    /// Releases the memory as the binding says, now or by way of the deferred frees. Returns the first error. In a forked
    /// child, nothing is released: the memory is the parent's.
    pub(crate) fn release(mut self, binding: &Binding) -> Result<()> {
        self.release_once(binding)
    }

    fn release_once(&mut self, binding: &Binding) -> Result<()> {
        if std::mem::replace(&mut self.released, true) || process::is_forked() {
            return Ok(());
        }
        // SAFETY: `released` was false, so that this is the only take.
        let allocation = unsafe { ManuallyDrop::take(&mut self.allocation) };
        // Outlives the visit to the context, which it may be what keeps alive.
        let owner = allocation.owner().clone();
        let result = match ContextEntry::enter(self.context, allocation) {
            ContextEntry::Entered(guard, allocation) => self.release_within(guard, allocation, binding),
            ContextEntry::Gone => Ok(()),
            ContextEntry::Refused(error, allocation) => {
                self.defer(allocation, Pending::Context);
                Err(error)
            }
        };
        owner.gpu().deferred_frees().poll();
        result
    }

    /// Releases the memory in its context, which is current while `guard` lives.
    fn release_within(&self, guard: ContextGuard, allocation: Allocation, binding: &Binding) -> Result<()> {
        let in_use = InUse { block: self, allocation: Some(allocation) };
        let finished = Self::finish(binding);
        let Some(allocation) = in_use.into_inner() else { return guard.leave() };
        let released = match finished {
            Ok(None) => allocation.release(),
            Ok(Some(event)) => {
                self.defer(allocation, Pending::Event(event));
                Ok(())
            }
            Err(error) if error.is_fatal_to_context() => allocation.release().and(Err(error)),
            Err(error) => {
                self.defer(allocation, Pending::Context);
                Err(error)
            }
        };
        released.and(guard.leave())
    }

    /// Waits as the policy says, or gives the event to wait for.
    fn finish(binding: &Binding) -> Result<Option<Event>> {
        match binding.policy() {
            DropPolicy::Immediate => Ok(None),
            DropPolicy::WaitForContext => cuda()?.context_synchronize().map(|()| None),
            DropPolicy::WaitForStream => {
                let event = binding.record()?;
                // An event of a stream that is being captured never passes: asking for it is an error.
                Ok(if event.has_passed()? { None } else { Some(event) })
            }
        }
    }

    fn defer(&self, allocation: Allocation, pending: Pending) {
        let queue = allocation.owner().gpu().deferred_frees();
        queue.push(Box::new(DeferredFree { pending, allocation, context: self.context }));
    }
}

impl Drop for Block {
    /// Waits for the context: chunks of a pool's block were given back without waiting.
    fn drop(&mut self) {
        if let Err(error) = self.release_once(&Binding::default()) {
            log::warn!("releasing memory: {error}");
        }
    }
}

/// An allocation that the device may still use. Deferred when dropped, such as by the panic of a logger.
struct InUse<'a> {
    block: &'a Block,
    allocation: Option<Allocation>,
}

impl InUse<'_> {
    fn into_inner(mut self) -> Option<Allocation> {
        self.allocation.take()
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take() {
            self.block.defer(allocation, Pending::Context);
        }
    }
}

/// What became of entering the context of an allocation to release it there.
pub(super) enum ContextEntry {
    /// The context is current while the guard lives.
    Entered(ContextGuard, Allocation),
    /// The context is gone, and the rest of the allocation was released or left to the system.
    Gone,
    /// The driver refuses for now.
    Refused(Error, Allocation),
}

impl ContextEntry {
    pub(super) fn enter(context: Context, allocation: Allocation) -> Self {
        match context.try_enter() {
            Ok(Entered::Current(guard)) => return Self::Entered(guard, allocation),
            Ok(Entered::Destroyed(_)) => release_orphan(allocation),
            Ok(Entered::ShutDown(_)) => leave_to_the_system(allocation),
            Err(error) => return Self::Refused(error, allocation),
        }
        Self::Gone
    }
}

/// Releases Vulkan's side of memory whose context was destroyed, which freed CUDA's side.
fn release_orphan(allocation: Allocation) {
    let (len, kind) = (allocation.len(), allocation.kind());
    allocation.release_without_cuda();
    log::warn!(
        "the CUDA context of {len} bytes of {kind} memory was destroyed before the memory; only Vulkan's side was freed"
    );
}

/// Leaves memory to the end of the process, once CUDA has shut down: the Vulkan driver may have, too.
fn leave_to_the_system(allocation: Allocation) {
    let _ = ManuallyDrop::new(allocation);
}

/// What a deferred free waits for.
enum Pending {
    Event(Event),
    /// All work of the context: waiting for it failed for a reason that may pass, such as a stream capture.
    Context,
}

impl Pending {
    fn has_passed(&self) -> Result<bool> {
        match self {
            Self::Event(event) => event.has_passed(),
            Self::Context => self.synchronize().map(|()| true),
        }
    }

    fn synchronize(&self) -> Result<()> {
        match self {
            Self::Event(event) => event.synchronize(),
            Self::Context => cuda()?.context_synchronize(),
        }
    }
}

/// An allocation that the device may still use.
struct DeferredFree {
    pending: Pending,
    allocation: Allocation,
    context: Context,
}

impl DeferredFree {
    /// Asks `question` within the context. An error that ends the context ends its work as well; any other
    /// leaves the answer open.
    fn ask(&self, question: impl FnOnce(&Pending) -> Result<bool>) -> bool {
        let answer = match self.context.try_enter() {
            Ok(Entered::Current(_guard)) => question(&self.pending),
            Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => Ok(true),
            Err(error) => Err(error),
        };
        answer.unwrap_or_else(|error| {
            log::debug!("deferred free: {error}");
            error.is_fatal_to_context()
        })
    }

    /// Releases the memory in the current context.
    fn release_now(pending: Pending, allocation: Allocation) {
        drop(pending);
        if let Err(error) = allocation.release() {
            log::warn!("releasing memory: {error}");
        }
    }
}

impl Deferred for DeferredFree {
    fn is_ready(&self) -> bool {
        self.ask(Pending::has_passed)
    }

    fn wait(&self) -> bool {
        self.ask(|pending| pending.synchronize().map(|()| true))
    }

    fn release(self: Box<Self>) {
        let Self { pending, allocation, context } = *self;
        // Not dropped where the context is gone, also if a log line about that panics: CUDA destroyed the event with it.
        let pending = ManuallyDrop::new(pending);
        // Outlives the visit to the context, which it may be what keeps alive.
        let _owner = allocation.owner().clone();
        match ContextEntry::enter(context, allocation) {
            ContextEntry::Entered(_guard, allocation) => {
                Self::release_now(ManuallyDrop::into_inner(pending), allocation);
            }
            ContextEntry::Gone => {}
            // The device has finished, so that this is safe in whatever context is current.
            ContextEntry::Refused(_, allocation) => Self::release_now(ManuallyDrop::into_inner(pending), allocation),
        }
    }
}
