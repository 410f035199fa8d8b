//! The stream binding of memory: the bound stream, uses on other streams, and the drop policy that follows.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use super::StreamRef;
use super::order::{Access, is_legacy};
use crate::Result;
use crate::driver::context::{Context, Entered, keeping_current};
use crate::driver::cuda::cuda;
use crate::driver::fork;
use crate::driver::raw_event::RawEvent;
use crate::driver::{Handle, LEGACY_STREAM};

/// The device work that freeing memory waits for.
///
/// Chosen by [`Memory::bind_stream`](crate::Memory::bind_stream) and
/// [`Memory::release_immediately`](crate::Memory::release_immediately), returned by
/// [`Memory::drop_policy`](crate::Memory::drop_policy). If waiting fails temporarily, as during a stream capture, the
/// memory is freed later. For memory of a [`Pool`](crate::Pool), the pool waits for the same work before it reuses the
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DropPolicy {
    /// All work of the memory's context, before the drop returns. The default.
    #[default]
    WaitForContext,
    /// The work that was submitted to the bound stream before the drop. The drop returns at once, and the memory is
    /// freed later, see [`Vkgdr::collect`](crate::Vkgdr::collect).
    WaitForStream,
    /// Nothing.
    Immediate,
}

/// A stream that memory is bound to. Dropping it may call the driver, so no lock may be held.
#[derive(Debug, Clone)]
pub(crate) enum BoundStream {
    Shared(SharedStream),
    /// Kept alive by the caller.
    Raw(Handle<CUstream>),
}

impl BoundStream {
    /// A stream of `context`, which the reference keeps alive.
    pub(crate) fn shared(stream: Arc<CudaStream>, context: Context) -> Self {
        Self::Shared(SharedStream { stream: Some(stream), context })
    }

    pub(crate) fn raw(&self) -> CUstream {
        match self {
            Self::Shared(shared) => shared.stream.as_ref().map_or(std::ptr::null_mut(), |stream| stream.cu_stream()),
            Self::Raw(stream) => stream.0,
        }
    }
}

/// A reference to a stream. The last one destroys it in its context, and leaves the current context as it was.
#[derive(Debug, Clone)]
pub(crate) struct SharedStream {
    /// `None` during the drop only.
    stream: Option<Arc<CudaStream>>,
    context: Context,
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        if fork::is_forked() {
            // The stream is the parent's.
            let _ = ManuallyDrop::new(stream);
        } else if let Some(last) = Arc::into_inner(stream) {
            destroy(last, self.context);
        }
    }
}

/// Destroys a stream, for which cudarc makes its context current, unless it went with that context.
fn destroy(stream: CudaStream, context: Context) {
    match context.try_enter() {
        Ok(Entered::Current(_guard)) => drop(stream),
        // cudarc would name both to the driver.
        Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => {
            let _ = ManuallyDrop::new(stream);
        }
        Err(_) => keeping_current(|| drop(stream)),
    }
}

/// Whether two handles name the same stream of one context.
fn is_same_stream(one: CUstream, other: CUstream) -> bool {
    let number = |stream: CUstream| if stream.addr() == LEGACY_STREAM { 0 } else { stream.addr() };
    number(one) == number(other)
}

/// Another context that uses the memory, kept until the release waits for it: a use may be announced before an earlier
/// wait, and submitted after it.
#[derive(Debug, Clone)]
struct OtherContext {
    context: Context,
    /// The number of uses that were announced.
    uses: u64,
    /// The number of these before the last wait for the context.
    finished: u64,
}

/// Uses that no event follows yet.
#[derive(Debug)]
pub(crate) struct Unrecorded {
    /// Those of the legacy default stream.
    pub(crate) legacy: Option<Access>,
    uses: u64,
    /// The stream that may still use the memory for its previous user.
    pub(crate) previous_user: Option<BoundStream>,
}

/// The bound stream, and uses of the memory on other streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Binding {
    stream: Option<BoundStream>,
    /// Whether another stream used the memory, or the memory was bound to another stream before.
    used_elsewhere: bool,
    /// Whether a failed copy of the copy engine may still use the memory, on a stream of the engine.
    unfinished_copy: bool,
    /// Whether an immediate release was requested.
    immediate: bool,
    /// Uses of the legacy default stream that no event follows yet.
    unrecorded: Option<Access>,
    /// The number of times that such a use was recorded here.
    unrecorded_uses: u64,
    /// The pool reused the memory for a stream that may still be using it; the next [`bind`](Self::bind) names that stream.
    reused: bool,
    /// The stream that may still use the memory for its previous user.
    previous_user: Option<BoundStream>,
    /// Other contexts with streams that use the memory.
    other_contexts: Vec<OtherContext>,
    /// The number of launches without an event.
    lost_launches: u64,
    /// The number of these before the last wait for the memory's context.
    finished_launches: u64,
}

