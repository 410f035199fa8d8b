//! A launch's view of the memory table, from the moment it is queued. Every access is checked against the live windows.

use std::sync::Arc;
use std::sync::atomic::{self, Ordering};

use super::bytes;
use super::cache::Cache;
use super::kernel_heap::KernelHeap;
use super::table;
use crate::health::Health;
use crate::owner::Owner;

/// The memory of one launch.
pub(crate) struct View {
    health: Arc<Health>,
    cache: Arc<Cache>,
    heap: Arc<KernelHeap>,
    owner: Owner,
}

impl View {
    /// A view for a launch in the context with this health, heap and owner.
    pub(crate) fn new(health: Arc<Health>, heap: Arc<KernelHeap>, owner: Owner) -> View {
        View { health, cache: Cache::new(), heap, owner }
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

    fn fence(&self, _: ptx::Scope) {
        atomic::fence(Ordering::SeqCst);
    }

    fn allocate(&self, bytes: u64) -> Option<u64> {
        let address = self.heap.allocate(usize::try_from(bytes).ok()?, self.owner)?;
        Some(address as u64)
    }

    fn release(&self, address: u64) -> Option<()> {
        self.heap.release(usize::try_from(address).ok()?)
    }

    fn interrupted(&self) -> bool {
        self.health.ends_kernels()
    }
}
