//! A value that one thread uses and others take from now and then.
//!
//! The owner never waits: while a visitor has the value it does without. In the common case it pays no atomic exchange
//! and no fence, only loads and stores. Visitors pay for that with a system call, see [`super::primitives`].
//! `tests/handover` runs this file under loom, with loom's primitives in the place of those.
#![expect(unsafe_code, reason = "shares a value that is reached by one thread at a time")]

use super::primitives::{Arc, AtomicBool, Mutex, Ordering, UnsafeCell, heavy_fence, light_fence, pause};

/// A value that is reached by one thread at a time.
#[derive(Debug)]
struct Value<T>(UnsafeCell<T>);

// SAFETY: sides of a handover reach the value one at a time, and a thread that reaches it has to be allowed to have it.
unsafe impl<T: Send> Sync for Value<T> {}

/// The value, and who has it.
#[derive(Debug)]
struct Shared<T> {
    /// Set by the owner while it has the value.
    busy: AtomicBool,
    /// Set by the visitor whose turn it is, while it waits for the value or has it.
    wanted: AtomicBool,
    value: Value<T>,
    /// Visitors come one at a time.
    visitors: Mutex<()>,
}

/// The owner's side. There is one, for one thread at a time: it cannot be shared, since it holds a `Cell`.
#[derive(Debug)]
pub(crate) struct Owner<T> {
    shared: Arc<Shared<T>>,
    _not_sync: std::marker::PhantomData<std::cell::Cell<()>>,
}

/// Everybody else's side.
#[derive(Debug)]
pub(crate) struct Visitor<T> {
    shared: Arc<Shared<T>>,
}

/// Shares a value.
pub(crate) fn share<T>(value: T) -> (Owner<T>, Visitor<T>) {
    let (busy, wanted) = (AtomicBool::new(false), AtomicBool::new(false));
    let shared = Arc::new(Shared { busy, wanted, value: Value(UnsafeCell::new(value)), visitors: Mutex::new(()) });
    (Owner { shared: shared.clone(), _not_sync: std::marker::PhantomData }, Visitor { shared })
}

/// Ends a turn, also when the work panics.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next one sees what was done to the value.
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Owner<T> {
    /// Runs `work` on the value; gives none while a visitor wants it. Does not wait.
    #[inline]
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let shared = &*self.shared;
        // Only this thread sets it: this is a call from within `work`.
        if shared.busy.load(Ordering::Relaxed) {
            return None;
        }
        shared.busy.store(true, Ordering::Relaxed);
        let turn = Turn(&shared.busy);
        // Either the visitor's next look at `busy` sees the store, or this one's at `wanted` sees the visitor.
        light_fence();
        // Acquire: what the last visitor did to the value is seen.
        if shared.wanted.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: no visitor has the value, and none takes it before the turn ends; the owner's other calls find `busy`.
        let result = shared.value.0.with_mut(|value| work(unsafe { &mut *value }));
        drop(turn);
        Some(result)
    }
}

impl<T> Visitor<T> {
    /// Runs `work` on the value, after whoever has it. Must not be called from within the work of either side.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let shared = &*self.shared;
        let _visit = shared.visitors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.wanted.store(true, Ordering::Relaxed);
        let _turn = Turn(&shared.wanted);
        heavy_fence();
        // Acquire: what the owner did to the value is seen.
        while shared.busy.load(Ordering::Acquire) {
            pause();
        }
        // SAFETY: the owner does not have the value, and takes it no more while it is wanted; visitors come one at a time.
        shared.value.0.with_mut(|value| work(unsafe { &mut *value }))
    }
}

impl<T> Visitor<T> {
    /// Whether both visit the same value.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Visitor<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}
