//! The host view of a dma-buf: words that the device may read and write at the same time.
#![expect(unsafe_code, reason = "reads and writes through raw pointers")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use crate::cuda::Answer;

/// The first bytes of a file, mapped shared, to read and write, until this value is dropped.
pub(crate) struct MappedFile {
    pub(crate) start: *mut u32,
    len: usize,
}

impl MappedFile {
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize) -> Answer<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(format!("mmap: {}", io::Error::last_os_error()));
        }
        Ok(Self { start: start.cast(), len })
    }

    fn word(&self, index: usize) -> *mut u32 {
        assert!(index < self.len / 4, "word {index} of {} bytes", self.len);
        // SAFETY: within the mapping, as asserted.
        unsafe { self.start.add(index) }
    }

    pub(crate) fn get(&self, index: usize) -> u32 {
        // SAFETY: `word` gives an aligned pointer into mapped memory.
        unsafe { ptr::read_volatile(self.word(index)) }
    }

    /// Writes a word, before all later stores.
    pub(crate) fn set(&self, index: usize, value: u32) {
        // SAFETY: `word` gives an aligned pointer into mapped memory.
        unsafe { ptr::write_volatile(self.word(index), value) };
        store_fence();
    }

    /// Copies the first words out of the memory. The device must be idle.
    pub(crate) fn read(&self, target: &mut [u32]) {
        assert!(size_of_val(target) <= self.len, "{} words of {} bytes", target.len(), self.len);
        // SAFETY: both hold that many words, as asserted, and cannot overlap.
        unsafe { ptr::copy_nonoverlapping(self.start, target.as_mut_ptr(), target.len()) };
    }

    /// Copies into the first words of the memory, before all later stores. The device must be idle.
    pub(crate) fn write(&self, source: &[u32]) {
        assert!(size_of_val(source) <= self.len, "{} words of {} bytes", source.len(), self.len);
        // SAFETY: both hold that many words, as asserted, and cannot overlap.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), self.start, source.len()) };
        store_fence();
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped when this value was created, and used through it alone.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Orders the CPU's stores, including those in write-combining buffers.
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    fence(Ordering::SeqCst);
}
