//! The binding of a chunk, shared between threads, and the order of its uses through cudarc.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use crate::driver::context::Context;
use crate::driver::fork;
use crate::driver::{Handle, PER_THREAD_STREAM};
use crate::lock::{Lock, LockGuard};
use crate::stream::DefaultStream;
use crate::stream::binding::{Binding, BoundStream, DropPolicy};
use crate::stream::order::{Access, StreamOrder, is_legacy};
use crate::sync::{LazyBox, get_or_try_init};
use crate::{Error, Result, StreamRef};

/// A [`Binding`] shared between threads, and the order of uses through cudarc.
#[derive(Debug, Default)]
pub(crate) struct SharedBinding {
    binding: Lock<Binding>,
    default_stream: OnceLock<Arc<DefaultStream>>,
    order: OnceLock<StreamOrder>,
}

impl SharedBinding {
    /// A copy of the binding. In a forked child, the binding at the fork, or the default if a thread of the parent held
    /// the lock then.
    pub(super) fn get(&self) -> Binding {
        if fork::is_forked() {
            return self.binding.try_lock().map(|binding| binding.clone()).unwrap_or_default();
        }
        self.lock().clone()
    }

    /// The binding of memory that is free.
    fn into_inner(self) -> Binding {
        let Self { binding, order, .. } = self;
        let mut binding = binding.into_inner();
        drop(binding.end());
        if binding.policy() == DropPolicy::WaitForStream
            && let (Some(order), Some(stream)) = (order.get(), binding.stream())
        {
            // Kernels may have been launched on other streams, which cudarc does not tell; on the default stream perhaps
            // without an event.
            let unrecorded = binding.unrecorded().filter(|_| !is_legacy(stream));
            // SAFETY: the default stream lives as long as its context.
            let recorded = unrecorded.map_or(Ok(()), |access| unsafe { order.record_earlier(ptr::null_mut(), access) });
            // SAFETY: the stream is live for as long as the memory is bound to it.
            if recorded.and_then(|()| unsafe { order.finish_on(stream) }).is_err() {
                binding.record_use_elsewhere();
            }
        }
        binding
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Binding) -> T) -> T {
        change(&mut self.lock())
    }

    /// Binds to a stream of `context`.
    pub(super) fn bind(&self, stream: &Arc<CudaStream>, context: Context) -> Result<()> {
        if stream.context().cu_ctx() != context.raw() {
            return Err(Error::ForeignStream);
        }
        self.set(BoundStream::shared(stream.clone(), context), context)
    }

    /// Binds to a stream of `context`.
    ///
    /// # Safety
    ///
    /// `stream` must be live, and stay so until the memory is freed or bound to another stream, and calls on other threads that
    /// began before have returned: they use a copy of the binding.
    pub(super) unsafe fn bind_raw(&self, stream: StreamRef, context: Context) -> Result<()> {
        self.set(BoundStream::Raw(Handle(stream.raw())), context)
    }

    fn set(&self, stream: BoundStream, context: Context) -> Result<()> {
        if stream.raw().addr() == PER_THREAD_STREAM {
            return Err(Error::PerThreadStream);
        }
        if self.lock().must_finish_before(&stream) {
            let finished = self.get();
            finished.synchronize(context)?;
            // The caller may destroy it from now on.
            let previous_user = self.lock().finish_previous_user(finished.stream());
            drop(previous_user);
        }
        let before = self.lock().bind(stream);
        // Without the lock: dropping a stream may call the driver.
        drop(before);
        Ok(())
    }

    /// Waits for the bound stream, if there is one, and ends the binding.
    pub(super) fn unbind(&self, context: Context) -> Result<()> {
        let waited_for = self.get();
        waited_for.synchronize(context)?;
        // Another thread may have bound the memory to another stream meanwhile.
        let before = self.lock().unbind(waited_for.stream());
        let previous_user = self.lock().finish_previous_user(waited_for.previous_user());
        // Without the lock: dropping the last reference to a stream calls the driver.
        drop((before, previous_user));
        Ok(())
    }

    /// The order of uses through cudarc, if anything was recorded in it.
    pub(crate) fn known_order(&self) -> Option<&StreamOrder> {
        self.order.get()
    }

    /// [`Binding::record_sole_use`], unless there is a [`StreamOrder`], which others may have begun to use. Returns
    /// true if the use was recorded.
    pub(crate) fn record_sole_use(&self, stream: CUstream, access: Access) -> bool {
        self.change(|binding| self.known_order().is_none() && binding.record_sole_use(stream, access))
    }

    /// The order of uses through cudarc, made by `make` if need be.
    pub(crate) fn order(&self, make: impl FnOnce() -> Option<StreamOrder>) -> Option<&StreamOrder> {
        get_or_try_init(&self.order, || make().ok_or(())).ok()
    }

    /// The default stream of the context, made by `make` if need be.
    pub(crate) fn default_stream<E>(
        &self,
        make: impl FnOnce() -> std::result::Result<Arc<DefaultStream>, E>,
    ) -> std::result::Result<&Arc<DefaultStream>, E> {
        get_or_try_init(&self.default_stream, make)
    }

    /// Waits for the other contexts that were recorded to use the memory.
    pub(crate) fn finish_other_contexts(&self) -> Result<()> {
        let others = self.lock().unfinished_other_contexts();
        others.iter().try_for_each(|(other, _)| other.finish())?;
        self.lock().finish_other_contexts(&others);
        Ok(())
    }

    /// Waits for the launches in the memory's context that have no event. Every thread finds them until then.
    pub(crate) fn finish_launches(&self, context: Context) -> Result<()> {
        let Some(launches) = self.lock().unfinished_launches() else { return Ok(()) };
        context.finish()?;
        self.lock().finish_launches(launches);
        Ok(())
    }

    fn lock(&self) -> LockGuard<'_, Binding> {
        self.binding.lock()
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
    use crate::driver::LEGACY_STREAM;

    /// A stream's handle that no driver is asked about.
    fn stream(address: usize) -> CUstream {
        ptr::without_provenance_mut(address)
    }

    fn bind(binding: &LazyBinding, address: usize) {
        binding.shared().change(|binding| drop(binding.bind(BoundStream::Raw(Handle(stream(address))))));
    }

    fn bound_to(address: usize) -> LazyBinding {
        let binding = LazyBinding::default();
        bind(&binding, address);
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
        bind(&binding, 64);
        assert_eq!(policy(&binding), DropPolicy::WaitForStream);
        bind(&binding, 128);
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
        let text = format!("{binding:?}");
        assert!(text.contains("immediate: true") && binding.has_unfinished_copy(), "{text}");
    }
}
