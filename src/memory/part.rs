//! What a range of a piece's bytes looks like: to the CPU, and to the device.
#![expect(unsafe_code, reason = "adds to a pointer")]

use std::ptr::{self, NonNull};

use super::piece::{Lease, Part};
use crate::access::range;
use crate::access::view::View;
use crate::driver::Handle;

impl Part {
    /// All of what was lent.
    #[inline]
    pub(super) fn whole(lease: Lease) -> Self {
        let Self { len, device_ptr, cached_ptr, .. } = *lease.whole();
        Self { len, lease, device_ptr, cached_ptr }
    }

    /// A range that has been checked, with a share of its own.
    pub(super) fn part(&self, offset: usize, len: usize) -> Self {
        debug_assert!(range::check(offset, len, self.len).is_ok());
        let device_ptr = self.device_ptr + offset as u64;
        let cached_ptr = self.cached_range(offset, len).map_or(ptr::null_mut(), NonNull::as_ptr);
        Self { len, lease: self.lease.clone(), device_ptr, cached_ptr: Handle(cached_ptr) }
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        View::checked(self.lease.allocation(), self.offset(), self.len)
    }

    /// Where it begins in its allocation.
    #[inline]
    pub(super) fn offset(&self) -> usize {
        // An allocation fits the address space.
        usize::try_from(self.device_ptr - self.lease.allocation().device_ptr()).unwrap_or(usize::MAX)
    }

    /// The host address of a range, if the range is within this part and the CPU copies it as cached memory.
    #[inline]
    pub(super) fn cached_range(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let first = NonNull::new(self.cached_ptr.0)?;
        range::check(offset, len, self.len).ok()?;
        // SAFETY: `offset` is at most the length.
        Some(unsafe { first.add(offset) })
    }
}
