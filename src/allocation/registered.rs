//! Host memory that is not Vulkan's: the pages of an anonymous file, mapped and registered with CUDA.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use cudarc::driver::sys::CUdeviceptr;

use super::vulkan::Exported;
use crate::device::gpu::CountedAllocation;
use crate::driver::locked_pages::LockedPages;
use crate::driver::{descriptor, memfd, system_memory};
use crate::{Error, Result};

/// Registered pages. Their file is open as long as they live, so that it can be exported: one descriptor per allocation.
#[derive(Debug)]
pub(super) struct RegisteredPages {
    pages: LockedPages,
    device_ptr: CUdeviceptr,
    file: OwnedFd,
    _counted: CountedAllocation,
}

impl RegisteredPages {
    /// At least `len` bytes, in whole pages, registered in the current context.
    pub(super) fn allocate(counted: CountedAllocation, len: u64) -> Result<Self> {
        let len = in_pages(len)?;
        Self::map(counted, memfd::create(len as u64)?, len)
    }

    /// The pages of [`allocate`](Self::allocate) with this `len`, in this or another process, registered in the current
    /// context.
    pub(super) fn import(counted: CountedAllocation, exported: &Exported, len: u64) -> Result<Self> {
        let len = in_pages(len)?;
        // The file's size is sealed: every page of the mapping exists.
        let size = usize::try_from(exported.size()?).expect("usize has 64 bits");
        if len > size {
            return Err(Error::OutOfRange { offset: 0, len, size });
        }
        Self::map(counted, exported.duplicate()?, len)
    }

    fn map(counted: CountedAllocation, file: OwnedFd, len: usize) -> Result<Self> {
        let pages = LockedPages::map_file(file.as_fd(), len)?;
        let device_ptr = pages.device_ptr()?;
        Ok(Self { pages, device_ptr, file, _counted: counted })
    }

    /// A new descriptor of the file.
    pub(super) fn export(&self) -> Result<OwnedFd> {
        descriptor::duplicate(self.file.as_fd())
    }

    pub(super) fn host_ptr(&self) -> NonNull<u8> {
        self.pages.start()
    }

    pub(super) const fn device_ptr(&self) -> CUdeviceptr {
        self.device_ptr
    }

    /// Unregisters the pages in the current context, and unmaps them. A second call does nothing.
    pub(super) fn release(&mut self) -> Result<()> {
        self.pages.release()
    }

    /// Forgets the registration, which CUDA removed with its context.
    pub(super) fn abandon(&mut self) {
        self.pages.abandon();
    }
}

/// `len` rounded up to whole pages.
fn in_pages(len: u64) -> Result<usize> {
    let rounded = usize::try_from(len).ok().and_then(|len| len.checked_next_multiple_of(system_memory::page_size()));
    rounded.ok_or(Error::System { operation: "mmap", code: libc::ENOMEM })
}
