//! [`StableBox`]: a value whose references outlive moves of the box; and events that are forgotten without a driver call.
#![expect(unsafe_code, reason = "the owner says how long references are valid")]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::CudaEvent;

/// A value at a fixed address. It is not freed by a drop.
#[derive(Debug)]
pub(super) struct StableBox<T>(NonNull<T>);

// SAFETY: it owns the value, as a box does.
unsafe impl<T: Send> Send for StableBox<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for StableBox<T> {}

impl<T> StableBox<T> {
    pub(super) fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    /// # Safety
    ///
    /// The reference must not be used after [`into_box`](Self::into_box), nor while a reference from
    /// [`get_mut`](Self::get_mut) is used.
    pub(super) unsafe fn get<'a>(&self) -> &'a T {
        // SAFETY: by this method's contract.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    ///
    /// The contract of [`get`](Self::get), and no other reference may be used while this one is.
    pub(super) unsafe fn get_mut<'a>(&self) -> &'a mut T {
        // SAFETY: by this method's contract.
        unsafe { &mut *self.0.as_ptr() }
    }

    /// # Safety
    ///
    /// No reference may be used from now on.
    pub(super) unsafe fn into_box(self) -> Box<T> {
        // SAFETY: `new` made it from a box, and this consumes its only owner.
        unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}

/// Forgets an event that CUDA destroyed with its context: its drop would call the driver.
///
/// # Safety
///
/// Nothing may use the event from now on, and there must be another reference to its context.
pub(super) unsafe fn abandon_event(event: StableBox<CudaEvent>) {
    // SAFETY: by this function's contract.
    let event = *unsafe { event.into_box() };
    // SAFETY: the event is forgotten, and there is another reference by this function's contract.
    unsafe { release_context(&event) };
    let _ = ManuallyDrop::new(event);
}

/// Releases the reference of an event to its context.
///
/// # Safety
///
/// The event must be forgotten, and there must be another reference.
pub(super) unsafe fn release_context(event: &CudaEvent) {
    // SAFETY: the pointer comes from a reference that the event will not release itself.
    unsafe { Arc::decrement_strong_count(Arc::as_ptr(event.context())) };
}
