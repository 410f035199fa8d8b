//! The host view: words that the device may read and write at the same time.
#![expect(unsafe_code, reason = "reads and writes through raw pointers")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use vkgdr::Memory;

use crate::cuda::Answer;
use crate::vulkan::Allocation;

/// Host memory as 32-bit words, each read and written by one volatile access.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    first: *mut u32,
    count: usize,
    owner: PhantomData<&'a ()>,
}

impl<'a> Words<'a> {
    /// The host view of memory of the library under test.
    pub(crate) fn of(memory: &'a Memory) -> Answer<Self> {
        let first = memory.host_ptr().ok_or("this memory has no host view")?.as_ptr().cast();
        Ok(Self { first, count: memory.len() / 4, owner: PhantomData })
    }

    /// Maps `len` bytes of Vulkan memory, which must be host-visible and not mapped yet.
    pub(crate) fn map(allocation: &'a Allocation<'_>, len: usize) -> Answer<Self> {
        Ok(Self { first: allocation.map()?.cast(), count: len / 4, owner: PhantomData })
    }

    /// The first `len` bytes from a page's start on; `pages` must have a page more.
    pub(crate) fn whole_pages(pages: &'a mut [u32], len: usize) -> Self {
        let start = pages.as_ptr().align_offset(4096);
        Self { first: pages[start..].as_mut_ptr(), count: len / 4, owner: PhantomData }
    }

    pub(crate) const fn as_ptr(&self) -> *mut u8 {
        self.first.cast()
    }

    fn word(&self, index: usize) -> *mut u32 {
        assert!(index < self.count, "word {index} of {}", self.count);
        // SAFETY: within the memory, as asserted; the owner keeps it mapped.
        unsafe { self.first.add(index) }
    }

    pub(crate) fn get(&self, index: usize) -> u32 {
        // SAFETY: `word` gives an aligned pointer into mapped memory.
        unsafe { ptr::read_volatile(self.word(index)) }
    }

    pub(crate) fn set(&self, index: usize, value: u32) {
        // SAFETY: `word` gives an aligned pointer into mapped memory.
        unsafe { ptr::write_volatile(self.word(index), value) };
    }

    /// Copies out of the memory. The device must be idle.
    pub(crate) fn read(&self, target: &mut [u32]) {
        assert!(target.len() <= self.count, "{} words of {}", target.len(), self.count);
        // SAFETY: both hold that many words, as asserted, and cannot overlap.
        unsafe { ptr::copy_nonoverlapping(self.first, target.as_mut_ptr(), target.len()) };
    }

    /// Copies into the memory. The device must be idle.
    pub(crate) fn write(&self, source: &[u32]) {
        assert!(source.len() <= self.count, "{} words of {}", source.len(), self.count);
        // SAFETY: both hold that many words, as asserted, and cannot overlap.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), self.first, source.len()) };
    }
}

/// The first bytes of a file, mapped shared, to read and write, until this value is dropped.
pub(crate) struct MappedFile {
    start: *mut u8,
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

    pub(crate) const fn words(&self) -> Words<'_> {
        Words { first: self.start.cast(), count: self.len / 4, owner: PhantomData }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped when this value was created; users have ended, since they borrow it.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Orders the CPU's stores, including those in write-combining buffers.
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
