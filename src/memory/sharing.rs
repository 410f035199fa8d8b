//! Sharing memory: descriptors for other processes and for network cards, host views of others' CUDA memory
//! ([`Memory::map_existing`]), and the memory at an address ([`memory_of`]).
#![expect(
    unsafe_code,
    reason = "imports descriptors that the caller vouches for, and makes aliases of memory that others hold"
)]

use std::os::fd::OwnedFd;

use cudarc::driver::sys::CUdeviceptr;

use super::Memory;
use crate::addresses;
use crate::allocation::existing::{self, ExistingRange};
use crate::allocation::{Allocation, Exported};
use crate::device;
use crate::driver::fork;
use crate::{Error, MemoryKind, NoMapping, Result, Vkgdr};

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
    /// Exports the memory as a new file descriptor. [`import_fd`](Self::import_fd) imports it in this process, or in
    /// another that received the descriptor (over a Unix socket, for example).
    ///
    /// May be called any number of times. The descriptor is close-on-exec. While it is open it keeps the bytes alive,
    /// but not this memory. Imported memory can be exported again: it keeps a duplicate of the descriptor that it
    /// was imported from.
    ///
    /// # Errors
    ///
    /// [`Error::Pooled`] for memory of a pool and for a slice, which share an allocation with other memory.
    /// [`Error::NoExport`] for memory that CUDA allocated, [`Error::Forked`], [`Error::System`], and the errors of
    /// `vkGetMemoryFdKHR`.
    pub fn export_fd(&self) -> Result<OwnedFd> {
        if self.inner.home.is_some() || self.len != self.inner.len {
            return Err(Error::Pooled);
        }
        self.allocation().export()
    }

    /// Imports memory that this or another process exported: both share the bytes.
    ///
    /// The context and the drop policy are chosen as by [`allocate`](Self::allocate). The bytes are freed with the last
    /// memory that shares them. The descriptor is consumed, even on failure.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate), and [`Error::System`] when the process has no descriptors left.
    /// `VK_ERROR_INVALID_EXTERNAL_HANDLE` for a descriptor that the driver does not recognise as exported memory.
    /// [`Error::OutOfRange`] for host memory that is shorter than `len`, in whole pages, and does not come from Vulkan.
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
        Self::make(owner, |context| Allocation::import(owner, context, &exported, len, kind))
    }

    /// A new descriptor of the memory that a network card can register, with the place of this memory or slice in it.
    ///
    /// For memory that CUDA allocated: with [`AllocateOptions::with_dma_buf`](crate::AllocateOptions::with_dma_buf),
    /// video memory of a handle without Vulkan, and existing memory ([`map_existing`](Self::map_existing)). The
    /// descriptor or a registration keeps the pages alive, but once the memory is freed their bytes may be used for
    /// other memory. End the registration first.
    ///
    /// # Errors
    ///
    /// [`Error::NoDmaBuf`] for other memory, [`Error::NoMapping`] for existing memory that was freed, [`Error::Forked`], and
    /// the errors of entering the memory's context and of `cuMemGetHandleForAddressRange`.
    pub fn dma_buf(&self) -> Result<DmaBuf> {
        fork::check()?;
        let allocation = self.allocation();
        let (fd, start) = allocation.context().run(|| allocation.dma_buf())?;
        // From here on a card may use the memory.
        let offset = start + (self.device_ptr() - allocation.device_ptr());
        Ok(DmaBuf { fd, offset, len: self.len() })
    }
}

/// Memory that others allocated.
impl Memory {
    /// The granularity in bytes of the pages that [`map_existing`](Self::map_existing) maps.
    pub const EXISTING_PAGE: usize = existing::PAGE;