impl Binding {
    pub(crate) fn policy(&self) -> DropPolicy {
        match self {
            Self { unfinished_copy: true, .. } => DropPolicy::WaitForContext,
            Self { immediate: true, .. } => DropPolicy::Immediate,
            Self { stream: Some(_), used_elsewhere: false, .. } => DropPolicy::WaitForStream,
            _ => DropPolicy::WaitForContext,
        }
    }

    pub(crate) fn release_immediately(&mut self) {
        self.immediate = true;
    }

    pub(crate) fn release_with_wait(&mut self) {
        self.immediate = false;
    }

    /// Records that the stream which is bound next may still run the previous user's work.
    pub(crate) fn record_reuse(&mut self) {
        self.reused = true;
    }

    /// Whether it holds a reference to its stream.
    pub(crate) const fn keeps_stream(&self) -> bool {
        matches!(self.stream, Some(BoundStream::Shared(_)))
    }

    /// Whether this is the only reference to its stream.
    pub(crate) fn is_last_of_stream(&self) -> bool {
        let Some(BoundStream::Shared(SharedStream { stream: Some(stream), .. })) = &self.stream else { return false };
        Arc::strong_count(stream) == 1
    }

    pub(crate) fn stream(&self) -> Option<CUstream> {
        self.stream.as_ref().map(BoundStream::raw)
    }

    /// The stream that may still use the memory for its previous user.
    pub(crate) fn previous_user(&self) -> Option<CUstream> {
        self.previous_user.as_ref().map(BoundStream::raw)
    }

    /// The binding of memory that the device has finished with.
    pub(crate) fn immediate() -> Self {
        Self { immediate: true, ..Self::default() }
    }

    /// Records that `stream` is about to use the memory.
    pub(crate) fn record_use(&mut self, stream: CUstream) {
        self.used_elsewhere |= !self.is_bound_to(stream);
    }

    /// Records that `stream` is about to use the memory, which belongs to `own`. Handles are compared within a context alone:
    /// those of the default streams are the same in each.
    pub(crate) fn record_use_by(&mut self, stream: StreamRef, own: Context) {
        if stream.context == own {
            self.record_use(stream.raw());
        } else {
            self.record_other_context(stream.context);
        }
    }

    /// Records that a failed copy of the copy engine may still use the memory. A request for immediate release, before
    /// or after, does not cover that copy.
    pub(crate) fn record_unfinished_copy(&mut self) {
        self.unfinished_copy = true;
    }

    pub(crate) const fn has_unfinished_copy(&self) -> bool {
        self.unfinished_copy
    }

    fn is_bound_to(&self, stream: CUstream) -> bool {
        self.stream().is_some_and(|bound| is_same_stream(bound, stream))
    }

    /// Binds to a stream. Returns the one before, to be dropped without the lock.
    #[must_use]
    pub(crate) fn bind(&mut self, stream: BoundStream) -> Option<BoundStream> {
        let rebound = self.stream.is_some() && !self.is_bound_to(stream.raw());
        self.used_elsewhere |= rebound;
        if std::mem::take(&mut self.reused) {
            self.previous_user = Some(stream.clone());
        }
        self.stream.replace(stream)
    }

    /// Ends the binding to a stream whose work has finished, unless it is to another by now. Returns the stream, to be dropped
    /// without the lock.
    #[must_use]
    pub(crate) fn unbind(&mut self, finished: Option<CUstream>) -> Option<BoundStream> {
        if self.stream() == finished { self.stream.take() } else { None }
    }

    /// Forgets the previous user's stream once it has finished. Returns it, to be dropped without the lock.
    #[must_use]
    pub(crate) fn finish_previous_user(&mut self, finished: Option<CUstream>) -> Option<BoundStream> {
        self.previous_user.take_if(|stream| finished.is_some_and(|raw| is_same_stream(raw, stream.raw())))
    }

    /// Records that a stream of another context is about to use the memory.
    pub(crate) fn record_other_context(&mut self, context: Context) {
        self.used_elsewhere = true;
        match self.other_contexts.iter_mut().find(|other| other.context == context) {
            Some(other) => other.uses += 1,
            None => self.other_contexts.push(OtherContext { context, uses: 1, finished: 0 }),
        }
    }

    /// The other contexts that a write must not overtake, and their numbers of uses for
    /// [`finish_other_contexts`](Self::finish_other_contexts).
    pub(crate) fn unfinished_other_contexts(&self) -> Vec<(Context, u64)> {
        let unfinished = self.other_contexts.iter().filter(|other| other.uses > other.finished);
        unfinished.map(|other| (other.context, other.uses)).collect()
    }

    /// Records that other contexts have finished their uses so far.
    pub(crate) fn finish_other_contexts(&mut self, finished: &[(Context, u64)]) {
        for &(context, uses) in finished {
            let found = self.other_contexts.iter_mut().find(|other| other.context == context);
            if let Some(other) = found {
                other.finished = other.finished.max(uses);
            }
        }
    }

