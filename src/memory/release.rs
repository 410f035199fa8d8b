//! When memory may go: what [`Memory`](crate::Memory) holds, and how it is released from any thread.
#![expect(unsafe_code, reason = "waits on streams that belong to somebody else")]

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use crate::allocation::Allocation;
use crate::device::release_queue::Retired;
use crate::driver::Handle;
use crate::driver::context::{Context, ContextGuard};
use crate::driver::cuda::cuda;
use crate::driver::event::Event;
use crate::{Error, Result};

/// What the release of memory waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DropPolicy {
    /// For all work of the memory's context, before the drop returns. The default.
    #[default]
    WaitForContext,
    /// For the work that the bound stream was given before the drop. The drop returns at once, and the memory
    /// goes later, see [`Vkgdr::collect`](crate::Vkgdr::collect).
    WaitForStream,
    /// For nothing.
    Immediate,
}

/// A stream that memory is bound to.
#[derive(Debug, Clone)]
enum BoundStream {
    /// Kept alive.
    Shared(Arc<CudaStream>),
    /// Kept alive by whoever bound it.
    Raw(Handle<CUstream>),
}

impl BoundStream {
    fn raw(&self) -> CUstream {
        match self {
            Self::Shared(stream) => stream.cu_stream(),
            Self::Raw(stream) => stream.0,
        }
    }
}

#[derive(Debug, Default)]
struct Binding {
    stream: Option<BoundStream>,
    policy: DropPolicy,
}

/// An allocation with the context it was made in, released as its policy says.
#[derive(Debug)]
pub(crate) struct Held {
    /// Taken in `release`, after which nothing uses it.
    allocation: ManuallyDrop<Allocation>,
    released: bool,
    context: Context,
    binding: Mutex<Binding>,
}