    /// Maps `len` bytes of others' CUDA memory for the CPU, such as that of `cudaMalloc`, PyTorch or numba. It does not map that
    /// of `cuMemAllocAsync`, as cudarc's slices are. The result is of kind [`Mapped`](crate::MemoryKind::Mapped) and does what
    /// other memory does: copies, fills, flush, guards, slices.
    ///
    /// The driver must support CUDA 13.3 (R610) and the GPU allow it ([`Vkgdr::supports_existing`]): workstation and
    /// data-centre boards, and no known GeForce. Elsewhere, allocate with [`allocate`](Self::allocate).
    ///
    /// Of a [`Memory`] that has a host view, it gives a [`slice`](Self::slice), which keeps the memory alive, on every GPU.
    /// [`RawMemory`](crate::RawMemory) is others' memory here.
    ///
    /// The handle's primary context is used if it retains that, otherwise the current context, which must belong to the
    /// handle's device. The memory may be another context's. A drop ends the host's view alone.
    ///
    /// The CPU maps whole pages of 64 KiB, so that its address space also shows the bytes around the range. Mappings of one
    /// allocation share them. An allocation of up to 32 MiB is mapped as a whole, of a larger one only the pages of the range.
    /// No descriptor stays open. A forked child inherits the pages where the driver allows that.
    ///
    /// # Errors
    ///
    /// [`Error::NoMapping`] with the reason and what works instead. [`Error::OutOfRange`] for bytes beyond the end of the
    /// allocation, or of virtual memory beyond that of one `cuMemMap`. [`Error::NoHostView`] for memory that Vulkan allocated and
    /// the CPU does not see. `CUDA_ERROR_INVALID_CONTEXT`, [`Error::WrongDevice`], [`Error::Forked`], and the errors of
    /// `cuMemGetHandleForAddressRange` and `mmap`.
    ///
    /// # Safety
    ///
    /// The result is an alias of the bytes. It neither keeps memory of others alive nor notices when that is freed: drop it and its
    /// clones first. Its safe methods may write any bytes: every other holder must allow that, and must not use references to
    /// the bytes meanwhile.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use vkgdr::{Memory, OpenFlags, Vkgdr};
    ///
    /// # let (device_ptr, len) = (0, 4096);
    /// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    /// // SAFETY: plain bytes, which nothing else uses until `view` is dropped.
    /// let view = unsafe { Memory::map_existing(&gpu, device_ptr, len) }?;
    /// view.write(0, &[1.0_f32, 2.0])?;
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub unsafe fn map_existing(owner: &Vkgdr, device_ptr: CUdeviceptr, len: usize) -> Result<Self> {
        Self::alias(owner, device_ptr, len, false)
    }

    /// [`map_existing`](Self::map_existing), with gdrcopy's choice of the path.
    ///
    /// # Safety
    ///
    /// See [`map_existing`](Self::map_existing).
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub unsafe fn map_existing_with(
        owner: &Vkgdr,
        device_ptr: CUdeviceptr,
        len: usize,
        flags: crate::MappingFlags,
    ) -> Result<Self> {
        let pcie = crate::flags::checked(flags)?.contains(crate::MappingFlags::FORCE_PCIE);
        Self::alias(owner, device_ptr, len, pcie)
    }

    fn alias(owner: &Vkgdr, device_ptr: CUdeviceptr, len: usize, pcie: bool) -> Result<Self> {
        fork::check()?;
        if let Some(ours) = slice_of_ours(owner, device_ptr, len)? {
            return Ok(ours);
        }
        let map = || ExistingRange::map(owner.device(), device_ptr, len, pcie);
        Self::make(owner, |context| Allocation::of_existing(owner, context, map()?))
    }

