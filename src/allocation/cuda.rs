//! [`ExternalMemory`] and [`DeviceMapping`]: memory that CUDA imported, and its mapping, or memory that CUDA allocated.
//!
//! Both belong to the context that is current when they are created, and must be released in it.
#![expect(unsafe_code, reason = "each stage hands its live handle to the driver")]

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr;

use cudarc::driver::sys::{CUdeviceptr, CUexternalMemory};

use crate::driver::Handle;
use crate::driver::cuda::cuda;
use crate::report::report;
use crate::{Error, Result};

/// Memory that CUDA imported.
#[derive(Debug)]
pub(super) struct ExternalMemory {
    /// Null once it has been released.
    handle: Handle<CUexternalMemory>,
}

impl ExternalMemory {
    /// Imports the memory object behind `fd`, which has `size` bytes and may be a dedicated allocation.
    pub(super) fn import(fd: OwnedFd, size: u64, dedicated: bool) -> Result<Self> {
        // SAFETY: the descriptor was exported from an allocation of `size` bytes.
        let handle = unsafe { cuda()?.external_memory_import(fd.as_raw_fd(), size, dedicated) }?;
        // After success the driver owns the descriptor (CUDA driver API, cuImportExternalMemory).
        let _ = fd.into_raw_fd();
        Ok(Self { handle: Handle(handle) })
    }

    #[inline]
    pub(super) fn release(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.handle, Handle(ptr::null_mut())).0 {
            handle if handle.is_null() => Ok(()),
            // SAFETY: the handle is live and was the only one.
            handle => unsafe { cuda()?.external_memory_destroy(handle) },
        }
    }

    /// Forgets the handle, after CUDA destroyed it with its context.
    pub(super) fn abandon(&mut self) {
        self.handle = Handle(ptr::null_mut());
    }
}

impl Drop for ExternalMemory {
    #[inline]
    fn drop(&mut self) {
        log_failure(self.release());
    }
}

/// The device's mapping of a whole [`ExternalMemory`], or memory that CUDA allocated. A mapping must be released before its
/// memory: an owner of both declares the mapping first.
#[derive(Debug)]
pub(super) struct DeviceMapping {
    /// 0 once it has been released.
    pointer: CUdeviceptr,
}

impl DeviceMapping {
    /// Maps all `size` bytes. There is only one mapping: CUDA does not guarantee that several are coherent with each
    /// other (CUDA driver API, cuExternalMemoryGetMappedBuffer).
    pub(super) fn map(external: &ExternalMemory, size: u64) -> Result<Self> {
        // SAFETY: the handle is live, and its memory has `size` bytes.
        let pointer = unsafe { cuda()?.external_memory_map(external.handle.0, size) }?;
        Ok(Self { pointer })
    }

    /// Allocates `size` bytes of device memory.
    pub(super) fn allocate(size: usize) -> Result<Self> {
        Ok(Self { pointer: cuda()?.memory_allocate(size)? })
    }

    pub(super) const fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    #[inline]
    pub(super) fn release(&mut self) -> Result<()> {
        match std::mem::take(&mut self.pointer) {
            0 => Ok(()),
            // SAFETY: the pointer is live, and this value was its only owner.
            pointer => unsafe { cuda()?.memory_free(pointer) },
        }
    }

    /// Forgets the pointer, after CUDA unmapped it with its context.
    pub(super) fn abandon(&mut self) {
        self.pointer = 0;
    }
}

impl Drop for DeviceMapping {
    #[inline]
    fn drop(&mut self) {
        log_failure(self.release());
    }
}

#[inline]
fn log_failure(result: Result<()>) {
    match result {
        // A forked child leaves inherited memory to its parent.
        Ok(()) | Err(Error::Forked) => {}
        Err(error) => report!(Warn, "releasing memory: {error}"),
    }
}
