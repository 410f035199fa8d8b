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

    // Runs `access` if one window contains the ranges at all addresses, while it is pinned.
    fn access_all(&self, addresses: &[u64; 32], bytes: u32, access: impl FnOnce()) -> Option<()> {
        self.cache.access_all(&addresses.map(bytes::host), usize::try_from(bytes).ok()?, table::pin_window, access)
    }
}

impl ptx::Memory for View {
    fn load(&self, address: u64, bytes: u32) -> Option<u64> {
        self.access(address, bytes, bytes::load)
    }

    fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()> {
        self.access(address, bytes, |address, len| bytes::store(address, len, value))
    }

    fn load_lanes(&self, addresses: &[u64; 32], lanes: u32, bytes: u32, values: &mut [u64; 32]) -> Result<(), usize> {
        let same = addresses.iter().fold(0, |differs, address| differs | (address ^ addresses[0])) == 0;
        if same {
            *values = [self.load(addresses[0], bytes).ok_or(lanes.trailing_zeros() as usize)?; 32];
            return Ok(());
        }
        if self.access_all(addresses, bytes, || bytes::load_lanes(addresses, bytes, values)).is_some() {
            return Ok(());
        }
        ptx::each_lane(lanes, |lane| self.load(addresses[lane], bytes).map(|value| values[lane] = value))
    }

    fn load_lanes_weak(
        &self,
        addresses: &[u64; 32],
        lanes: u32,
        bytes: u32,
        values: &mut [u64; 32],
    ) -> Result<(), usize> {
        self.load_lanes(addresses, lanes, bytes, values)
    }

    fn store_lanes(&self, addresses: &[u64; 32], lanes: u32, bytes: u32, values: &[u64; 32]) -> Result<(), usize> {
        if self.access_all(addresses, bytes, || bytes::store_lanes(addresses, lanes, bytes, values)).is_some() {
            return Ok(());
        }
        ptx::each_lane(lanes, |lane| self.store(addresses[lane], bytes, values[lane]))
    }

    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        self.access(address, bytes, |address, len| bytes::update(address, len, change))
    }

    fn update_lanes(
        &self,
        addresses: &[u64; 32],
        lanes: u32,
        bytes: u32,
        change: &mut dyn FnMut(usize, u64) -> u64,
        old: &mut [u64; 32],
    ) -> Result<(), usize> {
        if self.access_all(addresses, bytes, || bytes::update_lanes(addresses, lanes, bytes, change, old)).is_some() {
            return Ok(());
        }
        ptx::each_lane(lanes, |lane| {
            self.update(addresses[lane], bytes, &mut |value| change(lane, value)).map(|value| old[lane] = value)
        })
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