impl Held {
    pub(crate) fn new(allocation: Allocation, context: Context) -> Self {
        Self { allocation: ManuallyDrop::new(allocation), released: false, context, binding: Mutex::default() }
    }

    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }

    pub(crate) fn policy(&self) -> DropPolicy {
        self.binding().policy
    }

    pub(crate) fn set_policy(&self, policy: DropPolicy) {
        self.binding().policy = policy;
    }

    pub(crate) fn bind(&self, stream: &Arc<CudaStream>) -> Result<()> {
        // SAFETY: cudarc keeps the stream alive while the `Arc` lives.
        unsafe { self.check_stream(stream.cu_stream()) }?;
        self.set_stream(BoundStream::Shared(stream.clone()));
        Ok(())
    }

    /// # Safety
    ///
    /// `stream` must be live, and stay so until this memory is gone or bound to another stream.
    pub(crate) unsafe fn bind_raw(&self, stream: CUstream) -> Result<()> {
        // SAFETY: live by this method's contract.
        unsafe { self.check_stream(stream) }?;
        self.set_stream(BoundStream::Raw(Handle(stream)));
        Ok(())
    }

    fn set_stream(&self, stream: BoundStream) {
        *self.binding() = Binding { stream: Some(stream), policy: DropPolicy::WaitForStream };
    }

    /// # Safety
    ///
    /// `stream` must be live.
    unsafe fn check_stream(&self, stream: CUstream) -> Result<()> {
        // SAFETY: live by this method's contract; a default stream means the context that is entered.
        let context = self.context.run(|| unsafe { cuda()?.stream_context(stream) }.map(Handle))?;
        if context.0 == self.context.raw() { Ok(()) } else { Err(Error::ForeignStream) }
    }

    /// Notes that `stream` uses the memory. A stream that is not the bound one makes the release wait for the
    /// whole context.
    pub(crate) fn note_use(&self, stream: CUstream) {
        let mut binding = self.binding();
        let bound = binding.stream.as_ref().is_some_and(|bound| bound.raw() == stream);
        if !bound && binding.policy == DropPolicy::WaitForStream {
            binding.policy = DropPolicy::WaitForContext;
        }
    }

    /// Waits for the bound stream, if there is one.
    pub(crate) fn wait_for_stream(&self) -> Result<()> {
        let Some(stream) = self.binding().stream.clone() else { return Ok(()) };
        // SAFETY: the stream is live for as long as the memory is bound to it.
        self.context.run(|| unsafe { cuda()?.stream_synchronize(stream.raw()) })
    }

    fn binding(&self) -> MutexGuard<'_, Binding> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the memory as its policy says. Returns the first error; everything is released all the same.
    pub(crate) fn release(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        // SAFETY: `released` was false, so that this is the only take.
        let allocation = unsafe { ManuallyDrop::take(&mut self.allocation) };
        // Dropped after the context was left: it may be what keeps the context alive.
        let owner = allocation.owner().clone();
        let queue = owner.gpu().release_queue();
        let binding = std::mem::take(&mut *self.binding());
        match self.context.enter_unless_lost() {
            Ok(Some(guard)) => {
                let released = self.release_within(guard, allocation, binding);
                queue.collect();
                released
            }
            Ok(None) => {
                release_orphan(allocation);
                Ok(())
            }
            // The context may yet be the current one.
            Err(error) => allocation.release().and(Err(error)),
        }
    }

    /// Releases the memory in its context, which is current while `guard` lives.
    fn release_within(&self, guard: ContextGuard, allocation: Allocation, binding: Binding) -> Result<()> {
        let (waited, released) = match Self::wait(&binding) {
            Ok(Some(event)) => {
                let queue = allocation.owner().gpu().release_queue();
                queue.push(Box::new(Retiree { event, allocation, context: self.context }));
                (Ok(()), Ok(()))
            }
            waited => (waited.map(drop), allocation.release()),
        };
        // While the context is current: cudarc makes a stream's context current to destroy the stream.
        drop(binding);
        let left = guard.leave();
        waited.and(released).and(left)
    }

    /// Waits as the policy says, or gives the event that has to be waited for.
    fn wait(binding: &Binding) -> Result<Option<Event>> {
        let synchronize = || cuda()?.context_synchronize();
        match binding.policy {
            DropPolicy::Immediate => Ok(None),
            DropPolicy::WaitForContext => synchronize().map(|()| None),
            // Without an event the whole context has to be waited for.
            DropPolicy::WaitForStream => {
                record(binding.stream.as_ref()).map(Some).or_else(|error| synchronize().and(Err(error)))
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            log::warn!("releasing memory: {error}");
        }
    }
}

fn record(stream: Option<&BoundStream>) -> Result<Event> {
    let stream = stream.map_or(std::ptr::null_mut(), BoundStream::raw);
    // SAFETY: the stream is live for as long as the memory is bound to it, and its context is current.
    unsafe { Event::record(stream) }
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

/// Memory in the release queue.
struct Retiree {
    event: Event,
    allocation: Allocation,
    context: Context,
}

impl Retired for Retiree {
    fn is_ready(&self) -> bool {
        let Ok(Some(_guard)) = self.context.enter_unless_lost() else { return true };
        // An error means that the context is broken: nothing runs there any more.
        self.event.has_passed().unwrap_or(true)
    }

    fn wait(&self) {
        let Ok(Some(_guard)) = self.context.enter_unless_lost() else { return };
        if let Err(error) = self.event.synchronize() {
            log::warn!("waiting for the device to finish with memory: {error}");
        }
    }

    fn release(self: Box<Self>) {
        let Self { mut event, allocation, context } = *self;
        // Dropped after the context was left: it may be what keeps the context alive.
        let _owner = allocation.owner().clone();
        let entered = context.enter_unless_lost();
        if let Ok(None) = entered {
            event.abandon();
            release_orphan(allocation);
            return;
        }
        drop(event);
        if let Err(error) = allocation.release() {
            log::warn!("releasing memory: {error}");
        }
    }
}
