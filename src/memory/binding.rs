//! The stream binding of memory: the bound stream, uses on other streams, and the drop policy that follows.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use crate::driver::context::{Context, keeping_current};
use crate::driver::cuda::cuda;
use crate::driver::event::Event;
use crate::driver::process;
use crate::driver::{Handle, LEGACY_STREAM, PER_THREAD_STREAM};
use crate::stream::DefaultStream;
use crate::stream::order::{Access, StreamOrder, is_legacy};
use crate::sync::LazyBox;
use crate::{Error, Result, StreamRef};

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
enum BoundStream {
    /// Kept alive by this reference.
    Shared(Arc<CudaStream>),
    /// Kept alive by the caller.
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

/// Whether two handles name the same stream of one context.
fn is_same_stream(one: CUstream, other: CUstream) -> bool {
    let number = |stream: CUstream| if stream.addr() == LEGACY_STREAM { 0 } else { stream.addr() };
    number(one) == number(other)
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
    /// Whether a pool lent the memory again while the bound stream still used it.
    reused: bool,
    /// Other contexts with streams that read the memory.
    readers: Vec<Context>,
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

    pub(super) fn release_immediately(&mut self) {
        self.immediate = true;
    }

    /// Records that the stream which the memory is bound to next may still use it for an earlier holder.
    pub(super) fn record_reuse(&mut self) {
        self.reused = true;
    }

    /// Whether it holds a reference to its stream.
    pub(crate) const fn keeps_stream(&self) -> bool {
        matches!(self.stream, Some(BoundStream::Shared(_)))
    }

    /// Whether this is the only reference to its stream.
    pub(crate) fn is_last_of_stream(&self) -> bool {
        matches!(&self.stream, Some(BoundStream::Shared(stream)) if Arc::strong_count(stream) == 1)
    }

    pub(crate) fn stream(&self) -> Option<CUstream> {
        self.stream.as_ref().map(BoundStream::raw)
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
    pub(super) fn record_use(&mut self, stream: CUstream) {
        self.used_elsewhere |= !self.is_bound_to(stream);
    }

    /// Records that a failed copy of the copy engine may still use the memory. A request for immediate release, before
    /// or after, does not cover that copy.
    pub(super) fn record_unfinished_copy(&mut self) {
        self.unfinished_copy = true;
    }

    pub(super) const fn has_unfinished_copy(&self) -> bool {
        self.unfinished_copy
    }

    fn is_bound_to(&self, stream: CUstream) -> bool {
        self.stream().is_some_and(|bound| is_same_stream(bound, stream))
    }

    /// Records that a stream of another context is about to read the memory.
    fn record_reader(&mut self, context: Context) {
        self.used_elsewhere = true;
        if !self.readers.contains(&context) {
            self.readers.push(context);
        }
    }

    /// The other contexts whose work the release waits for besides that of the memory's.
    pub(crate) fn readers(&self) -> &[Context] {
        if self.immediate { &[] } else { &self.readers }
    }

    /// Waits for the bound stream, if there is one.
    pub(super) fn synchronize(&self, context: Context) -> Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        // SAFETY: the stream is live for as long as the memory is bound to it.
        context.run(|| unsafe { cuda()?.stream_synchronize(stream.raw()) })
    }

    /// An event after the work that was submitted to the bound stream, or to the legacy default stream if none is
    /// bound. The memory's context must be current.
    pub(crate) fn record(&self) -> Result<Event> {
        let stream = self.stream.as_ref().map_or(std::ptr::null_mut(), BoundStream::raw);
        // SAFETY: the stream is live for as long as the memory is bound to it, and its context is current.
        unsafe { Event::record(stream) }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        if process::is_forked() {
            // The stream is the parent's.
            let _ = ManuallyDrop::new(self.stream.take());
        }
        // Dropping the last reference destroys the stream, for which cudarc makes the stream's context current.
        if let Some(BoundStream::Shared(stream)) = self.stream.take()
            && let Some(last) = Arc::into_inner(stream)
        {
            keeping_current(|| drop(last));
        }
    }
}

/// A [`Binding`] shared between threads, and the order of uses through cudarc.
#[derive(Debug, Default)]
pub(crate) struct SharedBinding {
    binding: Mutex<Binding>,
    default_stream: OnceLock<Arc<DefaultStream>>,
    order: OnceLock<StreamOrder>,
}

impl SharedBinding {
    /// A copy of the binding. In a forked child, the binding at the fork, or the default if a thread of the parent held
    /// the lock then.
    pub(super) fn get(&self) -> Binding {
        if process::is_forked() {
            return self.binding.try_lock().map_or_else(|_| Binding::default(), |binding| binding.clone());
        }
        self.lock().clone()
    }

