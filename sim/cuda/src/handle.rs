//! Opaque handles: pointer-sized values that are looked up in a table and never dereferenced.
//!
//! Each value is issued once in the life of the process, so a stale handle never denotes a newer object.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

// Above small constants such as CU_STREAM_LEGACY, and not an address that Linux maps.
const FIRST: usize = 0x1000_0000_0000;
const STEP: usize = 0x40;

static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(FIRST);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A handle that was never issued before.
pub(crate) fn next() -> usize {
    NEXT_HANDLE.fetch_add(STEP, Ordering::Relaxed)
}

/// Whether `handle` was ever issued; its object may be gone.
pub(crate) fn was_issued(handle: usize) -> bool {
    handle >= FIRST && handle < NEXT_HANDLE.load(Ordering::Relaxed) && (handle - FIRST).is_multiple_of(STEP)
}

/// A number that is unique in the process: context, stream and buffer ids.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}
