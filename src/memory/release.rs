//! When memory may go: what [`Memory`](crate::Memory) holds, and how it is released from any thread.
//!
//! Memory goes only when the device is known to have finished with it. Where that cannot be found out at once it
//! waits in the release queue.
#![expect(unsafe_code, reason = "takes the allocation out of its owner")]

use std::mem::ManuallyDrop;

use super::binding::{Binding, DropPolicy, SharedBinding};
use crate::allocation::Allocation;
use crate::device::release_queue::Retired;
use crate::driver::context::{Context, ContextGuard, Entered};
use crate::driver::cuda::cuda;
use crate::driver::event::Event;
use crate::driver::process;
use crate::{Error, MemoryKind, Result, Vkgdr};

/// An allocation with the context it was made in, released as its policy says.
#[derive(Debug)]
pub(crate) struct Held {
    /// Taken in `release`, after which nothing uses it.
    allocation: ManuallyDrop<Allocation>,
    released: bool,
    context: Context,
    binding: SharedBinding,
}

impl Held {
    /// Allocates `len` bytes in `context`, which need not be current.
    pub(crate) fn allocate(owner: &Vkgdr, len: usize, kind: MemoryKind, context: Context) -> Result<Self> {
        context.run(|| Ok(Self::new(Allocation::new(owner, len, kind)?, context)))
    }

    pub(super) fn new(allocation: Allocation, context: Context) -> Self {
        let binding = SharedBinding::default();
        Self { allocation: ManuallyDrop::new(allocation), released: false, context, binding }
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }

    pub(super) const fn binding(&self) -> &SharedBinding {
        &self.binding
    }

    /// Makes the release wait for what a binding says.
    pub(crate) fn adopt(&self, binding: Binding) {
        self.binding.put(binding);
    }

    /// Makes the release wait for nothing: the device has finished with all of it.
    pub(crate) fn is_known_idle(&self) {
        self.binding.change(Binding::release_immediately);
    }

    /// Releases the memory as its policy says, now or by way of the release queue. Returns the first error. In a
    /// process that was forked off, nothing is released: it is the parent's.
    pub(super) fn release(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.released, true) || process::is_forked() {
            return Ok(());
        }
        // SAFETY: `released` was false, so that this is the only take.
        let allocation = unsafe { ManuallyDrop::take(&mut self.allocation) };
        // Both outlive the visit to the context: they may be what keeps it alive.
        let owner = allocation.owner().clone();
        let binding = self.binding.get();
        let result = match Visit::to(self.context, allocation) {
            Visit::Within(guard, allocation) => self.release_within(guard, allocation, &binding),
            Visit::Gone => Ok(()),
            Visit::Refused(error, allocation) => {
                self.park(allocation, Pending::Context);
                Err(error)
            }
        };
        owner.gpu().release_queue().tend();
        result
    }

    /// Releases the memory in its context, which is current while `guard` lives.
    fn release_within(&self, guard: ContextGuard, allocation: Allocation, binding: &Binding) -> Result<()> {
        let released = match Self::finish(binding) {
            Ok(None) => allocation.release(),
            Ok(Some(event)) => {
                self.park(allocation, Pending::Event(event));
                Ok(())
            }
            Err(error) if error.is_fatal_to_context() => allocation.release().and(Err(error)),
            Err(error) => {
                self.park(allocation, Pending::Context);
                Err(error)
            }
        };
        released.and(guard.leave())
    }

    /// Waits as the policy says, or gives the event that has to be waited for.
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

    fn park(&self, allocation: Allocation, pending: Pending) {
        let queue = allocation.owner().gpu().release_queue();
        queue.push(Box::new(Retiree { pending, allocation, context: self.context }));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            log::warn!("releasing memory: {error}");
        }
    }
}

/// What can be done with an allocation that is to be released in its context.
pub(super) enum Visit {
    /// The context is current while the guard lives.
    Within(ContextGuard, Allocation),
    /// The context is gone, and what was left of the allocation has been seen to.
    Gone,
    /// The driver does not let anybody in now.
    Refused(Error, Allocation),
}

impl Visit {
    pub(super) fn to(context: Context, allocation: Allocation) -> Self {
        match context.try_enter() {
            Ok(Entered::Current(guard)) => return Self::Within(guard, allocation),
            Ok(Entered::Destroyed(_)) => release_orphan(allocation),
            Ok(Entered::ShutDown(_)) => leave_to_the_system(allocation),
            Err(error) => return Self::Refused(error, allocation),
        }
        Self::Gone
    }
}

/// Releases what is left of memory whose context was destroyed, which freed CUDA's side.
fn release_orphan(allocation: Allocation) {
    log::warn!(
        "the CUDA context of {} bytes of {} memory was destroyed before the memory; only Vulkan's side is freed",
        allocation.len(),
        allocation.kind(),
    );
    allocation.release_without_cuda();
}

/// Leaves memory to the end of the process, once CUDA has shut down: the Vulkan driver may have, too.
fn leave_to_the_system(allocation: Allocation) {
    let _ = ManuallyDrop::new(allocation);
}

/// What memory in the release queue waits for.
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

    /// Forgets what CUDA destroyed with the context.
    fn abandon(&mut self) {
        if let Self::Event(event) = self {
            event.abandon();
        }
    }
}

/// Memory in the release queue.
struct Retiree {
    pending: Pending,
    allocation: Allocation,
    context: Context,
}

impl Retiree {
    /// Asks `question` within the context. An error that ends the context ends its work as well; any other
    /// leaves the answer open.
    fn ask(&self, question: impl FnOnce(&Pending) -> Result<bool>) -> bool {
        let answer = match self.context.try_enter() {
            Ok(Entered::Current(_guard)) => question(&self.pending),
            Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => Ok(true),
            Err(error) => Err(error),
        };
        answer.unwrap_or_else(|error| {
            log::debug!("memory in the release queue: {error}");
            error.is_fatal_to_context()
        })
    }

    /// Releases the memory in the context that is current.
    fn release_now(pending: Pending, allocation: Allocation) {
        drop(pending);
        if let Err(error) = allocation.release() {
            log::warn!("releasing memory: {error}");
        }
    }
}

impl Retired for Retiree {
    fn is_ready(&self) -> bool {
        self.ask(Pending::has_passed)
    }

    fn wait(&self) -> bool {
        self.ask(|pending| pending.synchronize().map(|()| true))
    }

    fn release(self: Box<Self>) {
        let Self { mut pending, allocation, context } = *self;
        // Outlives the visit to the context: it may be what keeps it alive.
        let _owner = allocation.owner().clone();
        match Visit::to(context, allocation) {
            Visit::Within(_guard, allocation) => Self::release_now(pending, allocation),
            Visit::Gone => pending.abandon(),
            // The device has finished, so that this is safe in whatever context is current.
            Visit::Refused(_, allocation) => Self::release_now(pending, allocation),
        }
    }
}
