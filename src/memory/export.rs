//! Memory as descriptors: [`Memory::export_fd`], [`Memory::import_fd`] and [`DmaBuf`].
//!
//! The first two share memory with other processes; network cards register a dma-buf.
#![expect(unsafe_code, reason = "imports a descriptor that the caller vouches for")]

use std::os::fd::OwnedFd;

use super::Memory;
use crate::allocation::{Allocation, Exported};
use crate::driver::fork;
use crate::{Error, MemoryKind, Result, Vkgdr};

/// A descriptor of device memory that a network card can register: the arguments of
/// `ibv_reg_dmabuf_mr(pd, offset, len, iova, fd, access)`.
#[derive(Debug)]
pub struct DmaBuf {
    /// The descriptor, a dma-buf. It keeps the pages alive.
    pub fd: OwnedFd,
    /// Where the memory begins in the dma-buf, in bytes.
    pub offset: u64,
    /// The bytes of the memory.
    pub len: usize,
}

impl Memory {
    /// Exports the memory as a new file descriptor, which [`import_fd`](Self::import_fd) imports in this process or in
    /// another that received the descriptor (over a Unix socket, for example).
    ///
    /// May be called any number of times. The descriptor is close-on-exec. While it is open it keeps the bytes alive,
    /// but not this memory. Imported memory can be exported again: where the driver does not do that, the memory keeps a
    /// duplicate of the descriptor that it was imported from.
    ///
    /// # Errors
    ///
    /// [`Error::Pooled`] for memory of a pool and for a slice, which share an allocation with other memory,
    /// [`Error::NoExport`] for memory that CUDA allocated, [`Error::Forked`], [`Error::System`], and the errors of
    /// `vkGetMemoryFdKHR`.
    pub fn export_fd(&self) -> Result<OwnedFd> {
        if !self.is_whole() {
            return Err(Error::Pooled { operation: "export_fd" });
        }
        self.block().allocation().export()
    }

    /// Imports memory that this or another process exported: both share the bytes.
    ///
    /// The context and the drop policy are chosen as by [`allocate`](Self::allocate). The bytes are freed with the last
    /// memory that shares them. The descriptor is consumed, even on failure.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate), `VK_ERROR_INVALID_EXTERNAL_HANDLE` for a descriptor that the driver
    /// does not recognise as exported memory, [`Error::OutOfRange`] for host memory that is shorter than `len` and does not come
    /// from Vulkan, and [`Error::System`] when the process has no descriptors left.
    ///
    /// # Safety
    ///
    /// The descriptor must come from [`export_fd`](Self::export_fd) of memory with the same `len` and `kind`, on the
    /// same GPU ([`Vkgdr::uuid`]) with the same driver. Both handles must use the same memory type for that kind
    /// ([`Vkgdr::memory_type_of`]), which handles opened with the same flags do. The drivers check none of this. Host
    /// memory that does not come from Vulkan is recognised, and may be imported whichever memory type the importer's
    /// own is.
    pub unsafe fn import_fd(owner: &Vkgdr, fd: OwnedFd, len: usize, kind: MemoryKind) -> Result<Self> {
        // SAFETY: by this function's contract.
        let exported = unsafe { Exported::new(fd) };
        Self::import(owner, &exported, len, kind)
    }

    /// [`import_fd`](Self::import_fd), with what is known of the memory.
    pub(crate) fn import(owner: &Vkgdr, exported: &Exported, len: usize, kind: MemoryKind) -> Result<Self> {
        Self::make(owner, || Allocation::import(owner, exported, len, kind))
    }
}

impl Memory {
    /// A new descriptor of the memory that a network card can register, with the place of this memory or slice in it.
    ///
    /// For memory that CUDA allocated: with [`AllocateOptions::with_dma_buf`](crate::AllocateOptions::with_dma_buf),
    /// video memory of a handle without Vulkan, and existing memory ([`map_existing`](Self::map_existing)). The
    /// descriptor or a registration keeps the pages alive, but once the memory is freed their bytes may be used for
    /// other memory: end the registration first.
    ///
    /// # Errors
    ///
    /// [`Error::NoDmaBuf`] for other memory, [`Error::NoMapping`] for existing memory that was freed, [`Error::Forked`], and
    /// the errors of entering the memory's context and of `cuMemGetHandleForAddressRange`.
    pub fn dma_buf(&self) -> Result<DmaBuf> {
        fork::check()?;
        let block = self.block();
        let (fd, start) = block.context().run(|| block.allocation().dma_buf())?;
        // From here on a card may use the memory.
        let offset = start + (self.device_ptr() - block.allocation().device_ptr());
        Ok(DmaBuf { fd, offset, len: self.len() })
    }
}
