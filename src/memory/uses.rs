//! [`Uses`]: the streams that use memory, and the [`DropPolicy`] that follows: what its release waits for.
#![forbid(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use crate::allocation::Allocation;
use crate::driver::context::Context;
use crate::driver::cuda::retry_once;
use crate::driver::{LEGACY_STREAM, PER_THREAD_STREAM};
use crate::retire::{Fence, RetireQueue};
use crate::{Result, StreamRef};

/// The device work that freeing memory waits for.
///
/// Chosen by [`Memory::bind_stream`](crate::Memory::bind_stream) and
/// [`Memory::set_drop_policy`](crate::Memory::set_drop_policy), returned by
/// [`Memory::drop_policy`](crate::Memory::drop_policy). If waiting fails temporarily, as during a stream capture, the
/// memory is freed later. For memory of a [`Pool`](crate::Pool), the pool waits for the same work before it reuses the
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DropPolicy {
    /// All work of the memory's context, and of the streams of other contexts that
    /// [`Memory::record_use`](crate::Memory::record_use) named, before the drop returns. The default.
    #[default]
    WaitForContext,
    /// The work that was submitted before the drop to the bound stream and to the streams of
    /// [`Memory::record_use`](crate::Memory::record_use). The drop does not wait for it, and the memory is freed later, see
    /// [`Vkgdr::collect`](crate::Vkgdr::collect).
    WaitForStream,
    /// Nothing.
    Immediate,
}

/// A stream that uses memory. Dropping it may call the driver, so no lock may be held; it leaves the current context as it was.
#[derive(Debug, Clone)]
pub(crate) struct UsedStream {
    /// Live until the memory is freed, by the contracts of `bind_raw_stream` and `record_use`.
    pub(crate) stream: StreamRef,
    /// Keeps the stream alive; `None` where the caller does.
    keeper: Option<Arc<CudaStream>>,
}

impl UsedStream {
    /// A stream of `context`.
    pub(crate) fn shared(stream: &Arc<CudaStream>, context: Context) -> Result<Self> {
        let checked = StreamRef::checked(stream.cu_stream(), stream.context().cu_ctx(), context)?;
        Ok(Self { stream: checked, keeper: Some(stream.clone()) })
    }

    pub(crate) fn is_per_thread(&self) -> bool {
        self.stream.raw().addr() == PER_THREAD_STREAM
    }

