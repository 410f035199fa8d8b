//! The addresses of this crate's live allocations in this process, except for [`RawMemory`](crate::RawMemory).
//!
//! They distinguish memory of this crate from other memory. `cuPointerGetAttributes` cannot: a driver reports
//! registered pages as the host's. [`memory_of`](crate::memory_of) finds memory by them.
//!
//! Not for forked children, where a thread of the parent may hold the lock for ever.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use crate::Memory;
use crate::driver::fork;
use crate::lock::Lock;

/// Allocations by the first address of their device and of their host view, which may be the same: both share one address space.
static LIVE: Lock<BTreeMap<u64, Weak<ListedAddresses>>> = Lock::new(BTreeMap::new());

/// Finds the live memory at a device address of an allocation.
pub(crate) type Lookup = Box<dyn Fn(CUdeviceptr) -> Option<Memory> + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// The addresses of a live allocation, listed until this is dropped, before the memory is released.
pub(crate) struct ListedAddresses {
    device: CUdevice,
    device_ptr: CUdeviceptr,
    /// 0 without a host view.
    host: u64,
    len: u64,
    lookup: Lookup,
}

/// The allocation that contains a device or host address, and the first address on that side.
fn find(address: u64) -> Option<(Arc<ListedAddresses>, u64)> {
    let live = LIVE.lock();
    let (&first, listed) = live.range(..=address).next_back()?;
    let listed = listed.upgrade();
    // Without the lock, which the drop takes: this may be the last reference by now.
    drop(live);
    listed.filter(|listed| address - first < listed.len).map(|listed| (listed, first))
}

/// The device whose memory, or whose mapping of this crate's host memory, contains `address`.
pub(crate) fn device_of(address: CUdeviceptr) -> Option<CUdevice> {
    find(address).filter(|(listed, first)| *first == listed.device_ptr).map(|(listed, _)| listed.device)
}

/// The live memory that contains a device or a host address, and the offset of the address in it.
pub(crate) fn memory_at(address: u64) -> Option<(Memory, usize)> {
    let (listed, first) = find(address)?;
    let address = listed.device_ptr + (address - first);
    // Without the lock: this may be the last reference by now, whose drop calls the drivers.
    let memory = (listed.lookup)(address)?;
    // The memory found may be in an earlier allocation. Asking for its own address would count as giving that to the device.
    let first = memory.allocation().device_ptr() + memory.inner().offset as u64;
    let offset = usize::try_from(address.checked_sub(first)?).ok()?;
    (offset < memory.len()).then_some((memory, offset))
}

impl ListedAddresses {
    /// Lists `len` bytes at two addresses; `host` may be null.
    pub(crate) fn new(
        device: CUdevice,
        device_ptr: CUdeviceptr,
        host: *const u8,
        len: usize,
        lookup: Lookup,
    ) -> Arc<Self> {
        let (host, len) = (host.addr() as u64, len as u64);
        let listed = Arc::new(Self { device, device_ptr, host, len, lookup });
        let mut live = LIVE.lock();
        for first in listed.firsts() {
            // What was there went with its context: CUDA has released its addresses.
            while let Some((&stale, _)) = live.range(first..first.saturating_add(len)).next() {
                live.remove(&stale);
            }
        }
        live.extend(listed.firsts().map(|first| (first, Arc::downgrade(&listed))));
        drop(live);
        listed
    }

    fn firsts(&self) -> impl Iterator<Item = u64> {
        [self.device_ptr, self.host].into_iter().filter(|&first| first != 0)
    }
}

impl Drop for ListedAddresses {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        let mut live = LIVE.lock();
        for first in self.firsts() {
            // Other memory may have the address by now.
            if live.get(&first).is_some_and(|listed| std::ptr::eq(listed.as_ptr(), self)) {
                live.remove(&first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_went_with_its_context_gives_way_to_what_has_its_addresses_now() {
        let (device, host) = (u64::MAX - 0x30_0000, usize::MAX - 0x28_0000);
        let at = |offset: usize| std::ptr::without_provenance::<u8>(host + offset);
        for (first, len) in [(0, 4096), (0, 64), (1024, 64), (1024, 8192)] {
            let nothing = || Box::new(|_| None);
            let old = ListedAddresses::new(1, device + 512, at(0), 4096, nothing());
            // Where the device's side was, but not the host's, which the old memory has still.
            let new = ListedAddresses::new(2, device + first, at(0x1_0000), len, nothing());
            assert_eq!(device_of(device + first + 63), Some(2), "{first} {len}");
            drop(old);
            assert_eq!(device_of(device + first), Some(2), "removed by the old memory");
            assert!(find(at(0x1_0000).addr() as u64).is_some());
            drop(new);
            assert_eq!((device_of(device), device_of(device + first)), (None, None));
        }
    }
}
