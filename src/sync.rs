//! [`RefCount`], [`TryLock`], [`LazyBox`], [`SingleFlight`] and [`get_or_try_init`].
//!
//! loom checks the first three.
#![expect(unsafe_code, reason = "reaches a value by one thread at a time")]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::loom::{AtomicBool, AtomicPtr, AtomicU32, MutPtr, Ordering, UnsafeCell, yield_now};

/// A count of references, 0 while there are none. Once it is published, a reader without a reference may add one.
#[derive(Debug)]
pub(crate) struct RefCount(AtomicU32);

/// The bit beside the count that says that it is published.
const PUBLISHED: u32 = 1 << 31;

impl RefCount {
    #[inline]
    pub(crate) fn new(count: u32) -> Self {
        Self(AtomicU32::new(count))
    }

    /// `add` aborts above this. The rest up to [`PUBLISHED`] is more than other threads can add before it has.
    const LIMIT: u32 = PUBLISHED / 2;

    /// Counts one reference, unpublished, where there was none.
    #[inline]
    pub(crate) fn start(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Whether the caller's reference is the only one. Then what the others did before they went is visible. It stays the
    /// only one unless the count is published.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.0.load(Ordering::Acquire) & !PUBLISHED == 1
    }

    /// Lets [`try_add`](Self::try_add) add references, until the count is [withdrawn](Self::withdraw) or started again. The
    /// caller holds a reference.
    #[inline]
    pub(crate) fn publish(&self) {
        if self.0.load(Ordering::Relaxed) & PUBLISHED == 0 {
            // Release: a thread that adds a reference sees what was done before.
            self.0.fetch_or(PUBLISHED, Ordering::Release);
        }
    }

    /// Ends the publication if the caller's reference is the only one. Returns true if it is: then it stays the only
    /// one, and what the others did before they went is visible.
    #[inline]
    pub(crate) fn withdraw(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            1 => true,
            word if word == PUBLISHED | 1 => {
                self.0.compare_exchange(word, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            }
            _ => false,
        }
    }

    /// Adds a reference for a caller who holds none. Fails unless the count is published and more than 0.
    pub(crate) fn try_add(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & PUBLISHED == 0 || word == PUBLISHED || word & !PUBLISHED > Self::LIMIT {
                return false;
            }
            match self.0.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Adds a reference. The caller holds one.
    pub(crate) fn add(&self) {
        // Relaxed: a new holder gets its reference from the caller.
        if self.0.fetch_add(1, Ordering::Relaxed) & !PUBLISHED > Self::LIMIT {
            std::process::abort();
        }
    }

    /// Removes the caller's reference. Returns true if it was the last: then what the others did before is visible.
    #[inline]
    pub(crate) fn remove(&self) -> bool {
        if self.0.load(Ordering::Acquire) == 1 {
            // Unpublished: no other thread looks at the count any more.
            self.0.store(0, Ordering::Relaxed);
            return true;
        }
        self.0.fetch_sub(1, Ordering::AcqRel) & !PUBLISHED == 1
    }
}

/// A value that one thread uses at a time: a spin lock whose owner never spins.
#[derive(Debug)]
pub(crate) struct TryLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the thread that set `locked` alone, which may be any thread if `T` may be sent.
unsafe impl<T: Send> Sync for TryLock<T> {}

/// The value while it is locked.
#[derive(Debug)]
pub(crate) struct Locked<'a, T> {
    value: MutPtr<T>,
    // After the value: a drop unlocks.
    _unlock: Unlock<'a>,
}

#[derive(Debug)]
struct Unlock<'a>(&'a AtomicBool);

impl Drop for Unlock<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next holder sees what was done to the value.
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value outlives the lock, and only the holder of the lock reaches it.
        self.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and this is borrowed exclusively.
        self.value.with(|value| unsafe { &mut *value })
    }
}

impl<T> TryLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value; none while it is locked, by this thread or another.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, T>> {
        // Acquire: what the last holder did to the value is visible.
        if self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        let _unlock = Unlock(&self.locked);
        Some(Locked { value: self.value.get_mut(), _unlock })
    }

    /// Locks the value, spinning while another thread holds it: for nanoseconds, since no holder calls out.
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        loop {
            if let Some(locked) = self.try_lock() {
                return locked;
            }
            yield_now();
        }
    }
}

/// A value on the heap, made when it is first wanted.
#[derive(Debug)]
pub(crate) struct LazyBox<T>(AtomicPtr<T>, PhantomData<Option<Box<T>>>);

impl<T> Default for LazyBox<T> {
    fn default() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }
}

impl<T> LazyBox<T> {
    /// Whether there is no value. Another thread may be making one.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }

    /// The value, if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire: what was done to make the value is visible.
        // SAFETY: null, or a box that stays until `take`, which cannot be called while this is borrowed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Takes the value.
    pub(crate) fn take(&mut self) -> Option<Box<T>> {
        let value = NonNull::new(self.0.load(Ordering::Relaxed))?;
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: `get_or_default` made it from a box, and nothing refers to it: this is borrowed exclusively.
        Some(unsafe { Box::from_raw(value.as_ptr()) })
    }
}

// Send and Sync: one thread may make the value, others use it and another drop it.
impl<T: Default + Send + Sync> LazyBox<T> {
    /// The value. Of several that threads make at once, the first stays.
    pub(crate) fn get_or_default(&self) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let mine = Box::into_raw(Box::<T>::default());
        // Release: a thread that gets the value sees what was done to make it. Acquire: so does this one of another's.
        let result = self.0.compare_exchange(ptr::null_mut(), mine, Ordering::Release, Ordering::Acquire);
        if result.is_err() {
            // SAFETY: made above, and not shared: another thread was faster.
            drop(unsafe { Box::from_raw(mine) });
        }
        // SAFETY: a box, as in `get`.
        unsafe { &*result.map_or_else(|theirs| theirs, |_| mine) }
    }
}

impl<T> Drop for LazyBox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The value of a cell, made by `make` if there is none. Of several that threads make at once, the first stays; the others are
/// dropped.
pub(crate) fn get_or_try_init<T, E>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// Lets one thread do what several need, while the others wait for it.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight {
    thread: Mutex<Option<ThreadId>>,
    done: Condvar,
}

/// Returned by `begin`. `taken` is false if the wait timed out, or this thread has the turn already: then a drop does
/// nothing.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    owner: &'a SingleFlight,
    taken: bool,
}

impl SingleFlight {
    /// No thread waits for longer: the one at work may be in a logger, and that logger wait for this thread.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Waits for the thread at work, unless that is this thread, whose logger has called back.
    pub(crate) fn begin(&self) -> Flight<'_> {
        crate::lock::before_wait();
        let me = thread::current().id();
        let other = |thread: &mut Option<ThreadId>| thread.is_some_and(|thread| thread != me);
        let waited = self.done.wait_timeout_while(self.lock(), Self::PATIENCE, other);
        let (mut thread, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let taken = thread.is_none();
        if taken {
            *thread = Some(me);
        }
        Flight { owner: self, taken }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if self.taken {
            *self.owner.lock() = None;
            self.owner.done.notify_one();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
