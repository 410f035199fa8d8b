//! [`Block`]: a live allocation with its context and the pool that its chunks return to, and its release from any thread.
//!
//! Memory is released once the device is known to have finished with it. Where that cannot be found out at once, it waits
//! among the GPU's deferred frees.
#![expect(unsafe_code, reason = "takes the allocation out of its owner")]

use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use log::Level;

use super::FreeChunk;
use super::pending::{Awaited, Pending, wait_scope_after};
use crate::access::copy::HostAccess;
use crate::access::view::View;
use crate::addresses::Listing;
use crate::allocation::Allocation;
#[cfg(feature = "vulkan")]
use crate::allocation::ResourceBlock;
use crate::copy_engine::CopyEngines;
use crate::device::deferred_frees::{Deferred, WaitScope};
use crate::driver::context::{Context, ContextGuard, Entered};
use crate::driver::cuda::cuda;
use crate::driver::fork;
use crate::driver::liveness::Witness;
use crate::driver::raw_event::RawEvent;
use crate::report::{self, report};
use crate::stream::binding::{Binding, DropPolicy};
use crate::{Error, MemoryKind, Result, Vkgdr};

/// The pool to which a block's chunks return.
pub(crate) trait ChunkPool: Debug + Send + Sync {
    /// The id by which a thread finds its cache of the pool; `NO_CACHE` for pools without caches.
    fn id(&self) -> u32;
    /// Takes a chunk back.
    fn take_back(self: Arc<Self>, chunk: FreeChunk) -> Result<()>;
}

/// A live allocation with the context that it was made in. A pool's block is divided into chunks; any other is all of one chunk.
#[derive(Debug)]
pub(crate) struct Block {
    /// Taken by the release, which is the last use.
    allocation: ManuallyDrop<Allocation>,
    released: bool,
    context: Context,
    /// Taken before CUDA's side of the allocation is released.
    witness: Option<Witness>,
    /// The GPU's copy engines; small copies update their counters.
    engines: &'static CopyEngines,
    /// Copy of the allocation's key in the table of addresses, valid after the release. `None` for memory that others
    /// allocated.
    listing: Option<Listing>,
    pool: Option<Arc<dyn ChunkPool>>,
    pool_id: u32,
    /// Whether the device has finished with all of it.
    is_idle: AtomicBool,
}

impl Block {
    /// An id that no pool has.
    pub(crate) const NO_POOL: u32 = u32::MAX;

    /// Memory made by `allocate`, in the handle's primary context if it retains that, else in the current context.
    #[inline]
    pub(crate) fn dedicated(owner: &Vkgdr, allocate: impl FnOnce() -> Result<Allocation>) -> Result<Self> {
        let (allocation, context) = match owner.primary_context() {
            Some(context) => (context.run(allocate)?, context),
            None => {
                let context = owner.current_context()?;
                (allocate()?, context)
            }
        };
        Ok(Self::new(allocation, context))
    }

    /// Allocates `len` bytes in `context`, which need not be current.
    pub(crate) fn in_context(owner: &Vkgdr, len: usize, kind: MemoryKind, context: Context) -> Result<Self> {
        context.run(|| Ok(Self::new(Allocation::new(owner, len, kind)?, context)))
    }

    /// Allocates memory for buffers and images in `context`, which need not be current.
    #[cfg(feature = "vulkan")]
    pub(crate) fn of_resources(owner: &Vkgdr, block: &ResourceBlock, context: Context) -> Result<Self> {
        context.run(|| Ok(Self::new(Allocation::of_resources(owner, block)?, context)))
    }

    #[inline]
    fn new(allocation: Allocation, context: Context) -> Self {
        let engines = allocation.owner().gpu().copy_engines();
        let listing = allocation.listing();
        // Memory of others cannot show that the context is alive: they may free it at any time.
        let witness = listing.and_then(|_| Witness::new(context.key(), allocation.device_ptr()));
        let allocation = ManuallyDrop::new(allocation);
        let (pool, pool_id, is_idle) = (None, Self::NO_POOL, AtomicBool::new(false));
        Self { allocation, released: false, context, witness, engines, listing, pool, pool_id, is_idle }
    }

    /// The block of a pool, to which its chunks return.
    pub(crate) fn of_pool(mut self, pool: Arc<dyn ChunkPool>) -> Self {
        (self.pool_id, self.pool) = (pool.id(), Some(pool));
        self
    }

    #[inline]
    pub(super) const fn pool(&self) -> Option<&Arc<dyn ChunkPool>> {
        self.pool.as_ref()
    }

    /// The id of the pool, or [`Self::NO_POOL`].
    #[inline]
    pub(super) const fn pool_id(&self) -> u32 {
        self.pool_id
    }

