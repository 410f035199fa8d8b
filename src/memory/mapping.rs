//! [`Mapping`]: a host view of CUDA memory that this crate did not allocate.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Deref;

use cudarc::driver::sys::CUdeviceptr;

use super::lookup::memory_of;
use crate::allocation::Allocation;
use crate::allocation::existing::{self, ExistingRange};
use crate::chunk::{Block, ChunkRef, FreeChunk};
use crate::device::{Source, dma_buf};
use crate::driver::fork;
use crate::region::Region;
use crate::{Error, MappingFlags, NoMapping, Result, Vkgdr};

/// A host view of CUDA memory that this crate did not allocate, such as that of `cudaMalloc`, PyTorch or numba.
///
/// It dereferences to a [`Region`] of kind [`Mapped`](crate::MemoryKind::Mapped) with both pointers, so that it does what
/// memory of this crate does: copies by the CPU and the GPU's copy engine, fills, flush, guards, parts.
///
/// The driver must support CUDA 13.3 (R610) and the GPU allow it ([`Vkgdr::supports_existing`]): workstation and
/// data-centre boards, and no known GeForce. Elsewhere, allocate with [`Memory`](crate::Memory).
///
/// For memory of this crate, a mapping is an ordinary region: it keeps the memory alive, and works on every GPU.
///
/// # Lifetime of the memory
///
/// A mapping of foreign memory neither keeps it alive nor notices when it is freed: drop the mapping first. Otherwise the CPU
/// still sees the old pages. It may use them without a fault, but they may belong to another allocation by then, and copies by
/// the GPU's copy engine access whatever is at the device address by then. [`is_current`](Self::is_current) asks the driver.
///
/// # Pages
///
/// The CPU maps whole pages of 64 KiB, so that its address space also shows the bytes around the range. Mappings of one
/// allocation share them. An allocation of up to 32 MiB is mapped as a whole, of a larger one only the pages of the range.
/// No descriptor stays open.
///
/// # Forks
///
/// A forked child inherits the mapped pages where the driver allows that. Everything that needs a driver is
/// [`Error::Forked`] there, and a drop leaves the pages alone.
///
/// # Examples
///
/// ```no_run
/// use vkgdr::{Mapping, OpenFlags, Vkgdr};
///
/// # let (device_ptr, len) = (0, 4096);
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let view = Mapping::of(&gpu, device_ptr, len)?;
/// view.write(0, &[1.0_f32, 2.0])?;
/// # Ok::<(), vkgdr::Error>(())
/// ```
pub struct Mapping(Region);

impl Mapping {
    /// The granularity of mappings in bytes.
    pub const PAGE: usize = existing::PAGE;

    /// Maps `len` bytes at a device address for the CPU.
    ///
    /// The handle's primary context is used if it retains that, otherwise the current context, which must belong to the
    /// handle's device. The memory may be another context's.
    ///
    /// # Errors
    ///
    /// [`Error::NoMapping`] with the reason and what works instead, [`Error::OutOfRange`] for bytes beyond the end of the
    /// allocation, [`Error::NoHostView`] for memory of this crate that the CPU does not see, `CUDA_ERROR_INVALID_CONTEXT`,
    /// [`Error::WrongDevice`], [`Error::Forked`], and those of `cuMemGetHandleForAddressRange` and `mmap`.
    pub fn of(owner: &Vkgdr, device_ptr: CUdeviceptr, len: usize) -> Result<Self> {
        Self::with_flags(owner, device_ptr, len, MappingFlags::empty())
    }

    /// [`of`](Self::of) with a choice of how the CPU reaches the memory.
    ///
    /// # Errors
    ///
    /// Those of [`of`](Self::of), and [`Error::UnknownFlags`].
    pub fn with_flags(owner: &Vkgdr, device_ptr: CUdeviceptr, len: usize, flags: MappingFlags) -> Result<Self> {
        let pcie = flags.checked()?.contains(MappingFlags::FORCE_PCIE);
        if let Some(ours) = Self::of_ours(owner, device_ptr, len)? {
            return Ok(ours);
        }
        let block = Block::dedicated(owner, || Allocation::of_existing(owner, device_ptr, len, pcie))?;
        let chunk = FreeChunk::dedicated(block);
        Ok(Self(Region::new(ChunkRef::new(chunk, len), len)))
    }

    /// A view of memory of this crate, which it keeps alive; `None` for other memory, and for memory without a host view that
    /// CUDA allocated.
    fn of_ours(owner: &Vkgdr, device_ptr: CUdeviceptr, len: usize) -> Result<Option<Self>> {
        let refuse = |reason| Err(Error::NoMapping { address: device_ptr, reason });
        let Some((memory, _)) = memory_of(device_ptr) else { return Ok(None) };
        // It may have been found by its host address, which is no device address.
        let offset = device_ptr.checked_sub(memory.device_ptr()).and_then(|offset| usize::try_from(offset).ok());
        let Some(offset) = offset.filter(|&offset| offset < memory.len()) else { return Ok(None) };
        let device = memory.owner().device();
        if device != owner.device() {
            return refuse(NoMapping::OtherDevice { device, expected: owner.device() });
        }
        if len == 0 {
            return refuse(NoMapping::Empty);
        }
        let region = memory.region(offset..offset.saturating_add(len))?;
        match region.host_ptr() {
            Some(_) => Ok(Some(Self(region))),
            None if memory.block().allocation().memory_type().source == Source::Cuda => Ok(None),
            None => Err(Error::NoHostView { kind: memory.kind() }),
        }
    }

    /// The whole pages around the range that are mapped: their first device address and their bytes. The host's mapping begins
    /// as many bytes before [`host_ptr`](Region::host_ptr) as this address is before [`device_ptr`](Region::device_ptr).
    #[must_use]
    pub fn pages(&self) -> (CUdeviceptr, usize) {
        self.existing().map_or((self.0.device_ptr(), self.0.len()), ExistingRange::pages)
    }

    /// Whether the memory is still the one that was mapped: false once it was freed, also if other memory has its address
    /// (`CU_POINTER_ATTRIBUTE_BUFFER_ID`). The answer may be out of date when it arrives, unless the caller knows that
    /// nothing frees the memory meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and the errors of `cuPointerGetAttributes`.
    pub fn is_current(&self) -> Result<bool> {
        fork::check()?;
        self.existing().map_or(Ok(true), ExistingRange::is_current)
    }

    /// Ends the mapping as a drop does, but returns the driver's error.
    ///
    /// # Errors
    ///
    /// Those of [`Memory::free`](crate::Memory::free) for memory of this crate, of which the mapping may be the last reference.
    /// For other memory it never fails in this version.
    pub fn unmap(self) -> Result<()> {
        self.0.free()
    }

    /// The region that this mapping is. It keeps the pages mapped.
    #[must_use]
    pub fn into_region(self) -> Region {
        self.0
    }

    fn existing(&self) -> Option<&ExistingRange> {
        self.0.block().allocation().existing()
    }
}

impl Deref for Mapping {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mapping").field(&self.0).finish()
    }
}

impl Vkgdr {
    /// Whether the CPU can map memory that others allocated on this GPU ([`Mapping`]). Needs no current context.
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
