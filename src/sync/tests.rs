//! `sync` on threads of the system, for Miri and ThreadSanitizer (`cargo xtask sanitize`), too.

use std::sync::atomic::AtomicUsize;

use super::*;

const THREADS: usize = 4;

/// A value that counts its references, and counts its drops at `ends`.
struct Counted<'a> {
    refs: RefCount,
    ends: &'a AtomicUsize,
}

/// A reference to one, as [`ChunkRef`](crate::chunk::ChunkRef) is to a chunk.
struct Ref<'a>(*mut Counted<'a>);

// SAFETY: a pointer to what is counted atomically, and may be sent and shared.
unsafe impl Send for Ref<'_> {}

impl<'a> Ref<'a> {
    fn new(ends: &'a AtomicUsize) -> Self {
        Self(Box::into_raw(Box::new(Counted { refs: RefCount::new(1), ends })))
    }

    fn refs(&self) -> &RefCount {
        // SAFETY: the reference keeps the value.
        unsafe { &(*self.0).refs }
    }
}

impl Clone for Ref<'_> {
    fn clone(&self) -> Self {
        self.refs().add();
        Self(self.0)
    }
}

impl Drop for Ref<'_> {
    fn drop(&mut self) {
        if self.refs().remove() {
            // SAFETY: it was a box, and this was the last reference.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.ends.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_last_of_many_references_ends_the_value_once() {
    let ends = AtomicUsize::new(0);
    let first = Ref::new(&ends);
    assert!(first.refs().is_one());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let mine = first.clone();
            scope.spawn(move || {
                let another = mine.clone();
                drop(mine);
                assert_eq!(another.refs().0.load(Ordering::Relaxed).min(1), 1);
            });
        }
        drop(first);
    });
    assert_eq!(ends.load(Ordering::Relaxed), 1);
}

#[test]
fn one_thread_at_a_time_has_the_value_of_a_lock() {
    let lock = TryLock::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..20 {
                    *lock.lock() += 1;
                }
            });
        }
    });
    let value = lock.lock();
    assert!(lock.try_lock().is_none(), "locked twice");
    assert_eq!(*value, THREADS * 20);
    drop(value);
    assert!(lock.try_lock().is_some());
}

#[test]
fn a_value_that_is_taken_from_a_lazy_box_leaves_it_empty() {
    let mut lazy = LazyBox::<Mutex<u32>>::default();
    assert!(lazy.is_empty() && lazy.get().is_none() && lazy.take().is_none());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| *lazy.get_or_default().lock().unwrap_or_else(PoisonError::into_inner) += 1);
        }
    });
    assert!(!lazy.is_empty());
    let taken = lazy.take().map(|value| value.into_inner().unwrap_or_else(PoisonError::into_inner));
    assert_eq!((taken, lazy.is_empty()), (u32::try_from(THREADS).ok(), true));
    assert!(lazy.get_or_default().lock().is_ok_and(|value| *value == 0));
}

#[test]
fn the_thread_at_work_does_not_wait_for_itself_and_others_wait_for_it() {
    let (flight, done) = (SingleFlight::default(), AtomicBool::new(false));
    let working = flight.begin();
    assert!(working.taken && !flight.begin().taken);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let turn = flight.begin();
            // Without a turn if this took longer than anybody waits.
            !turn.taken || done.load(Ordering::Relaxed)
        });
        done.store(true, Ordering::Relaxed);
        drop(working);
        assert!(other.join().is_ok_and(|waited| waited), "went before the thread at work had finished");
    });
}
