//! [`CudaMemory`]: memory of Vulkan that CUDA imported and mapped, or memory that CUDA allocated. [`LockedPages`]: memory of this
//! process that is registered with CUDA.
//!
//! Both belong to the context that is current when they are created, and must be released in it.
#![expect(unsafe_code, reason = "hands its live handles and pages to the driver")]

use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::{mem, ptr};

use cudarc::driver::sys::{
    self, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdeviceptr, CUexternalMemory,
};

use super::Handle;
use super::cuda::{call, cuda};
use super::os::Mapping;
use crate::error::{Call, CudaCode};
use crate::report::report;
use crate::{Error, Result};

/// CUDA's side of an allocation of Vulkan's, or device memory of CUDA's.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    /// 0 once it has been released.
    pointer: CUdeviceptr,
    /// The imported memory that is mapped there; null for CUDA's own.
    external: Handle<CUexternalMemory>,
}

impl CudaMemory {
    /// Allocates `size` bytes of device memory.
    pub(crate) fn allocate(size: usize) -> Result<Self> {
        let (cuda, mut pointer) = (cuda()?, 0);
        call!(cuda, cuMemAlloc_v2(&raw mut pointer, size))?;
        Ok(Self { pointer, external: Handle(ptr::null_mut()) })
    }

    /// Imports the memory object behind `fd`, which has `size` bytes and may be a dedicated allocation, and maps all of it. There
    /// is only one mapping: CUDA does not guarantee that several are coherent with each other (CUDA driver API,
    /// cuExternalMemoryGetMappedBuffer).
    ///
    /// # Safety
    ///
    /// `fd` must be an opaque file descriptor of a memory object of exactly `size` bytes, and `dedicated` say whether that is
    /// a dedicated allocation.
    pub(crate) unsafe fn import(fd: OwnedFd, size: u64, dedicated: bool) -> Result<Self> {
        let (cuda, mut external) = (cuda()?, ptr::null_mut());
        let import = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd: fd.as_raw_fd() },
            size,
            flags: if dedicated { sys::CUDA_EXTERNAL_MEMORY_DEDICATED } else { 0 },
            reserved: [0; 16],
        };
        call!(cuda, cuImportExternalMemory(&raw mut external, &raw const import) as Call::ImportMemory)?;
        // After success the driver owns the descriptor (CUDA driver API, cuImportExternalMemory).
        let _ = fd.into_raw_fd();
        let mut imported = Self { pointer: 0, external: Handle(external) };
        let map = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size, flags: 0, reserved: [0; 16] };
        let mut pointer = 0;
        call!(cuda, cuExternalMemoryGetMappedBuffer(&raw mut pointer, external, &raw const map) as Call::MapImported)?;
        imported.pointer = pointer;
        Ok(imported)
    }

    pub(crate) const fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    /// Releases the mapping, then the memory, also if the first fails; returns the first error. A second call does nothing.
    #[inline]
    pub(crate) fn release(&mut self) -> Result<()> {
        let freed = self.free();
        freed.and(self.destroy())
    }

    #[inline]
    fn free(&mut self) -> Result<()> {
        match mem::take(&mut self.pointer) {
            0 => Ok(()),
            pointer => cuda().and_then(|cuda| cuda.despite_captures(|| call!(cuda, cuMemFree_v2(pointer)))),
        }
    }

    #[inline]
    fn destroy(&mut self) -> Result<()> {
        match mem::replace(&mut self.external, Handle(ptr::null_mut())).0 {
            memory if memory.is_null() => Ok(()),
            memory => cuda().and_then(|cuda| cuda.despite_captures(|| call!(cuda, cuDestroyExternalMemory(memory)))),
        }
    }

    /// Forgets the handles, after CUDA released the memory with its context.
    pub(crate) fn abandon(&mut self) {
        (self.pointer, self.external) = (0, Handle(ptr::null_mut()));
    }
}

impl Drop for CudaMemory {
    #[inline]
    fn drop(&mut self) {
        for release in [Self::free, Self::destroy] {
            log_failure("memory", release(self));
        }
    }
}

/// Page-locked memory, private for a copy engine, or shared for `Host` memory.
///
/// The pages are mapped here and not by the driver (`cuMemHostAlloc`), so that they stay mapped when the context is
/// destroyed while the CPU copies to them.
#[derive(Debug)]
pub(crate) struct LockedPages {
    registered: bool,
    /// Unmapped after they were unregistered.
    pages: Mapping,
}

impl LockedPages {
    const TRIES: usize = 4;

    /// `len` private bytes, a multiple of the page size, in the current context.
    pub(crate) fn new(len: usize) -> Result<Self> {
        Self::lock(0, || Mapping::private(len))
    }

    /// The first `len` bytes of a file, a multiple of the page size, in the current context. Kernels can access them.
    pub(crate) fn map_file(file: BorrowedFd<'_>, len: usize) -> Result<Self> {
        Self::lock(sys::CU_MEMHOSTREGISTER_DEVICEMAP, || Mapping::shared(file, len))
    }

    /// Maps and registers pages.
    ///
    /// The driver may still have a stale registration at the new address: of pages that were unmapped without being
    /// unregistered, or of a context that another thread is destroying. Then this takes other pages.
    fn lock(flags: u32, map: impl Fn() -> Result<Mapping>) -> Result<Self> {
        let cuda = cuda()?;
        // Kept mapped, so that the next pages are different ones.
        let mut refused = Vec::new();
        loop {
            let pages = map()?;
            let flags = flags | sys::CU_MEMHOSTREGISTER_PORTABLE;
            // The pages stay mapped until they are unregistered.
            match call!(cuda, cuMemHostRegister_v2(pages.start().as_ptr().cast(), pages.len(), flags)) {
                Err(error)
                    if error.cuda_code() == Some(CudaCode::ALREADY_REGISTERED) && refused.len() < Self::TRIES =>
                {
                    refused.push(pages);
                }
                registered => return registered.map(|()| Self { registered: true, pages }),
            }
        }
    }

    /// The first byte. Valid while this value lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.pages.start()
    }

    /// The device address of pages that kernels can access, in the current context.
    pub(crate) fn device_ptr(&self) -> Result<CUdeviceptr> {
        let (cuda, mut pointer) = (cuda()?, 0);
        call!(cuda, cuMemHostGetDevicePointer_v2(&raw mut pointer, self.start().as_ptr().cast(), 0))?;
        Ok(pointer)
    }

    /// Unregisters in the current context. A second call does nothing.
    pub(crate) fn release(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.registered) {
            return Ok(());
        }
        let (cuda, start) = (cuda()?, self.start().as_ptr());
        // Nothing of the device uses the pages: see `leave`.
        cuda.despite_captures(|| call!(cuda, cuMemHostUnregister(start.cast())))
    }

    /// Leaks the pages, still locked: a copy engine may still use them.
    pub(crate) fn leave(&mut self) {
        self.registered = false;
        self.pages.leave();
    }

    /// Forgets the registration, which CUDA removed with the context.
    pub(crate) fn abandon(&mut self) {
        self.registered = false;
    }
}

impl Drop for LockedPages {
    fn drop(&mut self) {
        log_failure("locked pages", self.release());
    }
}

/// Logs why a drop could not release something of CUDA's.
pub(super) fn log_failure(what: &str, released: Result<()>) {
    match released {
        // A forked child leaves what it inherited to its parent.
        Ok(()) | Err(Error::Forked) => {}
        Err(error) => report!(Warn, "releasing {what}: {error}"),
    }
}
