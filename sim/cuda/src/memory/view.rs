//! A launch's view of the memory table, from the moment it is queued. Every access is checked against the live windows.

use std::sync::Arc;
use std::sync::atomic::{self, Ordering};

use super::bytes;
use super::cache::Cache;
use super::table;
use crate::health::Health;

/// The memory of one launch.
pub(crate) struct View {
    health: Arc<Health>,
    cache: Arc<Cache>,
}

impl View {
    /// A view for a launch in the context with this health.
    pub(crate) fn new(health: Arc<Health>) -> View {
        View { health, cache: Cache::new() }
    }

    // Runs `access` while the range's window is pinned.
    fn access<T>(&self, address: u64, bytes: u32, access: impl FnOnce(usize, usize) -> T) -> Option<T> {
        let (address, len) = (usize::try_from(address).ok()?, usize::try_from(bytes).ok()?);
        self.cache.access(address, len, table::pin_window, || access(address, len))
    }
}

impl ptx::Memory for View {
    fn load(&self, address: u64, bytes: u32) -> Option<u64> {
        self.access(address, bytes, bytes::load)
    }

    fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()> {
        self.access(address, bytes, |address, len| bytes::store(address, len, value))
    }

    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        self.access(address, bytes, |address, len| bytes::update(address, len, change))
    }

    fn fence(&self) {
        atomic::fence(Ordering::SeqCst);
    }

    fn interrupted(&self) -> bool {
        self.health.ends_kernels()
    }
}