    /// Waits for the stream. One whose context is gone or broken has no work.
    fn finish(&self) -> Result<()> {
        if self.is_per_thread() {
            // Each thread has its own.
            return self.stream.context.finish();
        }
        match self.stream.synchronize() {
            Err(error) if !error.ends_all_work() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for UsedStream {
    fn drop(&mut self) {
        let Some(last) = self.keeper.take().and_then(Arc::into_inner) else { return };
        // Entered, since cudarc makes the context current where it is not, and leaves it so.
        match retry_once(|| self.stream.context.enter()) {
            Ok(_guard) => drop(last),
            // It belongs to the parent, or went with its context: cudarc would use the context, which is gone.
            Err(_) => _ = ManuallyDrop::new(last),
        }
    }
}

/// A stream's handle as a number, which is the same for both handles of the legacy default stream.
pub(crate) fn stream_number(stream: CUstream) -> usize {
    match stream.addr() {
        LEGACY_STREAM => 0,
        handle => handle,
    }
}

/// Whether both name the same stream: handles of default streams are the same in each context.
impl PartialEq for UsedStream {
    fn eq(&self, other: &Self) -> bool {
        let number = |used: &Self| stream_number(used.stream.raw());
        self.stream.context == other.stream.context && number(self) == number(other)
    }
}

impl From<StreamRef> for UsedStream {
    fn from(stream: StreamRef) -> Self {
        Self { stream, keeper: None }
    }
}

/// The streams that use memory.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(super) bound: Option<UsedStream>,
    /// The streams of `record_use`, and of views.
    others: Vec<UsedStream>,
    /// Whether the release waits for the context although the memory is bound. Streams that are not kept used it: one that it was
    /// bound to before, a default stream of a thread, or those of many views. Or its holder asked for that.
    wait_for_context: bool,
    immediate: bool,
}

impl Uses {
    /// The most streams with which a view records another one: a program may make one for each request.
    const MOST_OF_VIEWS: usize = 64;

    pub(crate) fn policy(&self) -> DropPolicy {
        match self {
            Self { immediate: true, .. } => DropPolicy::Immediate,
            Self { bound: Some(_), wait_for_context: false, .. } => DropPolicy::WaitForStream,
            _ => DropPolicy::WaitForContext,
        }
    }

    pub(crate) fn set_policy(&mut self, policy: DropPolicy) {
        self.immediate = policy == DropPolicy::Immediate;
        self.wait_for_context |= policy == DropPolicy::WaitForContext;
    }

    /// The recorded streams.
    fn recorded(&self) -> impl Iterator<Item = &UsedStream> {
        self.bound.iter().chain(&self.others)
    }

    /// Whether no stream is recorded.
    pub(crate) fn is_unrecorded(&self) -> bool {
        self.recorded().next().is_none()
    }

    pub(crate) fn bound_stream(&self) -> Option<CUstream> {
        self.bound.as_ref().map(|bound| bound.stream.raw())
    }

    /// Binds to a stream. Returns the one before, to be dropped without the lock.
    #[must_use]
    pub(crate) fn bind(&mut self, stream: UsedStream) -> Option<UsedStream> {
        self.wait_for_context |= self.bound.as_ref().is_some_and(|bound| *bound != stream);
        self.bound.replace(stream)
    }

    /// Ends the binding to a stream whose work has finished, unless it is to another by now. Returns the stream, to be dropped
    /// without the lock.
    #[must_use]
    pub(crate) fn unbind(&mut self, finished: &UsedStream) -> Option<UsedStream> {
        self.bound.take_if(|bound| bound == finished)
    }

    /// Records that a stream uses the memory.
    pub(crate) fn record(&mut self, other: UsedStream) {
        // The thread that records the events may be another one.
        self.wait_for_context |= other.is_per_thread();
        if !self.recorded().any(|known| *known == other) {
            self.others.push(other);
        }
    }

    /// Records that a view is for a stream of the memory's context. Without a bound stream, and after many others, the release waits
    /// for all of that. One stream is kept even then: cudarc may end a context of `cuCtxCreate` with its last stream.
    pub(crate) fn record_view(&mut self, stream: UsedStream) {
        if self.recorded().any(|known| *known == stream && known.keeper.is_some()) {
            return;
        }
        let is_kept = self.bound.is_some() && self.others.len() < Self::MOST_OF_VIEWS && !stream.is_per_thread();
        self.wait_for_context |= !is_kept;
        if !self.wait_for_context || self.others.iter().all(|other| other.keeper.is_none()) {
            self.others.push(stream);
        }
    }

    /// The recorded streams of other contexts than `own`.
    fn of_other_contexts(&self, own: Context) -> impl Iterator<Item = &UsedStream> {
        self.others.iter().filter(move |other| other.stream.context != own)
    }

    /// Whether streams of other contexts than `own` use the memory.
    pub(crate) fn used_by_other_contexts(&self, own: Context) -> bool {
        self.of_other_contexts(own).next().is_some()
    }

    /// A fence after the work that was submitted to the recorded streams; empty if all of that has finished.
    pub(crate) fn record_events(&self) -> Result<Fence> {
        let mut fence = Fence::default();
        for used in self.recorded() {
            // An event of a stream that is being captured never passes: asking for it is an error.
            let recorded = used.stream.record().and_then(|event| Ok((event.is_complete()?, event)));
            match recorded {
                Ok((true, _)) => {}
                Ok((false, event)) => fence.events.push(event),
                // A context that is gone or broken has no work.
                Err(error) if error.ends_all_work() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(fence)
    }

    /// The contexts that use the memory, each once.
    fn contexts(&self, own: Context) -> Vec<Context> {
        let mut contexts = vec![own];
        for other in &self.others {
            if !contexts.contains(&other.stream.context) {
                contexts.push(other.stream.context);
            }
        }
        contexts
    }

    /// Frees an allocation once the device has finished these uses of it.
    pub(crate) fn free(self, allocation: Arc<Allocation>) -> Result<()> {
        if allocation.existing().is_some() {
            // The device keeps memory of others: only the host's view ends.
            return allocation.free();
        }
        let (queue, context) = (allocation.owner().gpu().retired(), allocation.context());
        self.release_after(queue, context, move || allocation.free())
    }

    /// Runs `then` once the device has finished with memory of `context`: now, or later by the queue. Returns the first error.
    pub(crate) fn release_after(
        self,
        queue: &RetireQueue,
        context: Context,
        then: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let policy = self.policy();
        let waited = match policy {
            DropPolicy::Immediate => Ok(Fence::default()),
            DropPolicy::WaitForStream => self.record_events(),
            DropPolicy::WaitForContext => {
                let others = self.of_other_contexts(context).try_for_each(UsedStream::finish);
                others.and_then(|()| context.finish()).map(|()| Fence::default())
            }
        };
        let (fence, waited) = match waited {
            Ok(fence) => (fence, Ok(())),
            Err(error) => {
                // A capture that forbids the first wait forbids this one as well, and would end by it. A stream that cannot be
                // queried, as after its end, is waited for with its context.
                let mut contexts = self.contexts(context);
                if !error.is_of_capture() && contexts.iter().all(|used| used.finish().is_ok()) {
                    contexts.clear();
                }
                (Fence { contexts, ..Fence::default() }, Err(error))
            }
        };
        // Entries that wait for the context, too, can be released.
        let has_waited = policy == DropPolicy::WaitForContext && waited.is_ok();
        // Before the push: the new entry's events were asked just now.
        queue.poll(RetireQueue::SCANNED_PER_POLL, has_waited.then_some(context));
        let released = if fence.is_empty() {
            then()
        } else {
            // Its streams keep a context of cudarc's alive until then.
            queue.push(fence, move || {
                let done = then();
                drop(self);
                done
            });
            Ok(())
        };
        waited.and(released)
    }
}
