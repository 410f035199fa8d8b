//! Values side by side in one allocation, which goes with the last of them: each alone on a line of the CPU's cache, and
//! no room between them. An allocator leaves as much room as they take, so that half as many fit the cache.
#![expect(unsafe_code, reason = "manages memory")]

use std::alloc::{self, Layout};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which value of its slab a value is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index(u32);

/// What can be in a slab.
///
/// # Safety
///
/// `index` is the one that the value was made with, always.
pub(crate) unsafe trait Indexed {
    /// Which value of its slab it is.
    fn index(&self) -> Index;
}

/// What stands before the values.
#[repr(C, align(64))]
struct Header {
    /// How many there are that keep the slab: values, and who makes them.
    keepers: AtomicUsize,
    layout: Layout,
}

/// Keeps a slab.
#[derive(Debug)]
struct Keeper(NonNull<Header>);

impl Keeper {
    fn header(&self) -> &Header {
        // SAFETY: the header is there for as long as anybody keeps it.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let layout = self.header().layout;
        // What the others did with their values comes before. A fence would say so for the last one alone, but
        // ThreadSanitizer does not see fences.
        if self.header().keepers.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: it was allocated with this layout, and nobody keeps it any more.
        unsafe { alloc::dealloc(self.0.as_ptr().cast(), layout) }
    }
}

/// Room for values, while they are made.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    keeper: Keeper,
    made: u32,
    room: u32,
    values: PhantomData<T>,
}

impl<T: Indexed> Slab<T> {
    /// The values stand as far apart as the header is long.
    const FITS: () = assert!(size_of::<T>() == size_of::<Header>() && align_of::<T>() <= align_of::<Header>());

    /// Room for so many values, and for one at least. Without memory for them the program ends, as with any of Rust's own
    /// collections.
    pub(crate) fn new(room: u32) -> Self {
        let () = Self::FITS;
        let room = room.max(1);
        let Ok(layout) = Layout::array::<Header>(room as usize + 1) else {
            alloc::handle_alloc_error(Layout::new::<Header>())
        };
        // SAFETY: the layout has room for the header at least.
        let Some(header) = NonNull::new(unsafe { alloc::alloc(layout) }.cast::<Header>()) else {
            alloc::handle_alloc_error(layout)
        };
        // SAFETY: there is room for it.
        unsafe { header.write(Header { keepers: AtomicUsize::new(1), layout }) };
        Self { keeper: Keeper(header), made: 0, room, values: PhantomData }
    }

    /// Makes the next value, which is told where it will stand, in another slab of the same size when there is no room
    /// left.
    pub(crate) fn put(&mut self, make: impl FnOnce(Index, NonNull<T>) -> T) -> Slot<T> {
        if self.made == self.room {
            *self = Self::new(self.room);
        }
        // SAFETY: within the allocation, which has room for so many after the header.
        let place = unsafe { self.keeper.0.add(self.made as usize + 1) }.cast::<T>();
        let value = make(Index(self.made), place);
        // SAFETY: there is room for it, and nothing is there yet.
        unsafe { place.write(value) };
        self.keeper.header().keepers.fetch_add(1, Ordering::Relaxed);
        self.made += 1;
        Slot(place)
    }
}

/// A value of a slab, as a `Box` has one.
pub(crate) struct Slot<T: Indexed>(NonNull<T>);

// SAFETY: it owns its value, and what it shares with others is an atomic count.
unsafe impl<T: Indexed + Send> Send for Slot<T> {}
// SAFETY: as for `Send`; shared, it shows the value alone.
unsafe impl<T: Indexed + Sync> Sync for Slot<T> {}

impl<T: Indexed> Slot<T> {
    /// Makes a pointer of it, which shows the value and nothing else.
    #[inline]
    pub(super) fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).0
    }

    /// The value of a pointer.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), or be where the value was told that it stands, and the value
    /// not have been given here since it was last made a pointer.
    #[inline]
    pub(super) const unsafe fn from_raw(value: NonNull<T>) -> Self {
        Self(value)
    }
}

impl<T: Indexed> Drop for Slot<T> {
    fn drop(&mut self) {
        let Index(index) = self.index();
        // SAFETY: the header is so far before the value with this index.
        let header = unsafe { self.0.cast::<Header>().sub(index as usize + 1) };
        let _keeper = Keeper(header);
        // SAFETY: it was written, is dropped once, and nothing uses it afterwards.
        unsafe { ptr::drop_in_place(self.0.as_ptr()) }
    }
}

impl<T: Indexed> Deref for Slot<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is there for as long as this, which owns it.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Indexed> DerefMut for Slot<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and nobody else reaches it.
        unsafe { self.0.as_mut() }
    }
}

impl<T: Indexed + fmt::Debug> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;

    /// As long as a header.
    #[repr(C, align(64))]
    struct Value {
        index: Index,
        shared: Arc<()>,
    }

    // SAFETY: nothing changes it.
    unsafe impl Indexed for Value {
        fn index(&self) -> Index {
            self.index
        }
    }

    fn fill(room: u32, count: u32, shared: &Arc<()>) -> Vec<Slot<Value>> {
        let mut slab = Slab::new(room);
        (0..count).map(|_| slab.put(|index, _| Value { index, shared: shared.clone() })).collect()
    }

    #[test]
    fn values_stand_side_by_side_on_lines_of_their_own() {
        let places = fill(5, 5, &Arc::new(())).into_iter().map(|slot| slot.0.addr().get()).collect::<Vec<_>>();
        assert!(places[0].is_multiple_of(64), "{places:x?}");
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] == 64), "{places:x?}");
    }

    #[test]
    fn a_slab_has_room_for_one_value_at_least() {
        let mut slab = Slab::new(0);
        let values = [(); 2].map(|()| slab.put(|index, _| Value { index, shared: Arc::new(()) }));
        assert_eq!(slab.room, 1);
        assert!(values.iter().all(|value| value.index.0 == 0), "a slab for each");
    }

    #[test]
    fn every_value_ends_once_in_any_order_and_on_any_thread() {
        let shared = Arc::new(());
        let mut slots = fill(4, 7, &shared);
        assert_eq!(Arc::strong_count(&shared), 8);
        drop(slots.remove(3));
        let raw = slots.remove(0).into_raw();
        let other = slots.split_off(2);
        std::thread::scope(|scope| {
            scope.spawn(move || drop(other));
            slots.reverse();
            drop(slots);
        });
        assert_eq!(Arc::strong_count(&shared), 2);
        // SAFETY: it comes from there.
        drop(unsafe { Slot::from_raw(raw) });
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn the_thread_that_ends_the_last_value_comes_after_the_others() {
        let shared = Arc::new(());
        for _ in 0..20 {
            let values = fill(4, 8, &shared).into_iter().enumerate();
            let (even, odd): (Vec<_>, Vec<_>) = values.partition(|(place, _)| place.is_multiple_of(2));
            std::thread::scope(|scope| {
                scope.spawn(move || drop(even));
                drop(odd);
            });
        }
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn what_was_made_before_a_panic_ends_too() {
        let shared = Arc::new(());
        let mut slab = Slab::new(2);
        let first = slab.put(|index, _| Value { index, shared: shared.clone() });
        let outcome = catch_unwind(AssertUnwindSafe(|| slab.put(|_, _| panic!("no more"))));
        assert!(outcome.is_err());
        let second = slab.put(|index, _| Value { index, shared: shared.clone() });
        drop(slab);
        assert_eq!(Arc::strong_count(&shared), 3);
        drop((first, second));
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
