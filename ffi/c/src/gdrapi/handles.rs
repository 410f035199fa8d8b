//! Handles of pinned memory, and the `gdr_t` that each belongs to.
//!
//! A handle is a number, never an address, so that one that is not valid any more is noticed. Slots live as long as the process:
//! a copy reads its slot without a lock. As in gdrcopy, memory must not be unpinned while another thread copies. Everything else
//! uses pins under the lock, under which alone they change: a handle may be unpinned meanwhile.
//!
//! A map behind a `RwLock` is simpler. Its lookup takes 5.3 ns (EPYC, one thread, four entries; behind a `Mutex` 4.6 ns) where
//! the slot is two loads, and all threads write its lock word; a copy of 8 bytes takes 2.1 to 2.4 ns more than a region's.
#![expect(unsafe_code, reason = "reads slots without a lock")]

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::NONE;
use super::boundary::{Outcome, Refusal, invalid};
use super::pin::Pin;
use crate::boundary::lock;

/// The low bits of a handle are the slot's index, the others a number that no other handle of the process has.
const INDEX_BITS: u32 = 18;
/// Handles at a time. Slots that were never used take no memory.
const SLOTS: usize = 1 << INDEX_BITS;

/// One pinned range.
#[derive(Debug)]
struct Slot {
    /// The handle, or 0 while the slot is vacant.
    handle: AtomicU64,
    /// The pin of [`State::pins`] while it is mapped, else null.
    mapped: AtomicPtr<Pin>,
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { handle: AtomicU64::new(0), mapped: AtomicPtr::new(ptr::null_mut()) } }; SLOTS];
static STATE: Mutex<State> =
    Mutex::new(State { next: 1, vacant: Vec::new(), used: 0, open: BTreeSet::new(), pins: BTreeMap::new() });

/// What needs the lock.
#[derive(Debug)]
struct State {
    /// The next number of a handle or of a `gdr_t`.
    next: u64,
    vacant: Vec<usize>,
    /// Slots that were ever used.
    used: usize,
    open: BTreeSet<u64>,
    /// The handles of each `gdr_t`, what they pin, and its `gdr_mapping_type_t`.
    pins: BTreeMap<(u64, u64), (Arc<Pin>, u8)>,
}

/// Works on the state under the lock: `work` must not wait, print, nor call the drivers.
fn with_state<T>(work: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    match lock(&STATE) {
        Some(mut state) => work(&mut state),
        None => Err(Refusal::Told(libc::EAGAIN, "another thread of the parent was using gdrapi at the fork")),
    }
}

const NOT_PINNED: Refusal = invalid("the handle is not that of memory that is pinned by this gdr_t");

/// The index of a handle's slot.
#[inline]
fn index(handle: u64) -> usize {
    usize::try_from(handle).expect("64 bits") & (SLOTS - 1)
}

/// The slot of a handle, if it has one. No handle, 0, has none: it is in vacant slots, which the next handle may take.
#[inline]
fn slot(handle: u64) -> Option<&'static Slot> {
    let slot = &TABLE[index(handle)];
    (handle != 0 && slot.handle.load(Ordering::Acquire) == handle).then_some(slot)
}

/// The mapped memory of a handle, for a copy.
///
/// # Safety
///
/// The handle must not be unpinned while the reference lives.
#[inline]
pub(crate) unsafe fn mapped<'a>(handle: u64) -> Option<&'a Pin> {
    let pin = NonNull::new(slot(handle)?.mapped.load(Ordering::Acquire))?;
    // SAFETY: live until the handle is unpinned.
    Some(unsafe { pin.as_ref() })
}

/// Works on the pinned memory of a handle of this `gdr_t`, and on its mapping, under the lock: `work` must not wait, print, nor
/// call the drivers. What does takes a reference of its own along.
pub(crate) fn with_pinned<T>(g: u64, handle: u64, work: impl FnOnce(&Arc<Pin>, &mut u8) -> Outcome<T>) -> Outcome<T> {
    with_state(|state| {
        state.check(g)?;
        let (pin, mapping) = state.pins.get_mut(&(g, handle)).ok_or(NOT_PINNED)?;
        let slot = slot(handle).ok_or(NOT_PINNED)?;
        let done = work(pin, mapping);
        let mapped = if *mapping == NONE { ptr::null_mut() } else { Arc::as_ptr(pin).cast_mut() };
        slot.mapped.store(mapped, Ordering::Release);
        done
    })
}

impl State {
    /// Fails unless `g` is open.
    fn check(&self, g: u64) -> Outcome {
        if self.open.contains(&g) { Ok(()) } else { Err(invalid("the gdr_t is not open")) }
    }

    /// Takes memory out of its slot. It is unpinned where the result is dropped, which must be without the lock: a drop may call
    /// the drivers.
    fn remove(&mut self, g: u64, handle: u64) -> Option<Arc<Pin>> {
        let (pin, _) = self.pins.remove(&(g, handle))?;
        if let Some(slot) = slot(handle) {
            // In this order: no slot without a handle has a pin, not even for a moment.
            slot.mapped.store(ptr::null_mut(), Ordering::Release);
            slot.handle.store(0, Ordering::Release);
        }
        self.vacant.push(index(handle));
        Some(pin)
    }

    /// The index of a free slot.
    fn take_slot(&mut self) -> Outcome<usize> {
        if let Some(index) = self.vacant.pop() {
            return Ok(index);
        }
        if self.used == SLOTS {
            return Err(Refusal::Told(libc::ENOMEM, "too many handles are in use"));
        }
        self.used += 1;
        Ok(self.used - 1)
    }
}

/// Opens a `gdr_t`.
pub(crate) fn open() -> Outcome<u64> {
    with_state(|state| {
        let g = state.next;
        state.next += 1;
        state.open.insert(g);
        Ok(g)
    })
}

/// Fails unless `g` is open.
pub(crate) fn check(g: u64) -> Outcome {
    with_state(|state| state.check(g))
}

/// Closes a `gdr_t` and unpins all memory that is still pinned through it.
pub(crate) fn close(g: u64) -> Outcome {
    let pins: Vec<_> = with_state(|state| {
        state.check(g)?;
        state.open.remove(&g);
        let handles: Vec<u64> = state.pins.range((g, 0)..=(g, u64::MAX)).map(|(&(_, handle), _)| handle).collect();
        Ok(handles.into_iter().filter_map(|handle| state.remove(g, handle)).collect())
    })?;
    drop(pins);
    Ok(())
}

/// Makes a handle of pinned memory.
pub(crate) fn add(g: u64, pin: Pin) -> Outcome<u64> {
    // Dropped here on a refusal: without the lock, since a drop may call the drivers.
    let pin = Arc::new(pin);
    with_state(|state| {
        state.check(g)?;
        let index = state.take_slot()?;
        let handle = state.next << INDEX_BITS | index as u64;
        state.next += 1;
        TABLE[index].handle.store(handle, Ordering::Release);
        state.pins.insert((g, handle), (Arc::clone(&pin), NONE));
        Ok(handle)
    })
}

/// Unpins memory.
pub(crate) fn unpin(g: u64, handle: u64) -> Outcome {
    let pin = with_state(|state| {
        state.check(g)?;
        state.remove(g, handle).ok_or(NOT_PINNED)
    })?;
    drop(pin);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_handle_has_no_slot_also_where_one_is_vacant() {
        // SAFETY: no handle is unpinned.
        assert!(slot(0).is_none() && unsafe { mapped(0) }.is_none());
    }
}