    /// The binding of memory that is free.
    fn into_inner(self) -> Binding {
        let Self { binding, order, .. } = self;
        let mut binding = binding.into_inner().unwrap_or_else(PoisonError::into_inner);
        if binding.policy() == DropPolicy::WaitForStream
            && let (Some(order), Some(stream)) = (order.get(), binding.stream())
        {
            // Kernels may have been launched on other streams, which cudarc does not tell.
            // SAFETY: the stream is live for as long as the memory is bound to it.
            binding.used_elsewhere = unsafe { order.wait_for_launches(stream) }.is_err();
        }
        binding
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Binding)) {
        change(&mut self.lock());
    }

    /// Binds to a stream of `context`.
    pub(super) fn bind(&self, stream: &Arc<CudaStream>, context: Context) -> Result<()> {
        if stream.context().cu_ctx() != context.raw() {
            return Err(Error::ForeignStream);
        }
        self.set(BoundStream::Shared(stream.clone()))
    }

    /// Binds to a stream of `context`.
    ///
    /// # Safety
    ///
    /// `stream` must be live, and stay so until the memory is freed or bound to another stream.
    pub(super) unsafe fn bind_raw(&self, stream: CUstream, context: Context) -> Result<()> {
        // SAFETY: the stream is live by this method's contract.
        unsafe { StreamRef::in_context(stream, context) }?;
        self.set(BoundStream::Raw(Handle(stream)))
    }

    fn set(&self, stream: BoundStream) -> Result<()> {
        if stream.raw().addr() == PER_THREAD_STREAM {
            return Err(Error::PerThreadStream);
        }
        let before = {
            let mut binding = self.lock();
            let rebound = binding.stream.is_some() && !binding.is_bound_to(stream.raw());
            let used_elsewhere = binding.used_elsewhere || rebound;
            (binding.used_elsewhere, binding.reused) = (used_elsewhere, binding.reused && !rebound);
            Binding::of(binding.stream.replace(stream))
        };
        // Without the lock: dropping a stream may call the driver.
        drop(before);
        Ok(())
    }

    /// Waits for the bound stream, if there is one, and ends the binding.
    pub(super) fn unbind(&self, context: Context) -> Result<()> {
        let waited_for = self.get();
        waited_for.synchronize(context)?;
        let before = {
            let mut binding = self.lock();
            // Another thread may have bound the memory to another stream meanwhile.
            let same = binding.stream() == waited_for.stream();
            binding.reused &= !same;
            if same { binding.stream.take() } else { None }
        };
        // Without the lock: dropping the last reference to a stream calls the driver, and a `Binding` restores the
        // current context afterwards.
        drop(Binding::of(before));
        Ok(())
    }

    /// The order of uses through cudarc, if anything was recorded in it.
    pub(crate) fn known_order(&self) -> Option<&StreamOrder> {
        self.order.get()
    }

    /// The order of uses through cudarc, made by `make` if need be.
    pub(crate) fn order(&self, make: impl FnOnce() -> Option<StreamOrder>) -> Option<&StreamOrder> {
        match self.order.get() {
            Some(order) => Some(order),
            None => {
                let made = make()?;
                Some(self.order.get_or_init(|| made))
            }
        }
    }

    /// The default stream of the context, made by `make` if need be.
    pub(crate) fn default_stream<E>(
        &self,
        make: impl FnOnce() -> std::result::Result<Arc<DefaultStream>, E>,
    ) -> std::result::Result<&Arc<DefaultStream>, E> {
        match self.default_stream.get() {
            Some(stream) => Ok(stream),
            None => {
                let made = make()?;
                Ok(self.default_stream.get_or_init(|| made))
            }
        }
    }

    /// Notes that the legacy default stream is about to use the memory, and that no event will follow.
    pub(crate) fn note_unrecorded(&self, access: Access) {
        self.change(|binding| binding.unrecorded = binding.unrecorded.max(Some(access)));
    }

    /// The earlier uses without an event that one on `stream` must not overtake: each with the stream to record it on. The
    /// caller records them.
    pub(crate) fn take_unrecorded(&self, stream: CUstream, access: Access) -> [Option<(CUstream, Access)>; 2] {
        let mut binding = self.lock();
        let legacy = binding.unrecorded.filter(|earlier| earlier.conflicts_with(access) && !is_legacy(stream));
        if legacy.is_some() {
            binding.unrecorded = None;
        }
        let bound = binding.stream().filter(|_| binding.reused && !binding.is_bound_to(stream));
        binding.reused &= bound.is_none();
        [legacy.map(|access| (ptr::null_mut(), access)), bound.map(|bound| (bound, Access::Write))]
    }

    /// Records that a stream of another context is about to read the memory.
    pub(crate) fn record_reader(&self, context: Context) {
        self.change(|binding| binding.record_reader(context));
    }

