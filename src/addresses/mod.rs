//! The addresses of this crate's live allocations in this process, and of the chunks in them.
//!
//! They tell memory of this crate from other memory. What `cuPointerGetAttributes` says of an import does not: a driver may
//! report imported system memory as the host's. [`memory_of`](crate::memory_of) finds chunks by them.
#![forbid(unsafe_code)]

mod listed_chunks;

use std::collections::BTreeMap;

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use crate::driver::Handle;
use crate::lock::Lock;
use listed_chunks::ListedChunks;

static LIVE: Lock<Addresses> = Lock::new(Addresses { device: BTreeMap::new(), host: BTreeMap::new() });

/// The address ranges of allocations, each by its first address.
struct Addresses {
    device: BTreeMap<u64, Range<OnDevice>>,
    host: BTreeMap<u64, Range<OnHost>>,
}

/// A range of addresses with its properties. Ranges of one map do not overlap, since they are live at once.
struct Range<T> {
    len: u64,
    properties: T,
}

struct OnDevice {
    device: CUdevice,
    chunks: ListedChunks,
}

struct OnHost {
    /// Whether the pages are registered with CUDA.
    is_registered: bool,
    /// The first device address of the allocation.
    device_ptr: CUdeviceptr,
}

/// The range that contains `address`, as its properties and the offset in it.
fn find<T>(ranges: &BTreeMap<u64, Range<T>>, address: u64) -> Option<(&T, u64)> {
    let (first, range) = ranges.range(..=address).next_back()?;
    let offset = address - first;
    (offset < range.len).then_some((&range.properties, offset))
}

/// The device of an address in device memory of this crate, or in host memory that the device accesses there. Not to be
/// called in a forked child, where another thread of the parent may hold the lock for ever.
pub(crate) fn device_of(address: CUdeviceptr) -> Option<CUdevice> {
    find(&LIVE.lock().device, address).map(|(range, _)| range.device)
}

/// Whether the page at a host address is registered with CUDA, if this crate mapped it. As for [`device_of`].
pub(crate) fn is_registered(address: *const u8) -> Option<bool> {
    find(&LIVE.lock().host, address.addr() as u64).map(|(range, _)| range.is_registered)
}

/// Lists a chunk that begins at an offset in the allocation at `base`, until [`remove_chunk`]. As for [`device_of`].
pub(crate) fn add_chunk(base: CUdeviceptr, offset: u64, chunk: *mut ()) {
    if let Some(range) = LIVE.lock().device.get_mut(&base) {
        range.properties.chunks.add(offset, Handle(chunk));
    }
}

/// Removes a chunk, before it is dropped. Another allocation may have the address by now. As for [`device_of`].
pub(crate) fn remove_chunk(base: CUdeviceptr, offset: u64, chunk: *mut ()) {
    if let Some(range) = LIVE.lock().device.get_mut(&base) {
        range.properties.chunks.remove(offset, Handle(chunk));
    }
}

/// Calls `found` with the last listed chunk that begins at or before a device or host address in the same allocation, and
/// with the offset of the address in the allocation. The chunk is not dropped meanwhile; `found` must not release it. As for
/// [`device_of`].
pub(crate) fn find_chunk<T>(address: u64, found: impl FnOnce(*mut (), u64) -> Option<T>) -> Option<T> {
    let live = LIVE.lock();
    let (range, offset) = find(&live.device, address).or_else(|| {
        let (host, offset) = find(&live.host, address)?;
        find(&live.device, host.device_ptr + offset)
    })?;
    found(range.chunks.find(offset)?.0, offset)
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
        let on_device = OnDevice { device: device.1, chunks: ListedChunks::default() };
        let on_host = OnHost { is_registered: host.1, device_ptr: listed.device };
        let mut live = LIVE.lock();
        live.device.insert(listed.device, Range { len, properties: on_device });
        if listed.host != 0 {
            live.host.insert(listed.host, Range { len, properties: on_host });
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
        add_chunk(device, 0, std::ptr::dangling_mut());
        let offset_of = |address| find_chunk(address, |_, offset| Some(offset));
        assert_eq!([device + 7, host.addr() as u64 + 4095].map(offset_of), [Some(7), Some(4095)]);
        listed.remove();
        assert_eq!((device_of(device), is_registered(host), offset_of(device)), (None, None, None));
        let again = ListedAddresses::new((device, 1), (std::ptr::null(), false), 64);
        drop(listed);
        assert_eq!(device_of(device), Some(1), "removed by another");
        drop(again);
        assert_eq!(device_of(device), None);
    }
}
