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
use crate::driver::event::Event;
use crate::driver::process;
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

/// A stream that memory is bound to.
#[derive(Debug, Clone)]
pub(crate) enum BoundStream {
    /// A stream of the context, kept alive by this reference.
    Shared(Arc<CudaStream>, Context),
    /// Kept alive by the caller.
    Raw(Handle<CUstream>),
}

impl BoundStream {
    pub(crate) fn raw(&self) -> CUstream {
        match self {
            Self::Shared(stream, _) => stream.cu_stream(),
            Self::Raw(stream) => stream.0,
        }
    }
}

/// Whether two handles name the same stream of one context.
fn is_same_stream(one: CUstream, other: CUstream) -> bool {
    let number = |stream: CUstream| if stream.addr() == LEGACY_STREAM { 0 } else { stream.addr() };
    number(one) == number(other)
}

/// Another context whose streams read the memory. It stays until the release, which waits for it: a read may have been
/// announced before a wait, and submitted after it.
#[derive(Debug, Clone)]
struct Reader {
    context: Context,
    /// The number of reads that were announced.
    times: u64,
    /// The number of these before the last wait for the context.
    finished: u64,
}

/// Uses that no event follows yet.
#[derive(Debug)]
pub(crate) struct Unrecorded {
    /// Those of the legacy default stream.
    pub(crate) legacy: Option<Access>,
    uses: u64,
    /// A reference to the stream that may still use the memory for an earlier holder.
    pub(crate) holder: Option<Binding>,
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
    /// Whether a pool lent the memory again while the stream that it is bound to next may still use it.
    reused: bool,
    /// That stream, once it is bound.
    earlier_holder: Option<BoundStream>,
    /// Other contexts with streams that read the memory.
    readers: Vec<Reader>,
    /// Whether a launch is neither ordered nor recorded.
    lost_launch: bool,
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

    /// Records that the stream which the memory is bound to next may still use it for an earlier holder.
    pub(crate) fn record_reuse(&mut self) {
        self.reused = true;
    }

    /// Whether it holds a reference to its stream.
    pub(crate) const fn keeps_stream(&self) -> bool {
        matches!(self.stream, Some(BoundStream::Shared(..)))
    }

    /// Whether this is the only reference to its stream.
    pub(crate) fn is_last_of_stream(&self) -> bool {
        matches!(&self.stream, Some(BoundStream::Shared(stream, _)) if Arc::strong_count(stream) == 1)
    }

    pub(crate) fn stream(&self) -> Option<CUstream> {
        self.stream.as_ref().map(BoundStream::raw)
    }

    /// The stream that may still use the memory for an earlier holder.
    pub(crate) fn holder(&self) -> Option<CUstream> {
        self.earlier_holder.as_ref().map(BoundStream::raw)
    }

    fn of(stream: Option<BoundStream>) -> Self {
        let mut binding = Self::default();
        binding.stream = stream;
        binding
    }

