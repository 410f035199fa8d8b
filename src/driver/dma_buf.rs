//! Host mappings of dma-bufs.
#![expect(unsafe_code, reason = "maps and unmaps pages")]

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::descriptor::system;
use super::{Handle, fork};
use crate::Result;

/// The first bytes of a dma-buf, mapped to read and write until this value is dropped.
///
/// Forked children inherit the mapping, as they inherit mappings of Vulkan's memory: its pages are never copied on
/// write.
#[derive(Debug)]
pub(crate) struct MappedDmaBuf {
    start: Handle<*mut u8>,
    len: usize,
}

impl MappedDmaBuf {
    /// Maps `len` bytes, whole pages. The descriptor may be closed afterwards: the mapping keeps the pages.
    pub(crate) fn new(dma_buf: BorrowedFd<'_>, len: usize) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let start =
            unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, dma_buf, 0) }.map_err(system("mmap"))?;
        Ok(Self { start: Handle(start.cast()), len })
    }

    /// The first byte. Valid while this value lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        NonNull::new(self.start.0).expect("a mapping is not at address 0")
    }
}

impl Drop for MappedDmaBuf {
    fn drop(&mut self) {
        // A forked child may have mapped other pages there.
        if !fork::is_forked() {
            // SAFETY: mapped when this value was created, which is the only owner.
            let unmapped = unsafe { munmap(self.start.0.cast(), self.len) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}