    /// Marks an unused block as idle: its last reference releases it without waiting.
    pub(crate) fn mark_idle(&self) {
        // The drop of the reference orders this before the drop of the last one.
        self.is_idle.store(true, Ordering::Relaxed);
    }

    /// The key of its chunks in the table of addresses; `None` for memory that others allocated.
    #[inline]
    pub(super) const fn listing(&self) -> Option<Listing> {
        self.listing
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }

    #[inline]
    pub(crate) const fn engines(&self) -> &'static CopyEngines {
        self.engines
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

    /// As [`release`](Self::release); a second call does nothing.
    pub(super) fn release_once(&mut self, binding: &Binding) -> Result<()> {
        if std::mem::replace(&mut self.released, true) || fork::is_forked() {
            return Ok(());
        }
        if self.allocation.existing().is_some() {
            // The device keeps the memory: only the host's view ends.
            drop(self.take());
            return Ok(());
        }
        let deferred = self.allocation.owner().gpu().deferred_frees();
        let result = match self.context.try_enter() {
            Ok(Entered::Current(guard)) => self.release_within(guard, binding),
            Ok(Entered::Destroyed(_)) => {
                binding.other_contexts().iter().for_each(|other| drop(other.finish()));
                release_orphan(self.take(), Level::Warn);
                Ok(())
            }
            Ok(Entered::ShutDown(_)) => {
                leave_to_the_system(self.take());
                Ok(())
            }
            Err(error) => {
                drop(self.defer(Awaited::Contexts(binding.other_contexts())));
                Err(error)
            }
        };
        deferred.poll(wait_scope_after(&result, binding.policy(), self.context));
        result
    }

    /// Releases the memory in its context, which is current while `guard` lives.
    #[inline]
    fn release_within(&mut self, guard: ContextGuard, binding: &Binding) -> Result<()> {
        let (awaited, finished) = Self::finish(binding);
        let (deferred, released) = match awaited {
            None => (None, self.release_stages()),
            Some(awaited) => (Some(self.defer(awaited)), Ok(())),
        };
        let left = guard.leave();
        // The handle is dropped after the context was left: it may be the last owner of that context.
        match deferred {
            Some(owner) => drop(owner),
            None => drop(self.take()),
        }
        finished.and(released).and(left)
    }

    #[inline]
    fn release_stages(&mut self) -> Result<()> {
        self.witness = None;
        self.allocation.release()
    }

    /// Applies a chunk's drop policy in the block's context. Returns the work that is still pending, and the first
    /// error.
    #[cfg(feature = "vulkan")]
    pub(crate) fn finish_chunk(&self, binding: &Binding) -> (Option<Pending>, Result<()>) {
        let context = self.context;
        let pending = |awaited| Some(Pending { awaited, context });
        match context.try_enter() {
            Ok(Entered::Current(guard)) => {
                let (awaited, finished) = Self::finish(binding);
                let left = guard.leave();
                (awaited.and_then(pending), finished.and(left))
            }
            // The context's work has ended with it.
            Ok(Entered::Destroyed(_)) => {
                binding.other_contexts().iter().for_each(|other| drop(other.finish()));
                (None, Ok(()))
            }
            Ok(Entered::ShutDown(_)) => (None, Ok(())),
            Err(error) => (pending(Awaited::Contexts(binding.other_contexts())), Err(error)),
        }
    }

    /// Applies the drop policy. Returns the work that is still pending, and the first error. Waits for the whole
    /// context if the stream cannot be queried, as after its end.
    #[inline]
    fn finish(binding: &Binding) -> (Option<Awaited>, Result<()>) {
        match Self::finish_as_bound(binding) {
            Ok(event) => (event.map(Awaited::Event), Ok(())),
            Err(error) if error.is_fatal_to_context() => (None, Err(error)),
            Err(error) => {
                let contexts = Awaited::Contexts(binding.other_contexts());
                // A capture that forbids the first wait forbids this one as well, and would end by it.
                let finished = !error.is_of_capture() && contexts.synchronize().is_ok();
                ((!finished).then_some(contexts), Err(error))
            }
        }
    }

    /// Waits as the policy says, or returns the event to wait for.
    #[inline]
    fn finish_as_bound(binding: &Binding) -> Result<Option<RawEvent>> {
        match binding.policy() {
            DropPolicy::Immediate => Ok(None),
            DropPolicy::WaitForContext => {
                binding.other_contexts().iter().try_for_each(|other| other.finish())?;
                cuda()?.context_synchronize().map(|()| None)
            }
            DropPolicy::WaitForStream => Self::finish_stream(binding),
        }
    }