    /// The binding of memory that the device has finished with.
    pub(crate) fn immediate() -> Self {
        let mut binding = Self::default();
        binding.immediate = true;
        binding
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
            self.record_reader(stream.context);
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

    /// Binds to a stream. Returns what keeps the stream before alive.
    pub(crate) fn bind(&mut self, stream: BoundStream) -> Self {
        let rebound = self.stream.is_some() && !self.is_bound_to(stream.raw());
        self.used_elsewhere |= rebound;
        if std::mem::take(&mut self.reused) {
            self.earlier_holder = Some(stream.clone());
        }
        Self::of(self.stream.replace(stream))
    }

    /// Ends the binding to a stream whose work has finished, unless it is to another by now. Returns what keeps the stream
    /// alive.
    pub(crate) fn unbind(&mut self, finished: Option<CUstream>) -> Self {
        if self.stream() != finished {
            return Self::default();
        }
        Self::of(self.stream.take())
    }

    /// Forgets that a stream may still use the memory for an earlier holder, once it has finished. Returns what keeps it alive.
    pub(crate) fn finish_holder(&mut self, finished: Option<CUstream>) -> Self {
        let is_finished = |earlier: &mut BoundStream| finished.is_some_and(|raw| is_same_stream(raw, earlier.raw()));
        Self::of(self.earlier_holder.take_if(is_finished))
    }

    /// Records that a stream of another context is about to use the memory.
    pub(crate) fn record_reader(&mut self, context: Context) {
        self.used_elsewhere = true;
        match self.readers.iter_mut().find(|reader| reader.context == context) {
            Some(reader) => reader.times += 1,
            None => self.readers.push(Reader { context, times: 1, finished: 0 }),
        }
    }

    /// The other contexts that a write must not overtake, and their numbers of reads for
    /// [`finish_readers`](Self::finish_readers).
    pub(crate) fn unfinished_readers(&self) -> Vec<(Context, u64)> {
        let unfinished = self.readers.iter().filter(|reader| reader.times > reader.finished);
        unfinished.map(|reader| (reader.context, reader.times)).collect()
    }

    /// Records that other contexts have finished their reads so far.
    pub(crate) fn finish_readers(&mut self, finished: &[(Context, u64)]) {
        for &(context, times) in finished {
            let found = self.readers.iter_mut().find(|reader| reader.context == context);
            if let Some(reader) = found {
                reader.finished = reader.finished.max(times);
            }
        }
    }

    /// Records a launch that is neither ordered nor recorded, since the driver refused.
    pub(crate) fn record_lost_launch(&mut self) {
        (self.used_elsewhere, self.lost_launch) = (true, true);
    }

    /// Whether there was a launch that is not recorded. The caller waits for the context.
    pub(crate) fn take_lost_launch(&mut self) -> bool {
        std::mem::take(&mut self.lost_launch)
    }

    /// Records that uses of other streams could not be joined into the bound one.
    pub(crate) fn record_use_elsewhere(&mut self) {
        self.used_elsewhere = true;
    }

    /// Records a use of the legacy default stream, which no event will follow, if it need not wait for any other: the case of
    /// programs with one stream. Whether that is so.
    pub(crate) fn record_sole_use(&mut self, stream: CUstream, access: Access) -> bool {
        let awaits_readers =
            access == Access::Write && self.readers.iter().any(|reader| reader.times > reader.finished);
        if awaits_readers
            || self.lost_launch
            || self.earlier_holder.as_ref().is_some_and(|earlier| !is_same_stream(stream, earlier.raw()))
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

    /// The uses without an event that one on `stream`, or on another context's or an unknown one if that is none, must not
    /// overtake. The caller records them, and then passes them to [`forget_recorded`](Self::forget_recorded): until then every
    /// thread finds them.
    pub(crate) fn unrecorded_before(&self, stream: Option<CUstream>, access: Access) -> Option<Unrecorded> {
        let on_legacy = stream.is_some_and(is_legacy);
        let legacy = self.unrecorded.filter(|earlier| earlier.conflicts_with(access) && !on_legacy);
        let is_other = |earlier: &&BoundStream| !stream.is_some_and(|stream| is_same_stream(stream, earlier.raw()));
        let holder = self.earlier_holder.as_ref().filter(is_other);
        if legacy.is_none() && holder.is_none() {
            return None;
        }
        Some(Unrecorded {
            legacy,
            uses: self.unrecorded_uses,
            holder: holder.map(|stream| Self::of(Some(stream.clone()))),
        })
    }

    /// Forgets the earlier holder, when the memory is free. Returns what keeps its stream alive.
    pub(crate) fn end(&mut self) -> Self {
        Self::of(self.earlier_holder.take())
    }

    /// Forgets uses that were recorded, unless there have been more.
    pub(crate) fn forget_recorded(&mut self, recorded: &Unrecorded) {
        if recorded.legacy.is_some() && recorded.uses == self.unrecorded_uses {
            self.unrecorded = None;
        }
        if recorded.holder.is_some() {
            self.earlier_holder = None;
        }
    }

    /// The other contexts whose work the release waits for besides that of the memory's.
    pub(crate) fn readers(&self) -> Vec<Context> {
        let readers = if self.immediate { &[] } else { &*self.readers };
        readers.iter().map(|reader| reader.context).collect()
    }

    /// Whether a raw stream may still use the memory for an earlier holder, and may go once the memory is bound to `stream`.
    pub(crate) fn must_finish_before(&self, stream: &BoundStream) -> bool {
        let raw = matches!(self.earlier_holder, Some(BoundStream::Raw(_)));
        raw && !self.is_bound_to(stream.raw())
    }

    /// The uses of the legacy default stream that no event follows yet.
    pub(crate) fn unrecorded(&self) -> Option<Access> {
        self.unrecorded
    }

    /// Waits for the bound stream, if there is one, and for the one that may still use the memory for an earlier holder.
    pub(crate) fn synchronize(&self, context: Context) -> Result<()> {
        let (bound, earlier) = (self.stream(), self.holder());
        let earlier = earlier.filter(|&earlier| !self.is_bound_to(earlier));
        [bound, earlier].into_iter().flatten().try_for_each(|stream| {
            // SAFETY: the stream is live for as long as the memory is bound to it; one of an earlier holder is kept alive here,
            // unless it is bound as well.
            context.run(|| unsafe { cuda()?.stream_synchronize(stream) })
        })
    }

    /// An event after the work that was submitted to the bound stream, or to the legacy default stream if none is
    /// bound. The memory's context must be current.
    pub(crate) fn record(&self) -> Result<Event> {
        let stream = self.stream.as_ref().map_or(std::ptr::null_mut(), BoundStream::raw);
        // SAFETY: the stream is live for as long as the memory is bound to it, and its context is current.
        unsafe { Event::record(stream) }
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

impl Drop for Binding {
    fn drop(&mut self) {
        for stream in [self.stream.take(), self.earlier_holder.take()].into_iter().flatten() {
            let BoundStream::Shared(stream, context) = stream else { continue };
            if process::is_forked() {
                // The stream is the parent's.
                let _ = ManuallyDrop::new(stream);
            } else if let Some(last) = Arc::into_inner(stream) {
                destroy(last, context);
            }
        }
    }
}
