//! The allocations of this process in each heap, as ranges of addresses. Imported memory counts where it was allocated.
//!
//! The first hole that is large enough is taken, so that a heap can refuse an allocation although its budget shows room.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::catalog::{Heap, profile};

/// The granularity of addresses in bytes: a GPU's big page.
const PAGE: u64 = 64 << 10;

/// The part of a heap that is occupied.
#[derive(Default)]
struct Space {
    /// The ends of the ranges by their starts, those of others included.
    occupied: BTreeMap<u64, u64>,
    /// The bytes that this process asked for.
    used: u64,
}

impl Space {
    /// The heap before this process allocated anything.
    fn of(heap: &Heap) -> Self {
        Self { occupied: heap.others.iter().copied().collect(), used: 0 }
    }

    /// The start of the first hole for `size` bytes below `end`.
    fn first_fit(&self, size: u64, end: u64) -> Option<u64> {
        let mut start = 0;
        for (&from, &to) in &self.occupied {
            if from - start >= size {
                return Some(start);
            }
            start = to;
        }
        (end - start >= size).then_some(start)
    }
}

/// By the device's index in Vulkan's list and the heap's index.
static SPACES: Mutex<BTreeMap<(usize, usize), Space>> = Mutex::new(BTreeMap::new());

fn spaces() -> MutexGuard<'static, BTreeMap<(usize, usize), Space>> {
    SPACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of a heap that belong to other processes.
fn of_others(heap: &Heap) -> u64 {
    heap.others.iter().map(|(start, end)| end - start).sum()
}

/// The budget of a heap for the whole process, in bytes.
pub(super) fn budget(heap: &Heap) -> u64 {
    heap.size - heap.kept - of_others(heap)
}

/// The usage of a device's heap in bytes, which includes that of other processes.
pub(super) fn usage(device: usize, index: usize, heap: &Heap) -> u64 {
    of_others(heap) + spaces().get(&(device, index)).map_or(0, |space| space.used)
}

/// A range that is reserved in a heap, released on drop.
pub(super) struct Taken {
    device: usize,
    heap: usize,
    start: u64,
    size: u64,
}

impl Taken {
    /// Reserves bytes in a device's heap, if its budget allows and a hole is large enough.
    pub(super) fn from(device: usize, index: usize, size: u64) -> Option<Self> {
        let heap = profile().heaps.get(index)?;
        let mut all = spaces();
        let space = all.entry((device, index)).or_insert_with(|| Space::of(heap));
        let used = space.used.checked_add(size).filter(|used| *used <= budget(heap))?;
        let pages = size.checked_next_multiple_of(PAGE)?;
        let start = space.first_fit(pages, heap.size - heap.kept)?;
        space.occupied.insert(start, start + pages);
        space.used = used;
        Some(Self { device, heap: index, start, size })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(space) = spaces().get_mut(&(self.device, self.heap)) {
            space.occupied.remove(&self.start);
            space.used -= self.size;
        }
    }
}
