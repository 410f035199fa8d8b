//! The usage of each heap by this process. Imported memory counts where it was allocated.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::catalog::profile;

/// Bytes in use, by the device's index in Vulkan's list and the heap's index.
static USED: Mutex<BTreeMap<(usize, usize), u64>> = Mutex::new(BTreeMap::new());

fn used_by_all() -> MutexGuard<'static, BTreeMap<(usize, usize), u64>> {
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The budget of a heap for the whole process, in bytes.
pub(super) fn budget(heap: usize) -> u64 {
    profile().heaps.get(heap).map_or(0, |heap| heap.size - heap.kept)
}

/// The usage of a device's heap, in bytes.
pub(super) fn used(device: usize, heap: usize) -> u64 {
    used_by_all().get(&(device, heap)).copied().unwrap_or(0)
}

/// Bytes reserved in a heap, released on drop.
pub(super) struct Taken {
    device: usize,
    heap: usize,
    size: u64,
}

impl Taken {
    /// Reserves bytes in a device's heap, if its budget allows.
    pub(super) fn from(device: usize, heap: usize, size: u64) -> Option<Self> {
        let mut all = used_by_all();
        let used = all.entry((device, heap)).or_default();
        let after = used.checked_add(size).filter(|after| *after <= budget(heap))?;
        *used = after;
        Some(Self { device, heap, size })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(used) = used_by_all().get_mut(&(self.device, self.heap)) {
            *used -= self.size;
        }
    }
}
