//! The number and the bytes of this package's live allocations, by device and kind.
#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use vkgdr::MemoryKind;

#[derive(Default)]
struct Total {
    allocations: AtomicUsize,
    bytes: AtomicUsize,
}

/// For each device, in the order of `MemoryKind::ALL`.
static TOTALS: OnceLock<Vec<[Total; MemoryKind::ALL.len()]>> = OnceLock::new();

fn total(device: i32, kind: MemoryKind) -> Option<&'static Total> {
    let totals = TOTALS.get_or_init(|| {
        let devices = vkgdr::device_count().unwrap_or(0);
        (0..devices).map(|_| Default::default()).collect()
    });
    totals.get(usize::try_from(device).ok()?)?.get(kind as usize)
}

/// Counts an allocation.
pub(crate) fn add(device: i32, kind: MemoryKind, len: usize) {
    if let Some(total) = total(device, kind) {
        total.allocations.fetch_add(1, Ordering::Relaxed);
        total.bytes.fetch_add(len, Ordering::Relaxed);
    }
}

/// Ends the count of an allocation.
pub(crate) fn remove(device: i32, kind: MemoryKind, len: usize) {
    if let Some(total) = total(device, kind) {
        total.allocations.fetch_sub(1, Ordering::Relaxed);
        total.bytes.fetch_sub(len, Ordering::Relaxed);
    }
}

/// The number of live allocations of a device and kind, and their bytes. None in a forked child: they are the parent's.
pub(crate) fn of(device: i32, kind: MemoryKind) -> (usize, usize) {
    let total = total(device, kind).filter(|_| !vkgdr::is_forked());
    total.map_or((0, 0), |total| (total.allocations.load(Ordering::Relaxed), total.bytes.load(Ordering::Relaxed)))
}
