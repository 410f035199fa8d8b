//! Times at which nothing accesses device memory.
//!
//! Kernels hold a lock of their cache during each access; copies, fills and streams' stores hold the one here. It is taken
//! before all locks of caches, and after those of a block's pages.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use super::cache;

static COPIES: RwLock<()> = RwLock::new(());

/// Keeps pages in place while a copy, a fill or a stream's store accesses them. Not for callers that have done so already: the
/// thread would wait for an export that waits for it.
pub(crate) fn copying() -> RwLockReadGuard<'static, ()> {
    COPIES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` while no copy, fill or kernel accesses memory. It must not access the memory's table.
pub(crate) fn while_nothing_runs<T>(work: impl FnOnce() -> T) -> T {
    let copies = COPIES.write().unwrap_or_else(PoisonError::into_inner);
    let (value, caches) = cache::while_locked(work);
    drop(copies);
    // The last of a launch that ended meanwhile returns memory to pools.
    drop(caches);
    value
}
