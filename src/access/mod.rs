//! The CPU's access to memory: checked ranges, and copies.
//!
//! [`range`] checks ranges; [`copy`] has the copy routines; [`CachedBytes`] copies by host addresses.
#![expect(unsafe_code, reason = "copies at host addresses")]

pub(crate) mod copy;
pub(crate) mod range;

use std::ptr::{self, NonNull};
use std::slice;

use copy::CopyRoutine;

/// The host addresses of memory that the CPU caches; none for other memory. For gdrcopy's functions, whose copies name addresses.
///
/// The address of a copy is checked and used as it is: its first access waits for no load, while one at an offset waits for
/// the memory's address to be loaded. That is 3 ns of `gdr_copy_to_mapping` (EPYC, bench `gdr_copies`).
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct CachedBytes {
    first: usize,
    len: usize,
}

impl CachedBytes {
    /// No bytes: null is in no memory.
    pub const NONE: Self = Self { first: 0, len: 0 };

    /// `len` bytes at a host address.
    pub(crate) fn new(host_ptr: Option<NonNull<u8>>, len: usize, routine: CopyRoutine) -> Self {
        match (host_ptr, routine) {
            (Some(first), CopyRoutine::Ordinary) => Self { first: first.as_ptr().expose_provenance(), len },
            _ => Self::NONE,
        }
    }

    /// As [`Memory::write`](crate::Memory::write), at a host address. False, with nothing written, unless all bytes are in
    /// this memory and there is a source.
    ///
    /// # Safety
    ///
    /// The memory must be mapped still, and `source` be null or good for reading `len` bytes.
    #[inline]
    #[must_use]
    pub unsafe fn write(&self, to: usize, source: *const u8, len: usize) -> bool {
        let (Some(to), false) = (self.host_range(to, len), source.is_null()) else { return false };
        // SAFETY: by this method's contract; no longer than this memory, as a slice has to be.
        let source = unsafe { slice::from_raw_parts(source, len) };
        // SAFETY: within the memory, which is mapped by this method's contract.
        unsafe { copy::write(CopyRoutine::Ordinary, to, source) };
        true
    }

    /// As [`Memory::read`](crate::Memory::read), at a host address. False, with nothing read, unless all bytes are in this
    /// memory and there is a target.
    ///
    /// # Safety
    ///
    /// The memory must be mapped still, and `target` be null or good for writing `len` bytes.
    #[inline]
    #[must_use]
    pub unsafe fn read(&self, from: usize, target: *mut u8, len: usize) -> bool {
        copy::order_reads(CopyRoutine::Ordinary);
        let (Some(from), false) = (self.host_range(from, len), target.is_null()) else { return false };
        // SAFETY: by this method's contract; no longer than this memory, as a slice has to be.
        let target = unsafe { slice::from_raw_parts_mut(target, len) };
        // SAFETY: within the memory, which is mapped by this method's contract.
        unsafe { copy::read_unordered(CopyRoutine::Ordinary, from, target) };
        true
    }

    #[inline]
    fn host_range(&self, address: usize, len: usize) -> Option<NonNull<u8>> {
        let offset = address.wrapping_sub(self.first);
        let within = offset <= self.len && len <= self.len - offset;
        if within { NonNull::new(ptr::with_exposed_provenance_mut(address)) } else { None }
    }
}