    /// The event to wait for, unless the bound stream has passed it already.
    fn finish_stream(binding: &Binding) -> Result<Option<RawEvent>> {
        let event = binding.record()?;
        // An event of a stream that is being captured never passes: asking for it is an error.
        Ok(if event.is_complete()? { None } else { Some(event) })
    }

    /// Leaves the memory to the deferred frees, and gives its handle.
    #[cold]
    fn defer(&mut self, awaited: Awaited) -> Vkgdr {
        let allocation = self.take();
        let owner = allocation.owner().clone();
        let (context, witness) = (self.context, self.witness.take());
        let pending = Pending { awaited, context };
        owner.gpu().deferred_frees().push(Box::new(DeferredFree { pending, allocation, witness }));
        owner
    }

    /// Takes the allocation: the last use of it, by [`release_once`](Self::release_once) alone.
    #[inline]
    fn take(&mut self) -> Allocation {
        debug_assert!(self.released);
        // SAFETY: nothing uses the field once `released` is set, but `release_once` until it takes it.
        unsafe { ManuallyDrop::take(&mut self.allocation) }
    }
}

impl Drop for Block {
    /// Waits for the context, unless the block is idle: chunks of a pool's block were given back without waiting.
    #[inline]
    fn drop(&mut self) {
        if self.released {
            return;
        }
        let binding = if *self.is_idle.get_mut() { Binding::immediate() } else { Binding::default() };
        if let Err(error) = self.release_once(&binding) {
            report!(Warn, "releasing memory: {error}");
        }
    }
}

/// The result of entering the context of an allocation to release it there.
pub(crate) enum ContextEntry {
    /// The context is current while the guard lives.
    Entered(ContextGuard, Allocation),
    /// The context was destroyed, and the rest of the allocation released or left to the system.
    Gone,
    /// The driver refuses for now.
    Refused(Error, Allocation),
}

impl ContextEntry {
    /// Logs the end of a destroyed context at `level`.
    #[inline]
    pub(crate) fn enter(context: Context, allocation: Allocation, level: Level) -> Self {
        match context.try_enter() {
            Ok(Entered::Current(guard)) => return Self::Entered(guard, allocation),
            Ok(Entered::Destroyed(_)) => release_orphan(allocation, level),
            Ok(Entered::ShutDown(_)) => leave_to_the_system(allocation),
            Err(error) => return Self::Refused(error, allocation),
        }
        Self::Gone
    }
}

/// Releases an allocation whose CUDA context was destroyed, and CUDA's side with it. That is a mistake of the program, and a
/// warning, unless it had freed the memory before, which waited for a stream.
#[cold]
fn release_orphan(allocation: Allocation, level: Level) {
    let (len, kind) = (allocation.len(), allocation.kind());
    allocation.release_without_cuda();
    let what = if level == Level::Warn { "the memory" } else { "its deferred free" };
    report::line(
        level,
        module_path!(),
        format_args!(
            "the CUDA context of {len} bytes of {kind} memory was destroyed before {what}; freed without CUDA"
        ),
    );
}

/// Leaves memory to the end of the process, once CUDA has shut down: the Vulkan driver may have, too.
#[cold]
fn leave_to_the_system(allocation: Allocation) {
    let _ = ManuallyDrop::new(allocation);
}

/// An allocation that the device may still use.
struct DeferredFree {
    pending: Pending,
    allocation: Allocation,
    witness: Option<Witness>,
}

impl DeferredFree {
    /// Releases the memory in the current context.
    fn release_now(awaited: Awaited, mut allocation: Allocation) {
        drop(awaited);
        if let Err(error) = allocation.release() {
            report!(Warn, "releasing memory: {error}");
        }
    }
}

impl Deferred for DeferredFree {
    fn is_ready(&self, scope: WaitScope) -> bool {
        self.pending.is_finished(scope)
    }

    fn wait(&self) -> bool {
        self.pending.wait()
    }

    fn release(self: Box<Self>) {
        let Self { pending: Pending { mut awaited, context }, allocation, witness } = *self;
        // Kept until the context was left: the handle may be the last owner of that context.
        let _owner = allocation.owner().clone();
        // No warning: the memory was freed before the context was destroyed.
        let entry = ContextEntry::enter(context, allocation, Level::Debug);
        drop(witness);
        match entry {
            ContextEntry::Entered(_guard, allocation) => Self::release_now(awaited, allocation),
            ContextEntry::Gone => awaited.abandon(),
            // The device has finished, so that this is safe in whatever context is current.
            ContextEntry::Refused(_, allocation) => Self::release_now(awaited, allocation),
        }
    }
}
