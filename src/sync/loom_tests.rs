//! Models of `sync` that loom runs through every interleaving (`cargo xtask sanitize loom`).

use loom::sync::Arc;
use loom::thread;

use super::*;

/// A chunk with two holders: their marks, and what its last holder alone touches.
struct Counted {
    refs: RefCount,
    marks: [AtomicBool; 2],
    content: UnsafeCell<()>,
    taken: AtomicU32,
}

impl Counted {
    fn with_two_holders() -> Arc<Self> {
        let refs = RefCount::new(1);
        refs.add();
        let marks = [(), ()].map(|()| AtomicBool::new(false));
        Arc::new(Self { refs, marks, content: UnsafeCell::new(()), taken: AtomicU32::new(0) })
    }

    fn mark(&self) {
        self.marks.iter().for_each(|mark| mark.store(true, Ordering::Relaxed));
    }

    fn marks(&self) -> [bool; 2] {
        [0, 1].map(|index| self.marks[index].load(Ordering::Relaxed))
    }

    /// Uses the chunk and removes a reference; takes the chunk with the last.
    fn release(&self) {
        self.content.with(|_| ());
        if self.refs.remove() {
            self.content.with_mut(|_| ());
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn spawn<T: 'static>(chunk: &Arc<Counted>, work: impl FnOnce(Arc<Counted>) -> T + 'static) -> thread::JoinHandle<T> {
    let chunk = chunk.clone();
    thread::spawn(move || work(chunk))
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|_| panic!("a thread panicked"))
}

#[test]
fn one_of_several_takes_the_chunk_after_all_others() {
    loom::model(|| {
        let chunk = Counted::with_two_holders();
        let other = spawn(&chunk, |chunk| {
            chunk.refs.add();
            chunk.release();
            chunk.release();
        });
        chunk.release();
        join(other);
        assert_eq!(chunk.taken.load(Ordering::Relaxed), 1);
    });
}

/// The reference is added by way of a borrow of the holder's, and outlives it.
#[test]
fn a_reference_that_a_borrower_added_counts() {
    loom::model(|| {
        let chunk = Counted::with_two_holders();
        assert!(!chunk.refs.remove());
        let borrower = spawn(&chunk, |chunk| {
            chunk.refs.add();
            thread::spawn(move || chunk.release())
        });
        let holder_of_the_new = join(borrower);
        chunk.release();
        join(holder_of_the_new);
        assert_eq!(chunk.taken.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn the_only_holder_sees_the_marks_of_the_others() {
    loom::model(|| {
        let chunk = Counted::with_two_holders();
        // Threads both: the first to be spawned may be through before the other begins.
        let marking = spawn(&chunk, |chunk| {
            chunk.mark();
            chunk.release();
        });
        let looking = spawn(&chunk, |chunk| {
            if chunk.refs.is_one() {
                assert_eq!(chunk.marks(), [true, true]);
            }
            if chunk.refs.remove() {
                assert_eq!(chunk.marks(), [true, true]);
            }
        });
        join(marking);
        join(looking);
    });
}

/// A lookup adds a reference to a chunk that its only holder releases meanwhile.
#[test]
fn a_lookup_gets_the_chunk_or_misses_it_while_the_last_holder_releases_it() {
    loom::model(|| {
        let chunk = Counted::with_two_holders();
        assert!(!chunk.refs.remove());
        chunk.mark();
        chunk.refs.publish();
        let lookup = spawn(&chunk, |chunk| {
            if chunk.refs.try_add() {
                assert_eq!(chunk.marks(), [true, true]);
                chunk.release();
            }
        });
        chunk.release();
        join(lookup);
        assert_eq!(chunk.taken.load(Ordering::Relaxed), 1);
    });
}

/// A pool's fast path reuses a chunk whose publication it could end, without touching the count.
#[test]
fn a_chunk_whose_publication_ended_is_not_found() {
    loom::model(|| {
        let chunk = Counted::with_two_holders();
        assert!(!chunk.refs.remove());
        chunk.refs.publish();
        let lookup = spawn(&chunk, |chunk| {
            if chunk.refs.try_add() {
                chunk.release();
            }
        });
        if chunk.refs.withdraw() {
            chunk.content.with_mut(|_| ());
        } else {
            chunk.release();
        }
        join(lookup);
    });
}

/// A cache, as far as a lock is concerned: what it keeps, and whether it is open.
fn cache(chunks: Vec<u32>) -> Arc<TryLock<(Vec<u32>, bool)>> {
    Arc::new(TryLock::new((chunks, true)))
}

#[test]
fn a_chunk_is_never_in_two_places_and_never_lost() {
    loom::model(|| {
        let lock = cache(vec![1, 2]);
        let owner = thread::spawn({
            let lock = lock.clone();
            move || {
                let chunk = lock.try_lock()?.0.pop()?;
                match lock.try_lock() {
                    Some(mut cache) if cache.1 => cache.0.push(chunk),
                    _ => return Some(chunk),
                }
                None
            }
        });
        let drained = std::mem::take(&mut lock.lock().0);
        let kept = owner.join().unwrap_or_else(|_| panic!("the owner panicked"));
        let rest = std::mem::take(&mut lock.lock().0);
        let mut all: Vec<_> = drained.into_iter().chain(kept).chain(rest).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

#[test]
fn a_cache_that_was_closed_stays_empty() {
    loom::model(|| {
        let lock = cache(Vec::new());
        let owner = thread::spawn({
            let lock = lock.clone();
            move || {
                for chunk in [1, 2] {
                    if let Some(mut cache) = lock.try_lock().filter(|cache| cache.1) {
                        cache.0.push(chunk);
                    }
                }
            }
        });
        *lock.lock() = (Vec::new(), false);
        assert!(owner.join().is_ok(), "the owner panicked");
        assert!(lock.lock().0.is_empty(), "kept after it was closed");
    });
}

/// What a lazy box keeps: made by one thread, changed by another under a lock of its own.
struct Lazy(UnsafeCell<u32>);

// SAFETY: the models read the value only, once it is made.
unsafe impl Send for Lazy {}
// SAFETY: as for `Send`.
unsafe impl Sync for Lazy {}

impl Default for Lazy {
    fn default() -> Self {
        let cell = UnsafeCell::new(0);
        // SAFETY: nobody else has the cell.
        cell.with_mut(|value| unsafe { *value = 7 });
        Self(cell)
    }
}

impl Lazy {
    fn read(&self) -> u32 {
        // SAFETY: nobody writes any more.
        self.0.with(|value| unsafe { *value })
    }
}

#[test]
fn threads_that_make_a_value_at_once_get_the_same_one_whole() {
    loom::model(|| {
        let lazy = Arc::new(LazyBox::<Lazy>::default());
        let other = thread::spawn({
            let lazy = lazy.clone();
            move || {
                let value = lazy.get_or_default();
                assert_eq!(value.read(), 7);
                ptr::from_ref(value).addr()
            }
        });
        let looking = thread::spawn({
            let lazy = lazy.clone();
            move || lazy.get().is_none_or(|value| value.read() == 7)
        });
        let mine = lazy.get_or_default();
        assert_eq!(mine.read(), 7);
        assert_eq!(join(other), ptr::from_ref(mine).addr());
        assert!(join(looking));
    });
}

#[test]
fn threads_that_wait_for_the_lock_hold_it_one_at_a_time() {
    loom::model(|| {
        let lock = Arc::new(TryLock::new(0_u32));
        let visitor = thread::spawn({
            let lock = lock.clone();
            move || *lock.lock() += 1
        });
        *lock.lock() += 1;
        assert!(visitor.join().is_ok(), "a visitor panicked");
        assert_eq!(*lock.lock(), 2);
    });
}
