//! [`Memory::map_existing`]: a host view of CUDA memory that this crate did not allocate.
#![expect(unsafe_code, reason = "makes an alias of others' memory")]

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;

use super::{Block, Inner, Memory};
use crate::addresses;
use crate::allocation::Allocation;
use crate::allocation::existing::{self, ExistingRange};
use crate::device::{Source, dma_buf};
use crate::driver::fork;
use crate::{Error, MappingFlags, NoMapping, Result, Vkgdr};

/// Memory that others allocated.
impl Memory {
    /// The granularity in bytes of the pages that [`map_existing`](Self::map_existing) maps.
    pub const EXISTING_PAGE: usize = existing::PAGE;

    /// Maps `len` bytes of CUDA memory for the CPU that others allocated, such as that of `cudaMalloc`, PyTorch or
    /// numba. The result is of kind [`Mapped`](crate::MemoryKind::Mapped) and does what other memory does: copies,
    /// fills, flush, guards, slices.
    ///
    /// The driver must support CUDA 13.3 (R610) and the GPU allow it ([`Vkgdr::supports_existing`]): workstation and
    /// data-centre boards, and no known GeForce. Elsewhere, allocate with [`allocate`](Self::allocate).
    ///
    /// Of memory of this crate, it gives a [`slice`](Self::slice), which keeps the memory alive, on every GPU.
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
    /// [`Error::NoMapping`] with the reason and what works instead, [`Error::OutOfRange`] for bytes beyond the end of the
    /// allocation, [`Error::NoHostView`] for memory of this crate that the CPU does not see, `CUDA_ERROR_INVALID_CONTEXT`,
    /// [`Error::WrongDevice`], [`Error::UnknownFlags`], [`Error::Forked`], and those of `cuMemGetHandleForAddressRange` and
    /// `mmap`.
    ///
    /// # Safety
    ///
    /// The result is an alias of the bytes. It neither keeps memory of others alive nor notices when that is freed: drop it and its
    /// clones first. What its safe methods write must be allowed to be any bytes to every other holder, whose references to the
    /// bytes must not be in use meanwhile.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use vkgdr::{MappingFlags, Memory, OpenFlags, Vkgdr};
    ///
    /// # let (device_ptr, len) = (0, 4096);
    /// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    /// // SAFETY: plain bytes, which nothing else uses until `view` is dropped.
    /// let view = unsafe { Memory::map_existing(&gpu, device_ptr, len, MappingFlags::empty()) }?;
    /// view.write(0, &[1.0_f32, 2.0])?;
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub unsafe fn map_existing(
        owner: &Vkgdr,
        device_ptr: CUdeviceptr,
        len: usize,
        flags: MappingFlags,
    ) -> Result<Self> {
        let pcie = flags.checked()?.contains(MappingFlags::FORCE_PCIE);
        fork::check()?;
        if let Some(ours) = slice_of_ours(owner, device_ptr, len)? {
            return Ok(ours);
        }
        let block = Block::new(owner, || Allocation::map_existing(owner, device_ptr, len, pcie))?;
        let access = block.host_access();
        Ok(Self::new(Arc::new(Inner::new(Arc::new(block), (0, len), access, None))))
    }

    /// The whole pages around memory of others that are mapped: their first device address and their bytes; the memory itself if it
    /// is this crate's. The host's mapping begins as many bytes before [`host_ptr`](Self::host_ptr) as this address is before
    /// [`device_ptr`](Self::device_ptr).
    #[must_use]
    pub fn existing_pages(&self) -> (CUdeviceptr, usize) {
        self.existing().map_or((self.device_ptr(), self.len()), ExistingRange::pages)
    }

    /// Whether memory of others is still the one that was mapped: false once it was freed, also if other memory has its address
    /// (`CU_POINTER_ATTRIBUTE_BUFFER_ID`). The answer may be out of date when it arrives, unless the caller knows that
    /// nothing frees the memory meanwhile. True for memory of this crate.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and the errors of `cuPointerGetAttributes`.
    pub fn is_current(&self) -> Result<bool> {
        fork::check()?;
        self.existing().map_or(Ok(true), ExistingRange::is_current)
    }

    /// Whether others allocated the memory ([`map_existing`](Self::map_existing)).
    #[must_use]
    pub fn is_existing(&self) -> bool {
        self.existing().is_some()
    }

    fn existing(&self) -> Option<&ExistingRange> {
        self.block().allocation().existing()
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
        None if memory.block().allocation().memory_type().source == Source::Cuda => Ok(None),
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
        match dma_buf::check_mapping(self.device()) {
            Ok(()) => Ok(true),
            Err(Error::NoMapping { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
