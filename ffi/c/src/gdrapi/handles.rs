//! Handles of pinned memory, and the `gdr_t` that each belongs to.
//!
//! Both are numbers that the process gives once, never addresses, so that one that is not valid any more is noticed.
#![expect(unsafe_code, reason = "copies use pinned memory without a lock")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::NONE;
use super::boundary::{Outcome, Refusal, invalid, lock};
use super::pin::Pin;

static STATE: Mutex<State> = Mutex::new(State { last: 0, open: BTreeMap::new() });

#[derive(Debug)]
struct State {
    /// The last number that was given.
    last: u64,
    /// What each open `gdr_t` has pinned, by its handle.
    open: BTreeMap<u64, BTreeMap<u64, Arc<Pin>>>,
}

const NOT_OPEN: Refusal = invalid("the gdr_t is not open");
const NOT_PINNED: Refusal = invalid("the handle is not that of memory that is pinned by this gdr_t");
const NOT_MAPPED: Refusal = invalid("the handle is not that of mapped memory");

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// What a `gdr_t` has pinned.
    fn pins(&mut self, g: u64) -> Outcome<&mut BTreeMap<u64, Arc<Pin>>> {
        self.open.get_mut(&g).ok_or(NOT_OPEN)
    }
}

/// The state, locked. No pin is dropped under the lock: that may call the drivers.
fn state() -> Outcome<MutexGuard<'static, State>> {
    Ok(lock(&STATE)?)
}

/// Opens a `gdr_t`.
pub(crate) fn open() -> Outcome<u64> {
    let mut state = state()?;
    let g = state.number();
    state.open.insert(g, BTreeMap::new());
    Ok(g)
}

/// Fails unless `g` is open.
pub(crate) fn check(g: u64) -> Outcome {
    state()?.pins(g).map(drop)
}

/// Closes a `gdr_t` and unpins all memory that is still pinned through it.
pub(crate) fn close(g: u64) -> Outcome {
    let pins = state()?.open.remove(&g).ok_or(NOT_OPEN)?;
    UNPINNED.fetch_add(1, Ordering::Release);
    drop(pins);
    Ok(())
}

/// Makes a handle of pinned memory. Where `g` is not open, the memory is unpinned without the lock: parameters are dropped last.
pub(crate) fn add(g: u64, pin: Pin) -> Outcome<u64> {
    let mut state = state()?;
    let handle = state.number();
    state.pins(g)?.insert(handle, Arc::new(pin));
    Ok(handle)
}

/// The pinned memory of a handle of this `gdr_t`. Another thread may unpin it meanwhile.
pub(crate) fn pinned(g: u64, handle: u64) -> Outcome<Arc<Pin>> {
    state()?.pins(g)?.get(&handle).cloned().ok_or(NOT_PINNED)
}

/// Unpins memory.
pub(crate) fn unpin(g: u64, handle: u64) -> Outcome {
    let pin = state()?.pins(g)?.remove(&handle).ok_or(NOT_PINNED)?;
    UNPINNED.fetch_add(1, Ordering::Release);
    drop(pin);
    Ok(())
}

/// The number of unpins. Each is counted before its memory is dropped, and makes all cached lookups out of date.
static UNPINNED: AtomicU64 = AtomicU64::new(0);

/// A lookup for a copy: [`UNPINNED`] before it, the handle and its pin.
type Found = (u64, u64, *const Pin);

/// An empty place of the cache: [`UNPINNED`] never gets so high.
const NOTHING: Found = (u64::MAX, 0, ptr::null());

thread_local! {
    /// Cache of lookups, each at its handle modulo the length.
    static FOUND: [Cell<Found>; 16] = const { [const { Cell::new(NOTHING) }; 16] };
}

/// The mapped memory of a handle, for a copy. The lock is taken only where this thread has not copied by the handle of late, or
/// memory was unpinned since. Times of a copy of 64 cached bytes:
///
/// | | one thread | four threads, per copy of all |
/// |---|---:|---:|
/// | with this cache | 6 ns | 4 ns at most |
/// | with the lock each time | 8.8 ns | 80 to 120 ns |
///
/// # Safety
///
/// The handle must not be unpinned while the reference lives.
#[inline]
pub(crate) unsafe fn mapped<'a>(handle: u64) -> Outcome<&'a Pin> {
    let unpinned = UNPINNED.load(Ordering::Acquire);
    let index = usize::try_from(handle).expect("64 bits");
    let (then, of, mut pin) = FOUND.with(|found| found[index % found.len()].get());
    if (then, of) != (unpinned, handle) {
        pin = find(handle)?;
        FOUND.with(|found| found[index % found.len()].set((unpinned, handle, pin)));
    }
    // SAFETY: it was pinned when `UNPINNED` was read, and stays so by this function's contract.
    let pin = unsafe { &*pin };
    if pin.mapping.load(Ordering::Relaxed) == NONE { Err(NOT_MAPPED) } else { Ok(pin) }
}

#[cold]
fn find(handle: u64) -> Outcome<*const Pin> {
    state()?.open.values().find_map(|pins| pins.get(&handle)).map(Arc::as_ptr).ok_or(NOT_MAPPED)
}
