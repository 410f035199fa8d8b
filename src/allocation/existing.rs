//! [`ExistingRange`]: pages of CUDA memory that the CPU maps by a dma-buf.
//!
//! The pages belong to others' allocations, or to this crate's own from `cuMemAlloc`.
//!
//! Mappings of one allocation share the pages. An allocation of up to [`WHOLE`] bytes is mapped as a whole, since a
//! program that maps one part is likely to map others. A larger one may not fit the BAR: only the pages of the range
//! are mapped. Of virtual memory, a range must lie in one `cuMemMap`: NVIDIA's kernel module maps only the first of
//! several (`nv_dma_buf_mmap`, open-gpu-kernel-modules pull request 1072).
#![forbid(unsafe_code)]

use std::ffi::c_ulonglong;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use crate::device;
use crate::driver::cuda::{MemoryAt, Placement, cuda};
use crate::driver::os::Mapping;
use crate::lock::Lock;
use crate::range;
use crate::{Error, NoMapping, Result};

/// The granularity of mappings in bytes: a small page of the GPU, which is also gdrcopy's `GPU_PAGE_SIZE`.
pub(crate) const PAGE: usize = 64 << 10;

/// The largest allocation, in bytes of whole pages, that is mapped as a whole: an eighth of a BAR that was not resized.
const WHOLE: usize = 32 << 20;

/// The mappings in use, including mappings of memory that was freed since.
static MAPPED: Lock<Vec<Weak<MappedPages>>> = Lock::new(Vec::new());

/// An allocation, or a mapping of virtual memory.
#[derive(Debug, Clone, Copy)]
struct CudaRange {
    memory: MemoryAt,
    /// Of virtual memory, `memory` may describe the addresses, whichever memory they have.
    block_id: c_ulonglong,
    start: CUdeviceptr,
    len: usize,
    /// The address in it that the driver was asked about.
    asked: CUdeviceptr,
}

/// Whole pages, mapped.
#[derive(Debug)]
struct MappedPages {
    backing: CudaRange,
    first: CUdeviceptr,
    len: usize,
    pcie: bool,
    host: Mapping,
}

/// A range of existing memory, and the mapped pages around it.
#[derive(Debug)]
pub(crate) struct ExistingRange {
    pages: Arc<MappedPages>,
    address: CUdeviceptr,
    len: usize,
}

impl ExistingRange {
    /// Maps the pages around a range of device memory in the current context, unless they are mapped already.
    pub(crate) fn map(device: CUdevice, address: CUdeviceptr, len: usize, pcie: bool) -> Result<Self> {
        Self::map_in(find(device, address, len)?, address, len, pcie)
    }

    /// [`map`](Self::map) for all bytes of those pages, also others' memory there. All must be pages of the allocation at
    /// `address`.
    pub(crate) fn map_whole_pages(device: CUdevice, address: CUdeviceptr, len: usize, pcie: bool) -> Result<Self> {
        let backing = find(device, address, len.min(1))?;
        let (start, all) = pages_around(backing.start, backing.len as u64)?;
        let part = pages_around(address, len as u64).ok().filter(|part| part.0 + part.1 as u64 <= start + all as u64);
        let (first, len) = part.ok_or_else(|| {
            let offset = usize::try_from(address - backing.start).expect("usize has 64 bits");
            Error::OutOfRange { offset, len, size: backing.len }
        })?;
        Self::map_in(backing, first, len, pcie)
    }

    fn map_in(backing: CudaRange, address: CUdeviceptr, len: usize, pcie: bool) -> Result<Self> {
        let whole = pages_around(backing.start, backing.len as u64)?;
        let part = pages_around(address, len as u64)?;
        let pages = match shared(&backing, part, pcie) {
            Some(pages) => pages,
            None if whole.1 <= WHOLE && whole != part => {
                // A BAR that is nearly full may have room for the pages of the range.
                MappedPages::map(backing, whole, pcie).or_else(|_| MappedPages::map(backing, part, pcie))?
            }
            None => MappedPages::map(backing, part, pcie)?,
        };
        Ok(Self { pages, address, len })
    }

    pub(super) fn host_ptr(&self) -> NonNull<u8> {
        let offset = usize::try_from(self.address - self.pages.first).expect("usize has 64 bits");
        NonNull::new(self.pages.host.start().as_ptr().wrapping_add(offset)).expect("a mapping is not at address 0")
    }

    /// The range's address and bytes, and whether the CPU reaches them through the PCIe BAR in any case.
    pub(super) fn extent(&self) -> (CUdeviceptr, usize, bool) {
        (self.address, self.len, self.pages.pcie)
    }

