//! Tables of a layer's instances and devices, keyed by the dispatch word of a handle.
#![expect(unsafe_code, reason = "reads the first word of handles")]

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use ash::vk::Handle;

/// Values by dispatch word. Null has none.
pub(crate) struct Tables<T>(RwLock<BTreeMap<usize, Arc<T>>>);

impl<T> Tables<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// # Safety
    /// The handle is a live instance or device.
    pub(crate) unsafe fn insert(&self, handle: impl Handle, value: T) {
        // SAFETY: the caller's promise.
        if let Some(key) = unsafe { dispatch_key(handle) } {
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::new(value));
        }
    }

    /// # Safety
    /// The handle is null or live, and dispatchable.
    pub(crate) unsafe fn get(&self, handle: impl Handle) -> Option<Arc<T>> {
        // SAFETY: the caller's promise.
        let key = unsafe { dispatch_key(handle) }?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).map(Arc::clone)
    }

    /// Removes the value of an object before it is destroyed, since its address may be reused afterwards.
    ///
    /// # Safety
    /// The handle is null or a live instance or device.
    pub(crate) unsafe fn remove(&self, handle: impl Handle) -> Option<Arc<T>> {
        // SAFETY: the caller's promise.
        let key = unsafe { dispatch_key(handle) }?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
    }

    /// The number of values that satisfy a condition.
    pub(crate) fn count(&self, of_kind: impl Fn(&T) -> bool) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().filter(|value| of_kind(value)).count()
    }
}

/// The first word of a dispatchable handle: the loader's dispatch table. An instance and its physical devices share
/// one, as do a device and its queues. Null has none.
///
/// # Safety
/// The handle is null or live, and dispatchable.
unsafe fn dispatch_key(handle: impl Handle) -> Option<usize> {
    let address = usize::try_from(handle.as_raw()).ok()?;
    // SAFETY: a dispatchable handle is null or a pointer to an object that begins with this word.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).as_ref() }.copied()
}
