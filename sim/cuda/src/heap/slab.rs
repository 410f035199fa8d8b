//! Small blocks of device memory, several in a page, as a driver places them: a range of whole pages around one block has
//! bytes of others.

use std::sync::{Arc, Mutex};

use super::ALIGNMENT;
use crate::memory::bytes::{self, Pattern};
use crate::pages::{PAGE, Pages};
use crate::sync::lock;

/// The number of units of [`ALIGNMENT`] bytes in a page, one bit each.
const UNITS: usize = PAGE / ALIGNMENT;
const _: () = assert!(UNITS == u128::BITS as usize);

/// A page and the units in use.
struct Slab {
    pages: Arc<Pages>,
    used: u128,
}

/// The slabs with a block, oldest first.
static SLABS: Mutex<Vec<Slab>> = Mutex::new(Vec::new());

/// Units of a slab, returned on drop.
pub(super) struct SmallBlock {
    pages: Arc<Pages>,
    first: usize,
    mask: u128,
}

impl SmallBlock {
    /// `size` bytes, fewer than a page and more than none. They are zero.
    pub(super) fn new(size: usize) -> Option<SmallBlock> {
        let units = size.div_ceil(ALIGNMENT);
        let mask = u128::MAX >> (UNITS - units);
        let mut slabs = lock(&SLABS);
        let free = |slab: &Slab| (0..=UNITS - units).find(|first| slab.used & (mask << first) == 0);
        let found = slabs.iter_mut().find_map(|slab| free(slab).map(|first| (slab, first)));
        let (slab, first) = match found {
            Some(found) => found,
            None => {
                slabs.push(Slab { pages: Pages::new(PAGE, PAGE)?, used: 0 });
                (slabs.last_mut()?, 0)
            }
        };
        slab.used |= mask << first;
        let block = SmallBlock { pages: Arc::clone(&slab.pages), first, mask: mask << first };
        drop(slabs);
        bytes::fill(block.address(), Pattern::Byte(0), units * ALIGNMENT);
        Some(block)
    }

    pub(super) fn address(&self) -> usize {
        self.pages.start + self.first * ALIGNMENT
    }
}

impl Drop for SmallBlock {
    fn drop(&mut self) {
        let mut slabs = lock(&SLABS);
        let Some(index) = slabs.iter().position(|slab| Arc::ptr_eq(&slab.pages, &self.pages)) else { return };
        slabs[index].used &= !self.mask;
        let empty = if slabs[index].used == 0 { Some(slabs.remove(index)) } else { None };
        drop(slabs);
        drop(empty);
    }
}
