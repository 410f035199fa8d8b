//! The addresses of this crate's live allocations in this process.
//!
//! They distinguish memory of this crate from other memory. `cuPointerGetAttributes` cannot: a driver may report
//! imported system memory as the host's. [`memory_of`](crate::memory_of) finds memory by them.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Weak;

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use crate::Memory;
use crate::lock::Lock;
use crate::memory::Home;

static LIVE: Lock<Addresses> = Lock::new(Addresses { device: BTreeMap::new(), host: BTreeMap::new(), next_serial: 1 });

/// The address ranges of allocations, each by its first address.
struct Addresses {
    device: BTreeMap<u64, Range<OnDevice>>,
    host: BTreeMap<u64, Range<OnHost>>,
    next_serial: u64,
}

/// A range of addresses with its properties. Ranges of different allocations never overlap: host and device share one
/// address space. [`Addresses::remove_stale`] removes ranges whose addresses CUDA released with their context.
struct Range<T> {
    len: u64,
    /// The serial number of its allocation.
    serial: u64,
    properties: T,
}

struct OnDevice {
    device: CUdevice,
    /// What finds the memory at an address; `None` until [`ListedAddresses::set_home`].
    home: Option<Weak<dyn Home>>,
}

struct OnHost {
    /// Whether the pages are registered with CUDA.
    is_registered: bool,
    /// The first device address of the allocation.
    device_ptr: CUdeviceptr,
}

/// The range that contains `address`, and the offset in it.
fn find<T>(ranges: &BTreeMap<u64, Range<T>>, address: u64) -> Option<(&Range<T>, u64)> {
    let (first, range) = ranges.range(..=address).next_back()?;
    let offset = address - first;
    (offset < range.len).then_some((range, offset))
}

/// Removes the ranges that overlap `len` bytes at an address.
fn remove_overlapping<T>(ranges: &mut BTreeMap<u64, Range<T>>, first: u64, len: u64) {
    let end = first.saturating_add(len);
    while let Some((&other, _)) =
        ranges.range(..end).next_back().filter(|(other, old)| other.saturating_add(old.len) > first)
    {
        ranges.remove(&other);
    }
}

/// Removes the range that begins at an address, if it has this serial number.
fn remove<T>(ranges: &mut BTreeMap<u64, Range<T>>, first: u64, serial: u64) {
    if let Entry::Occupied(found) = ranges.entry(first)
        && found.get().serial == serial
    {
        found.remove();
    }
}

impl Addresses {
    /// Removes ranges that overlap the addresses of new memory.
    fn remove_stale(&mut self, first: u64, len: u64) {
        remove_overlapping(&mut self.device, first, len);
        remove_overlapping(&mut self.host, first, len);
    }
}

/// The device whose memory, or whose mapping of this crate's host memory, contains `address`. Must not be called in a
/// forked child, where the lock may be held for ever by a thread of the parent.
pub(crate) fn device_of(address: CUdeviceptr) -> Option<CUdevice> {
    find(&LIVE.lock().device, address).map(|(range, _)| range.properties.device)
}

/// Whether the page at a host address is registered with CUDA, if this crate mapped it. Not for forked children, see
/// [`device_of`].
pub(crate) fn is_registered(address: *const u8) -> Option<bool> {
    find(&LIVE.lock().host, address.addr() as u64).map(|(range, _)| range.properties.is_registered)
}

/// The live memory that contains a device or a host address, and the offset of the address in it. Not for forked children, see
/// [`device_of`].
pub(crate) fn memory_at(address: u64) -> Option<(Memory, usize)> {
    let (home, address) = {
        let live = LIVE.lock();
        let on_device = find(&live.device, address).map(|(range, _)| (range, address));
        let (range, address) = on_device.or_else(|| {
            let (host, offset) = find(&live.host, address)?;
            let base = host.properties.device_ptr;
            let range = live.device.get(&base).filter(|range| range.serial == host.serial)?;
            Some((range, base + offset))
        })?;
        (range.properties.home.clone()?, address)
    };
    // Without the lock: this may be the last reference by now, whose drop calls the drivers.
    let memory = home.upgrade()?.find(address)?;
    let offset = usize::try_from(address.checked_sub(memory.device_ptr())?).ok()?;
    (offset < memory.len()).then_some((memory, offset))
}

