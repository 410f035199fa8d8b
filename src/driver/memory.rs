//! [`CudaMemory`]: memory of Vulkan that CUDA imported and mapped, registered pages, or memory that CUDA allocated.
//! [`LockedPages`]: pages of this process that are registered.
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
use crate::Result;
use crate::error::{Call, CudaCode};
use crate::report::log_failure;

/// CUDA's side of an allocation of Vulkan's or of pages, or device memory of CUDA's.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    /// 0 until it is mapped, and once it has been released.
    pointer: CUdeviceptr,
    origin: Origin,
}

/// What there is to release besides the mapping.
#[derive(Debug)]
enum Origin {
    /// Nothing: CUDA's own memory is its mapping.
    Own,
    Imported(Handle<CUexternalMemory>),
    /// Registered pages, by their first byte. The registration is the mapping, too.
    Registered(Handle<*mut u8>),
}

impl CudaMemory {
    /// Allocates `size` bytes of device memory.
    pub(crate) fn allocate(size: usize) -> Result<Self> {
        let (cuda, mut pointer) = (cuda()?, 0);
        call!(cuda, cuMemAlloc_v2(&raw mut pointer, size))?;
        Ok(Self { pointer, origin: Origin::Own })
    }

    /// Registers the pages of `len` bytes, so that kernels can access them.
    ///
    /// # Safety
    ///
    /// The pages must stay mapped until this value is released.
    pub(crate) unsafe fn register(start: NonNull<u8>, len: usize) -> Result<Self> {
        let (cuda, start, mut pointer) = (cuda()?, start.as_ptr(), 0);
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        call!(cuda, cuMemHostRegister_v2(start.cast(), len, flags))?;
        let mut registered = Self { pointer: 0, origin: Origin::Registered(Handle(start)) };
        call!(cuda, cuMemHostGetDevicePointer_v2(&raw mut pointer, start.cast(), 0))?;
        registered.pointer = pointer;
        Ok(registered)
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
        let mut imported = Self { pointer: 0, origin: Origin::Imported(Handle(external)) };
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
        match (mem::take(&mut self.pointer), &self.origin) {
            (0, _) | (_, Origin::Registered(_)) => Ok(()),
            (pointer, _) => cuda().and_then(|cuda| cuda.despite_captures(|| call!(cuda, cuMemFree_v2(pointer)))),
        }
    }

    #[inline]
    fn destroy(&mut self) -> Result<()> {
        match mem::replace(&mut self.origin, Origin::Own) {
            Origin::Own => Ok(()),
            Origin::Imported(Handle(memory)) => {
                cuda().and_then(|cuda| cuda.despite_captures(|| call!(cuda, cuDestroyExternalMemory(memory))))
            }
            Origin::Registered(Handle(pages)) => {
                cuda().and_then(|cuda| cuda.despite_captures(|| call!(cuda, cuMemHostUnregister(pages.cast()))))
            }
        }
    }

    /// Forgets the handles, after CUDA released the memory with its context.
    pub(crate) fn abandon(&mut self) {
        (self.pointer, self.origin) = (0, Origin::Own);
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

/// Page-locked pages of a file, for `Host` memory.
///
/// They are mapped here and not by the driver (`cuMemHostAlloc`), so that they stay mapped when the context is destroyed while
/// the CPU copies to them.
#[derive(Debug)]
pub(crate) struct LockedPages {
    /// Ends before the pages are unmapped.
    cuda: CudaMemory,
    pages: Mapping,
}

impl LockedPages {
    const TRIES: usize = 4;

    /// Maps the first `len` bytes of a file, a multiple of the page size, and registers them in the current context.
    ///
    /// The driver may still have a stale registration at the new address: of pages that were unmapped without being
    /// unregistered, or of a context that another thread is destroying. Then this takes other pages.
    pub(crate) fn map_file(file: BorrowedFd<'_>, len: usize) -> Result<Self> {
        // Kept mapped, so that the next pages are different ones.
        let mut refused = Vec::new();
        loop {
            let pages = Mapping::shared(file, len)?;
            // SAFETY: the pages stay mapped until the registration ends.
            match unsafe { CudaMemory::register(pages.start(), pages.len()) } {
                Err(error)
                    if error.cuda_code() == Some(CudaCode::ALREADY_REGISTERED) && refused.len() < Self::TRIES =>
                {
                    refused.push(pages);
                }
                registered => return registered.map(|cuda| Self { cuda, pages }),
            }
        }
    }

    /// The first byte. Valid while this value lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.pages.start()
    }

    /// The device address of the pages.
    pub(crate) const fn device_ptr(&self) -> CUdeviceptr {
        self.cuda.pointer()
    }

    /// Unregisters in the current context. A second call does nothing.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.cuda.release()
    }

    /// Forgets the registration, which CUDA removed with the context.
    pub(crate) fn abandon(&mut self) {
        self.cuda.abandon();
    }
}
