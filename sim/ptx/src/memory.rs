//! The interface of a kernel to global memory.

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
/// Each access is naturally aligned and 1, 2, 4 or 8 bytes long; values are little-endian, in the low bits. Each
/// access of the kernel is one call, made in program order.
pub trait Memory: Sync {
    /// Reads; `None` if the bytes are not all in one live allocation.
    fn load(&self, address: u64, bytes: u32) -> Option<u64>;

    /// Writes the low bits of `value`.
    fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()>;

    /// Replaces a value by `change` of it in one atomic step, and returns the old value. `change` may be called more
    /// than once.
    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64>;

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