/// The addresses of a live allocation, listed until they are removed.
#[derive(Debug)]
pub(crate) struct ListedAddresses {
    /// The first device address; 0 for none, which no driver gives.
    base: CUdeviceptr,
    /// Unique in the process: addresses are reused.
    serial: u64,
    /// 0 without a host view.
    host: u64,
}

impl ListedAddresses {
    /// Lists `len` bytes at two addresses; `host` may be null.
    pub(crate) fn new(device: (CUdeviceptr, CUdevice), host: (*const u8, bool), len: usize) -> Self {
        let (base, device) = device;
        let (host, is_registered) = (host.0.addr() as u64, host.1);
        let len = len as u64;
        let mut live = LIVE.lock();
        let serial = live.next_serial;
        live.next_serial += 1;
        // 0 is the address of nothing. Both before the first is listed: they may be the same.
        for address in [base, host].into_iter().filter(|&address| address != 0) {
            live.remove_stale(address, len);
        }
        if base != 0 {
            let properties = OnDevice { device, home: None };
            live.device.insert(base, Range { len, serial, properties });
        }
        if host != 0 {
            let properties = OnHost { is_registered, device_ptr: base };
            live.host.insert(host, Range { len, serial, properties });
        }
        Self { base, serial, host }
    }

    /// Lets lookups find the memory of the allocation, unless its addresses were removed. Not for forked children, see
    /// [`device_of`].
    pub(crate) fn set_home(&self, home: Weak<dyn Home>) {
        let mut live = LIVE.lock();
        if let Some(range) = live.device.get_mut(&self.base).filter(|range| range.serial == self.serial) {
            range.properties.home = Some(home);
        }
    }

    /// Removes the addresses, before the memory is released. A second call does nothing, and neither does one in a forked
    /// child.
    fn remove(&mut self) {
        let base = std::mem::take(&mut self.base);
        if base == 0 || crate::driver::fork::is_forked() {
            return;
        }
        let mut live = LIVE.lock();
        remove(&mut live.device, base, self.serial);
        remove(&mut live.host, self.host, self.serial);
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

    #[test]
    fn memory_without_a_host_view_leaves_what_lies_below_its_length_alone() {
        let low = ListedAddresses::new((0x3_0000_0000, 1), (std::ptr::null(), false), 4096);
        let long = ListedAddresses::new((u64::MAX - (1 << 40), 1), (std::ptr::null(), false), 16 << 30);
        assert_eq!(device_of(0x3_0000_0000), Some(1));
        drop((low, long));
        assert_eq!(device_of(0x3_0000_0000), None);
    }

    #[test]
    fn memory_that_went_with_its_context_gives_way_to_what_has_its_addresses_now() {
        let (device, host) = (u64::MAX - 0x30_0000, usize::MAX - 0x28_0000);
        let at = |offset: usize| std::ptr::without_provenance::<u8>(host + offset);
        for (first, len) in [(0, 4096), (0, 64), (1024, 64), (1024, 8192)] {
            let old = ListedAddresses::new((device, 1), (at(0), false), 4096);
            // Where the device's side was, but not the host's, which the old memory has still.
            let new = ListedAddresses::new((device + first, 2), (at(0x1_0000), true), len);
            assert_eq!(device_of(device + first + 63), Some(2), "{first} {len}");
            drop(old);
            assert_eq!(device_of(device + first), Some(2), "removed by the old memory");
            assert_eq!(is_registered(at(0x1_0000)), Some(true));
            drop(new);
            assert_eq!((device_of(device), device_of(device + first)), (None, None));
        }
    }
}