    /// Whether the driver has the same memory at the addresses as when it was mapped.
    pub(crate) fn is_current(&self) -> Result<bool> {
        let (cuda, CudaRange { memory, block_id, asked, .. }) = (cuda()?, self.pages.backing);
        Ok(cuda.memory_at(asked)? == memory && cuda.memory_block_id(asked)? == block_id)
    }

    /// A new descriptor of the pages around the range, and the range's offset in it. A context of the device must be
    /// current.
    pub(crate) fn dma_buf(&self) -> Result<(OwnedFd, u64)> {
        if !self.is_current()? {
            return Err(no_mapping(self.address, NoMapping::Freed));
        }
        let MappedPages { first, len, pcie, .. } = *self.pages;
        Ok((cuda()?.dma_buf(first, len, pcie)?, self.address - first))
    }
}

impl MappedPages {
    /// Exports and maps pages, and lists them.
    fn map(backing: CudaRange, (first, len): (CUdeviceptr, usize), pcie: bool) -> Result<Arc<Self>> {
        let dma_buf = cuda()?.dma_buf(first, len, pcie)?;
        let host = Mapping::shared(dma_buf.as_fd(), len)?;
        let pages = Arc::new(Self { backing, first, len, pcie, host });
        let mut mapped = MAPPED.lock();
        mapped.retain(|other| other.strong_count() > 0);
        mapped.push(Arc::downgrade(&pages));
        Ok(pages)
    }
}

/// The memory at an address of `device`.
fn device_memory(device: CUdevice, asked: CUdeviceptr) -> Result<MemoryAt> {
    let memory = cuda()?.memory_at(asked)?;
    let refuse = |reason| Err(no_mapping(asked, reason));
    match memory.placement {
        Placement::Unknown => refuse(NoMapping::Unknown),
        Placement::Managed => refuse(NoMapping::Managed),
        Placement::Host => refuse(NoMapping::Host),
        Placement::Device if memory.device != device => {
            refuse(NoMapping::OtherDevice { device: memory.device, expected: device })
        }
        Placement::Device => Ok(memory),
    }
}

impl CudaRange {
    /// Whether it is the same memory. Without an id, memory that was allocated again at the address cannot be told apart.
    fn is(&self, other: &Self) -> bool {
        let known = |of: &Self| (of.memory, of.block_id, of.start, of.len);
        self.memory.buffer_id != 0 && known(self) == known(other)
    }
}

/// Mapped pages that contain all of a range of pages.
fn shared(backing: &CudaRange, (first, len): (CUdeviceptr, usize), pcie: bool) -> Option<Arc<MappedPages>> {
    let end = first + len as u64;
    let fits = |pages: &Arc<MappedPages>| {
        let is_within = pages.first <= first && end <= pages.first + pages.len as u64;
        is_within && pages.pcie == pcie && pages.backing.is(backing)
    };
    // All are kept until the lock is released: the last reference unmaps.
    let live: Vec<_> = MAPPED.lock().iter().filter_map(Weak::upgrade).collect();
    live.into_iter().find(fits)
}

/// The whole pages around a range: the first address and the bytes.
fn pages_around(address: CUdeviceptr, len: u64) -> Result<(CUdeviceptr, usize)> {
    const PAGE_SIZE: u64 = PAGE as u64;
    let first = address - address % PAGE_SIZE;
    let end = address.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE_SIZE));
    let len = end.and_then(|end| usize::try_from(end - first).ok());
    len.map(|len| (first, len)).ok_or_else(|| no_mapping(address, NoMapping::Unknown))
}

/// The memory of all of a range, if it is memory of `device`, in the current context.
fn find(device: CUdevice, address: CUdeviceptr, len: usize) -> Result<CudaRange> {
    let memory = device_memory(device, address)?;
    if len == 0 {
        return Err(no_mapping(address, NoMapping::Empty));
    }
    device::check_mapping(device).map_err(|error| match error {
        Error::NoMapping { reason, .. } => no_mapping(address, reason),
        other => other,
    })?;
    let cuda = cuda()?;
    let (start, size) = cuda.address_range(address)?;
    range::check(usize::try_from(address - start).expect("usize has 64 bits"), len, size)?;
    Ok(CudaRange { memory, block_id: cuda.memory_block_id(address)?, start, len: size, asked: address })
}

/// A new descriptor of the pages around a range of device memory of this crate, and the range's offset in it. A context of
/// the device must be current.
pub(super) fn export(address: CUdeviceptr, len: usize) -> Result<(OwnedFd, u64)> {
    let (first, pages) = pages_around(address, len as u64)?;
    Ok((cuda()?.dma_buf(first, pages, false)?, address - first))
}

fn no_mapping(address: CUdeviceptr, reason: NoMapping) -> Error {
    Error::NoMapping { address, reason }
}