    /// Waits for the other contexts that were recorded to read the memory.
    pub(crate) fn finish_readers(&self) -> Result<()> {
        let readers = self.lock().readers.clone();
        readers.iter().try_for_each(|reader| reader.finish())?;
        self.change(|binding| binding.readers.retain(|reader| !readers.contains(reader)));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Binding> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`SharedBinding`] that is allocated on its first change: few chunks of a pool are ever bound.
#[derive(Debug, Default)]
pub(super) struct LazyBinding(LazyBox<SharedBinding>);

impl LazyBinding {
    /// Whether the binding is unchanged since it was made or taken.
    #[inline]
    pub(super) fn is_unset(&self) -> bool {
        self.0.is_empty()
    }

    /// The binding; none while it is unchanged.
    #[inline]
    pub(super) fn known(&self) -> Option<&SharedBinding> {
        self.0.get()
    }

    /// The binding, allocated if necessary, for a change.
    pub(super) fn shared(&self) -> &SharedBinding {
        self.0.get_or_default()
    }

    /// A copy of the binding.
    pub(super) fn get(&self) -> Binding {
        self.known().map(SharedBinding::get).unwrap_or_default()
    }

    /// Takes the binding, and resets it to the default.
    #[inline]
    pub(super) fn take(&mut self) -> Binding {
        self.0.take().map(|binding| binding.into_inner()).unwrap_or_default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ptr;

    use super::*;

    /// A stream's handle that no driver is asked about.
    fn stream(address: usize) -> CUstream {
        ptr::without_provenance_mut(address)
    }

    fn bound_to(address: usize) -> LazyBinding {
        let binding = LazyBinding::default();
        assert!(binding.shared().set(BoundStream::Raw(Handle(stream(address)))).is_ok());
        binding
    }

    fn policy(binding: &LazyBinding) -> DropPolicy {
        binding.get().policy()
    }

    #[test]
    fn memory_that_was_never_bound_waits_for_the_context_and_takes_no_heap() {
        let mut binding = LazyBinding::default();
        assert_eq!((policy(&binding), binding.is_unset()), (DropPolicy::WaitForContext, true));
        assert_eq!(binding.take().policy(), DropPolicy::WaitForContext);
        assert!(binding.known().is_none());
    }

    #[test]
    fn only_uses_by_the_bound_stream_let_the_release_wait_for_it_alone() {
        let binding = bound_to(64);
        binding.shared().change(|binding| binding.record_use(stream(64)));
        assert_eq!(policy(&binding), DropPolicy::WaitForStream);
        binding.shared().change(|binding| binding.record_use(stream(128)));
        assert_eq!(policy(&binding), DropPolicy::WaitForContext);
    }

    #[test]
    fn the_two_names_of_the_legacy_stream_are_one_stream() {
        let binding = bound_to(0);
        binding.shared().change(|binding| binding.record_use(stream(LEGACY_STREAM)));
        assert_eq!(policy(&binding), DropPolicy::WaitForStream);
    }

    #[test]
    fn binding_to_another_stream_makes_the_release_wait_for_the_context() {
        let binding = bound_to(64);
        assert!(binding.shared().set(BoundStream::Raw(Handle(stream(64)))).is_ok());
        assert_eq!(policy(&binding), DropPolicy::WaitForStream);
        assert!(binding.shared().set(BoundStream::Raw(Handle(stream(128)))).is_ok());
        assert_eq!((policy(&binding), binding.get().stream()), (DropPolicy::WaitForContext, Some(stream(128))));
    }

    #[test]
    fn a_request_for_immediate_release_does_not_cover_a_copy_of_ours() {
        let binding = bound_to(64);
        binding.shared().change(Binding::release_immediately);
        assert_eq!(policy(&binding), DropPolicy::Immediate);
        binding.shared().change(Binding::record_unfinished_copy);
        assert_eq!(policy(&binding), DropPolicy::WaitForContext);
    }

    #[test]
    fn what_was_taken_leaves_the_binding_of_new_memory() {
        let mut binding = bound_to(64);
        assert_eq!(binding.take().stream(), Some(stream(64)));
        assert!(binding.is_unset());
        assert_eq!(policy(&binding), DropPolicy::WaitForContext);
    }

    #[test]
    fn threads_that_change_a_new_binding_at_once_change_the_same() {
        let binding = LazyBinding::default();
        std::thread::scope(|scope| {
            scope.spawn(|| binding.shared().change(Binding::release_immediately));
            scope.spawn(|| binding.shared().change(Binding::record_unfinished_copy));
        });
        let binding = binding.get();
        assert!(binding.immediate && binding.has_unfinished_copy());
    }
}
