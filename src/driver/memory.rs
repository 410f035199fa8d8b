//! [`CudaMemory`]: memory of Vulkan that CUDA imported and mapped, registered pages, or memory that CUDA allocated.
//!
//! It belongs to the context that is current when it is created, and must be released in it.
#![expect(unsafe_code, reason = "hands its live handles and pages to the driver")]

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use cudarc::driver::sys::{
    self, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdeviceptr, CUexternalMemory,
};

use super::Handle;
use super::cuda::{Cuda, call, cuda};
use super::os::Mapping;
use crate::Result;
use crate::error::{Call, CudaCode};
use crate::report::log_failure;

/// CUDA's side of an allocation of Vulkan's or of pages, or device memory of CUDA's.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    /// 0 until it is mapped.
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
        call!(cuda, cuMemHostRegister_v2(start.cast(), len, flags) as Call::RegisterPages)?;
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

    /// Releases the mapping, then the memory, also if the first fails; returns the first error.
    #[inline]
    pub(crate) fn release(self) -> Result<()> {
        let [freed, destroyed] = ManuallyDrop::new(self).end();
        freed.and(destroyed)
    }

    /// Ends the mapping, then the memory. Called once.
    #[inline]
    fn end(&self) -> [Result<()>; 2] {
        let call = |work: &dyn Fn(&Cuda) -> Result<()>| cuda().and_then(|cuda| cuda.despite_captures(|| work(cuda)));
        let freed = match (self.pointer, &self.origin) {
            (0, _) | (_, Origin::Registered(_)) => Ok(()),
            (pointer, _) => call(&|cuda| call!(cuda, cuMemFree_v2(pointer))),
        };
        let destroyed = match self.origin {
            Origin::Own => Ok(()),
            Origin::Imported(Handle(memory)) => call(&|cuda| call!(cuda, cuDestroyExternalMemory(memory))),
            Origin::Registered(Handle(pages)) => call(&|cuda| call!(cuda, cuMemHostUnregister(pages.cast()))),
        };
        [freed, destroyed]
    }
}

impl Drop for CudaMemory {
    #[inline]
    fn drop(&mut self) {
        for released in self.end() {
            log_failure("memory", released);
        }
    }
}

/// Maps the first `len` bytes of a file, a multiple of the page size, and registers the pages in the current context. The
/// registration must end before they are unmapped.
///
/// They are mapped here, not by the driver (`cuMemHostAlloc`): they stay mapped when the context is destroyed while the CPU
/// copies to them. The driver may still have a stale registration at the new address. It is of pages that were unmapped
/// without being unregistered, or of a context that another thread is destroying. Then this takes other pages.
pub(crate) fn lock_pages(file: BorrowedFd<'_>, len: usize) -> Result<(CudaMemory, Mapping)> {
    const TRIES: usize = 4;
    // Kept mapped, so that the next pages are different ones.
    let mut refused = Vec::new();
    loop {
        let pages = Mapping::shared(file, len)?;
        // SAFETY: the pages stay mapped until the registration ends, by this function's contract.
        match unsafe { CudaMemory::register(pages.start(), len) } {
            Err(error) if error.cuda_code() == Some(CudaCode::ALREADY_REGISTERED) && refused.len() < TRIES => {
                refused.push(pages);
            }
            registered => return registered.map(|cuda| (cuda, pages)),
        }
    }
}
