//! The interface of a kernel to global memory.

use crate::lanes::each_lane;

/// The threads for which a fence orders accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the device, or of a part of it.
    Device,
    /// Also those of the CPU and of other devices.
    System,
}

/// The memory behind global, const and generic addresses, except for the windows of shared, local and parameter memory.
///
/// Each access is naturally aligned and 1, 2, 4 or 8 bytes long; values are little-endian, in the low bits. The accesses of
/// a thread are made in program order. The lanes of a warp that execute one instruction together access
/// memory in one call, in the order of the lanes.
pub trait Memory: Sync {
    /// Reads; `None` if the bytes are not all in one live allocation.
    fn load(&self, address: u64, bytes: u32) -> Option<u64>;

    /// Writes the low bits of `value`.
    fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()>;

    /// Reads for each lane of a set, a bit for each; the addresses of the others, too, are those of lanes of the set.
    ///
    /// # Errors
    ///
    /// The first lane whose bytes are not all in one live allocation.
    fn load_lanes(&self, addresses: &[u64; 32], lanes: u32, bytes: u32, values: &mut [u64; 32]) -> Result<(), usize> {
        each_lane(lanes, |lane| self.load(addresses[lane], bytes).map(|value| values[lane] = value))
    }

    /// [`load_lanes`](Memory::load_lanes) by a weak instruction, see [`load_weak`](Memory::load_weak).
    ///
    /// # Errors
    ///
    /// As [`load_lanes`](Memory::load_lanes).
    fn load_lanes_weak(
        &self,
        addresses: &[u64; 32],
        lanes: u32,
        bytes: u32,
        values: &mut [u64; 32],
    ) -> Result<(), usize> {
        each_lane(lanes, |lane| self.load_weak(addresses[lane], bytes).map(|value| values[lane] = value))
    }

    /// Writes the low bits of each lane's value, in order, as for [`load_lanes`](Memory::load_lanes).
    ///
    /// # Errors
    ///
    /// The first lane whose bytes are not all in one live allocation. Lanes before it have written.
    fn store_lanes(&self, addresses: &[u64; 32], lanes: u32, bytes: u32, values: &[u64; 32]) -> Result<(), usize> {
        let low = if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
        each_lane(lanes, |lane| self.store(addresses[lane], bytes, values[lane] & low))
    }

    /// Replaces a value by `change` of it in one atomic step, and returns the old value. `change` may be called more
    /// than once.
    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64>;

    /// [`update`](Memory::update) for each lane of a set, in order: `change` makes a lane's new value of the old one. Addresses
    /// are as for [`load_lanes`](Memory::load_lanes).
    ///
    /// # Errors
    ///
    /// The first lane whose bytes are not all in one live allocation. Lanes before it have written.
    fn update_lanes(
        &self,
        addresses: &[u64; 32],
        lanes: u32,
        bytes: u32,
        change: &mut dyn FnMut(usize, u64) -> u64,
        old: &mut [u64; 32],
    ) -> Result<(), usize> {
        each_lane(lanes, |lane| {
            self.update(addresses[lane], bytes, &mut |value| change(lane, value)).map(|value| old[lane] = value)
        })
    }

    /// [`load`](Memory::load) by an instruction that is neither volatile nor relaxed: until the next fence it may see a value
    /// that was there before.
    fn load_weak(&self, address: u64, bytes: u32) -> Option<u64> {
        self.load(address, bytes)
    }

    /// Orders the accesses before it and those after it, for every thread in the scope.
    fn fence(&self, scope: Scope);

    /// Allocates for `malloc` in a kernel: an address that is a multiple of 16, or `None` if the bytes do not fit.
    fn allocate(&self, _bytes: u64) -> Option<u64> {
        None
    }

    /// Frees an address that [`allocate`](Memory::allocate) returned; `None` for any other.
    fn release(&self, _address: u64) -> Option<()> {
        None
    }

    /// Polled during the run; `true` ends it with [`FaultKind::Interrupted`](crate::FaultKind::Interrupted).
    fn interrupted(&self) -> bool {
        false
    }
}