    /// [`map_existing_with`](Self::map_existing_with) for memory of others, as gdrcopy pins it: the whole pages around the range,
    /// with others' memory there. All must be pages of the allocation at the first byte.
    ///
    /// # Safety
    ///
    /// See [`map_existing`](Self::map_existing), for all bytes of the pages.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub unsafe fn map_existing_pages(owner: &Vkgdr, device_ptr: CUdeviceptr, len: usize, pcie: bool) -> Result<Self> {
        fork::check()?;
        let map = || ExistingRange::map_whole_pages(owner.device(), device_ptr, len, pcie);
        Self::make(owner, |context| Allocation::of_existing(owner, context, map()?))
    }

    /// Whether memory of others is still the one that was mapped: false once it was freed, also if other memory has its address
    /// (`CU_POINTER_ATTRIBUTE_BUFFER_ID`). The answer may be out of date when it arrives, unless the caller knows that
    /// nothing frees the memory meanwhile. True for memory of this crate.
    ///
    /// # Errors
    ///
    /// For memory of others [`Error::Forked`], and the errors of `cuPointerGetAttributes`.
    pub fn is_current(&self) -> Result<bool> {
        self.existing().map_or(Ok(true), ExistingRange::is_current)
    }

    fn existing(&self) -> Option<&ExistingRange> {
        self.allocation().existing()
    }
}

/// A slice of memory of this crate; `None` for other memory, and for memory without a host view that CUDA allocated.
fn slice_of_ours(owner: &Vkgdr, device_ptr: CUdeviceptr, len: usize) -> Result<Option<Memory>> {
    let refuse = |reason| Err(Error::NoMapping { address: device_ptr, reason });
    // It may have been found by its host address, which is no device address.
    let found = addresses::memory_at(device_ptr);
    let Some((memory, offset)) = found.filter(|(memory, offset)| memory.device_ptr() + *offset as u64 == device_ptr)
    else {
        return Ok(None);
    };
    let device = memory.owner().device();
    if device != owner.device() {
        return refuse(NoMapping::OtherDevice { device, expected: owner.device() });
    }
    if len == 0 {
        return refuse(NoMapping::Empty);
    }
    let slice = memory.slice(offset..offset.saturating_add(len))?;
    match slice.host_ptr() {
        Some(_) => Ok(Some(slice)),
        None if !memory.allocation().memory_type().is_vulkan() => Ok(None),
        None => Err(Error::NoHostView { kind: memory.kind() }),
    }
}

impl Vkgdr {
    /// Whether the CPU can map memory that others allocated on this GPU ([`Memory::map_existing`]). Needs no current context.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and the errors of `cuDriverGetVersion` and `cuDeviceGetAttribute`.
    pub fn supports_existing(&self) -> Result<bool> {
        match device::check_mapping(self.device()) {
            Ok(()) => Ok(true),
            Err(Error::NoMapping { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The memory that contains an address, and the offset of the address in it.
///
/// `address` is a device or a host address of any byte. The result is one more reference to all of the memory: it keeps the
/// memory alive, and can do what any other [`Memory`] can. Dropping it frees the memory only if it is the last.
///
/// `None` for other addresses, for freed memory, for [`RawMemory`](crate::RawMemory), for memory that
/// others allocated, and in a forked child. Each copy of this library in a process, such as a C library's beside a Rust program's,
/// knows its own memory. Memory that another thread frees meanwhile is either kept alive or not found.
///
/// # Safety
///
/// The result is an alias: a holder of the memory may have `&mut` to it, and an exclusive slice of its bytes.
///
/// # Examples
///
/// ```no_run
/// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
/// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
/// // SAFETY: `memory` has lent nothing.
/// let found = unsafe { vkgdr::memory_of(memory.device_ptr() + 64) };
/// let (found, offset) = found.expect("memory of this process");
/// assert_eq!((found.len(), offset), (4096, 64));
/// found.write(offset, &[1_u8])?;
/// # Ok::<(), vkgdr::Error>(())
/// ```
#[must_use]
pub unsafe fn memory_of(address: u64) -> Option<(Memory, usize)> {
    // In a forked child, another thread of the parent may hold the lock for ever.
    if fork::is_forked() { None } else { addresses::memory_at(address) }
}
