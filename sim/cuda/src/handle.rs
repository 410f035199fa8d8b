//! Opaque handles: pointer-sized values that are looked up in a table and never dereferenced.
//!
//! Each value is given out once in the life of the process, so a stale handle can never mean a newer object.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

// High enough not to be taken for a small constant such as CU_STREAM_LEGACY, and no address that Linux maps.
const FIRST: usize = 0x1000_0000_0000;
const STEP: usize = 0x40;

static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(FIRST);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A handle that was never given out before.
pub(crate) fn next() -> usize {
    NEXT_HANDLE.fetch_add(STEP, Ordering::Relaxed)
}

/// Whether `handle` was given out at some time, for an object that may be gone.
pub(crate) fn was_issued(handle: usize) -> bool {
    handle >= FIRST && handle < NEXT_HANDLE.load(Ordering::Relaxed) && (handle - FIRST).is_multiple_of(STEP)
}

/// A number that is unique in the process: context, stream and buffer ids.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}
