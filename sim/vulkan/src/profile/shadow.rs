//! The host's view of non-coherent memory: separate pages, which behave as a cache that never evicts by itself.
//!
//! Bytes are copied only by flush and invalidate. Initially the pages hold [`POISON`] rather than the device's bytes,
//! so that a read before an invalidate shows even if the memory was never written.
#![expect(unsafe_code, reason = "holds the two views of a mapping as pointers")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// The bytes that the host sees before the first invalidate.
const POISON: u8 = 0xdb;
const PAGE: usize = 4096;
const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;
const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Both views of a mapping. The host's is mapped with mmap, so that accesses after its end fault as with a driver.
pub(super) struct Shadow {
    pages: NonNull<u8>,
    size: usize,
    /// The offset of the mapping in the pages, the same within a page as in the memory.
    lead: usize,
    device: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages are this value's own, and the device's view may be used from any thread.
unsafe impl Send for Shadow {}

impl Shadow {
    /// Pages for `len` bytes that lie at `offset` of the memory; `None` where the system has none.
    ///
    /// # Safety
    /// The device's view has `len` bytes and outlives this value.
    pub(super) unsafe fn new(device: NonNull<u8>, offset: usize, len: usize) -> Option<Self> {
        let lead = offset % PAGE;
        let size = lead.checked_add(len.max(1))?;
        // SAFETY: new pages, at an address of the system's choice.
        let pages = unsafe { libc::mmap(ptr::null_mut(), size, PROTECTION, FLAGS, -1, 0) };
        let pages = NonNull::new(pages.cast::<u8>()).filter(|_| pages != libc::MAP_FAILED)?;
        // SAFETY: just mapped with this size.
        unsafe { pages.write_bytes(POISON, size) };
        Some(Self { pages, size, lead, device, len })
    }

    /// The host's view.
    pub(super) fn host(&self) -> NonNull<u8> {
        // SAFETY: the pages begin with the lead.
        unsafe { self.pages.add(self.lead) }
    }

    /// Copies bytes `start..end` of the mapping to the device.
    pub(super) fn flush(&self, start: usize, end: usize) {
        let (host, device) = self.at(start, end);
        // SAFETY: both views have the range, and lie apart.
        unsafe { device.copy_from_nonoverlapping(host, end - start) };
    }

    /// Copies bytes `start..end` of the mapping to the host.
    pub(super) fn invalidate(&self, start: usize, end: usize) {
        let (host, device) = self.at(start, end);
        // SAFETY: both views have the range, and lie apart.
        unsafe { host.copy_from_nonoverlapping(device, end - start) };
    }

    fn at(&self, start: usize, end: usize) -> (NonNull<u8>, NonNull<u8>) {
        assert!(start <= end && end <= self.len, "{start}..{end} of {}", self.len);
        // SAFETY: within the host's view.
        let host = unsafe { self.host().add(start) };
        // SAFETY: within the device's view, by the promise made to `new`.
        let device = unsafe { self.device.add(start) };
        (host, device)
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size, and nobody's view any more.
        unsafe { libc::munmap(self.pages.as_ptr().cast::<c_void>(), self.size) };
    }
}