    /// Counts a launch that has no event, since the driver refused one.
    pub(crate) fn record_lost_launch(&mut self) {
        self.used_elsewhere = true;
        self.lost_launches += 1;
    }

    /// The number of launches without an event, for [`finish_launches`](Self::finish_launches); `None` if the context
    /// was waited for since the last.
    pub(crate) fn unfinished_launches(&self) -> Option<u64> {
        (self.lost_launches > self.finished_launches).then_some(self.lost_launches)
    }

    /// Records that the memory's context has finished its first `launches` launches without an event.
    pub(crate) fn finish_launches(&mut self, launches: u64) {
        self.finished_launches = self.finished_launches.max(launches);
    }

    /// Records that uses of other streams could not be joined into the bound one.
    pub(crate) fn record_use_elsewhere(&mut self) {
        self.used_elsewhere = true;
    }

    /// Records a use of the legacy default stream without an event, if it need not wait for any other use. Returns true
    /// then. The fast path of programs with one stream.
    pub(crate) fn record_sole_use(&mut self, stream: CUstream, access: Access) -> bool {
        let awaits_others =
            access == Access::Write && self.other_contexts.iter().any(|other| other.uses > other.finished);
        if awaits_others
            || self.unfinished_launches().is_some()
            || self.previous_user().is_some_and(|previous| !is_same_stream(stream, previous))
        {
            return false;
        }
        self.record_use(stream);
        self.record_without_event(access);
        true
    }

    /// Records that the legacy default stream is about to use the memory, and that no event will follow.
    pub(crate) fn record_without_event(&mut self, access: Access) {
        self.unrecorded = self.unrecorded.max(Some(access));
        self.unrecorded_uses += 1;
    }

    /// Earlier uses without an event that a new use must wait for. `stream` is `None` if unknown or of another context. The caller
    /// records events for them and then calls [`forget_recorded`](Self::forget_recorded): until then every thread finds them.
    pub(crate) fn unrecorded_before(&self, stream: Option<CUstream>, access: Access) -> Option<Unrecorded> {
        let on_legacy = stream.is_some_and(is_legacy);
        let legacy = self.unrecorded.filter(|earlier| earlier.conflicts_with(access) && !on_legacy);
        let is_other = |previous: &&BoundStream| !stream.is_some_and(|stream| is_same_stream(stream, previous.raw()));
        let previous_user = self.previous_user.as_ref().filter(is_other).cloned();
        if legacy.is_none() && previous_user.is_none() {
            return None;
        }
        Some(Unrecorded { legacy, uses: self.unrecorded_uses, previous_user })
    }

    /// Forgets the previous user, when the memory is free. Returns its stream, to be dropped without the lock.
    #[must_use]
    pub(crate) fn end(&mut self) -> Option<BoundStream> {
        self.previous_user.take()
    }

    /// Forgets uses that were recorded but for the `remaining` ones, unless there have been more. Returns the previous user's
    /// stream, to be dropped without the lock.
    #[must_use]
    pub(crate) fn forget_recorded(&mut self, recorded: &Unrecorded, remaining: Option<Access>) -> Option<BoundStream> {
        if recorded.legacy.is_some() && recorded.uses == self.unrecorded_uses {
            self.unrecorded = remaining;
        }
        if recorded.previous_user.is_some() { self.previous_user.take() } else { None }
    }

    /// The other contexts that the release waits for.
    pub(crate) fn other_contexts(&self) -> Vec<Context> {
        let others = if self.immediate { &[] } else { &*self.other_contexts };
        others.iter().map(|other| other.context).collect()
    }

    /// Whether the previous user's raw stream must have finished before the memory is bound to `stream`: its owner may destroy it
    /// afterwards.
    pub(crate) fn must_finish_before(&self, stream: &BoundStream) -> bool {
        let raw = matches!(self.previous_user, Some(BoundStream::Raw(_)));
        raw && !self.is_bound_to(stream.raw())
    }

    /// The uses of the legacy default stream that no event follows yet.
    pub(crate) fn unrecorded(&self) -> Option<Access> {
        self.unrecorded
    }

    /// Waits for the bound stream and the previous user's, if any.
    pub(crate) fn synchronize(&self, context: Context) -> Result<()> {
        let previous = self.previous_user().filter(|&previous| !self.is_bound_to(previous));
        [self.stream(), previous].into_iter().flatten().try_for_each(|stream| {
            // SAFETY: the stream is live for as long as the memory is bound to it; the previous user's is kept alive here, unless it
            // is bound as well.
            context.run(|| unsafe { cuda()?.stream_synchronize(stream) })
        })
    }

    /// An event after the work that was submitted to the bound stream, or to the legacy default stream if none is
    /// bound. The memory's context must be current.
    pub(crate) fn record(&self) -> Result<RawEvent> {
        let stream = self.stream.as_ref().map_or(std::ptr::null_mut(), BoundStream::raw);
        // SAFETY: the stream is live for as long as the memory is bound to it, and its context is current.
        unsafe { RawEvent::record(stream) }
    }
}
