//! The addresses of this crate's live allocations in this process.
//!
//! They tell memory of this crate from other memory. What `cuPointerGetAttributes` says of an import does not: a driver may
//! report imported system memory as the host's.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use crate::lock::Lock;

static LIVE: Lock<Addresses> = Lock::new(Addresses { device: BTreeMap::new(), host: BTreeMap::new() });

/// The address ranges of allocations, each by its first address.
struct Addresses {
    device: BTreeMap<u64, Range<CUdevice>>,
    /// Whether the pages are registered with CUDA.
    host: BTreeMap<u64, Range<bool>>,
}

/// A range of addresses with a property. Ranges of one map do not overlap, since they are live at once.
struct Range<T> {
    len: u64,
    property: T,
}

/// The property of the range that contains `address`.
fn find<T: Copy>(ranges: &BTreeMap<u64, Range<T>>, address: u64) -> Option<T> {
    let (first, range) = ranges.range(..=address).next_back()?;
    (address - first < range.len).then_some(range.property)
}

/// The device of an address in device memory of this crate, or in host memory that the device accesses there. Not to be
/// called in a forked child, where another thread of the parent may hold the lock for ever.
pub(crate) fn device_of(address: CUdeviceptr) -> Option<CUdevice> {
    find(&LIVE.lock().device, address)
}

/// Whether the page at a host address is registered with CUDA, if this crate mapped it. As for [`device_of`].
pub(crate) fn is_registered(address: *const u8) -> Option<bool> {
    find(&LIVE.lock().host, address.addr() as u64)
}

/// The addresses of a live allocation, listed until they are removed.
#[derive(Debug)]
pub(crate) struct ListedAddresses {
    /// 0 once it was removed: no driver gives address 0.
    device: CUdeviceptr,
    /// 0 without a host view.
    host: u64,
}

impl ListedAddresses {
    /// Lists `len` bytes at two addresses; `host` may be null.
    pub(crate) fn new(device: (CUdeviceptr, CUdevice), host: (*const u8, bool), len: usize) -> Self {
        let listed = Self { device: device.0, host: host.0.addr() as u64 };
        let len = len as u64;
        let mut live = LIVE.lock();
        live.device.insert(listed.device, Range { len, property: device.1 });
        if listed.host != 0 {
            live.host.insert(listed.host, Range { len, property: host.1 });
        }
        listed
    }

    /// Removes the addresses, before the memory is released. A second call does nothing, and neither does one in a forked
    /// child.
    pub(crate) fn remove(&mut self) {
        let device = std::mem::take(&mut self.device);
        if device == 0 || crate::driver::process::is_forked() {
            return;
        }
        let mut live = LIVE.lock();
        live.device.remove(&device);
        live.host.remove(&self.host);
    }
}

impl Drop for ListedAddresses {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_while_they_are_listed() {
        // No memory of this process: the top of the address space.
        let (device, host) = (u64::MAX - 0x10_0000, std::ptr::without_provenance::<u8>(usize::MAX - 0x8_0000));
        let mut listed = ListedAddresses::new((device, 3), (host, true), 4096);
        for (offset, expected) in [(0, Some(3)), (4095, Some(3)), (4096, None)] {
            assert_eq!(device_of(device + offset), expected, "{offset}");
        }
        assert_eq!(device_of(device - 1), None);
        assert_eq!(is_registered(host.wrapping_add(4095)), Some(true));
        assert_eq!(is_registered(host.wrapping_sub(1)), None);
        listed.remove();
        assert_eq!((device_of(device), is_registered(host)), (None, None));
        let again = ListedAddresses::new((device, 1), (std::ptr::null(), false), 64);
        drop(listed);
        assert_eq!(device_of(device), Some(1), "removed by another");
        drop(again);
        assert_eq!(device_of(device), None);
    }
}
