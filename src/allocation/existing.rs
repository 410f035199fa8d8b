//! [`ExistingRange`]: pages of CUDA memory that the CPU maps by a dma-buf.
//!
//! The pages belong to others' allocations, or to this crate's own from `cuMemAlloc`.
//!
//! Mappings of one allocation share the pages. An allocation of up to [`WHOLE`] bytes is mapped as a whole, since a program
//! that maps one part of it is likely to map others; of a larger one, which may not fit the BAR, only the pages of the
//! range are.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use crate::device::dma_buf;
use crate::driver::cuda::{AllocationAt, Placement, cuda};
use crate::driver::dma_buf::MappedDmaBuf;
use crate::lock::Lock;
use crate::{Error, NoMapping, Result};

/// The granularity of mappings in bytes: a small page of the GPU, which is also gdrcopy's `GPU_PAGE_SIZE`.
pub(crate) const PAGE: usize = 64 << 10;

/// The largest allocation, in bytes of whole pages, that is mapped as a whole: an eighth of a BAR that was not resized.
const WHOLE: usize = 32 << 20;

/// The mappings in use, including mappings of memory that was freed since.
static MAPPED: Lock<Vec<Weak<MappedPages>>> = Lock::new(Vec::new());

/// Whole pages of one allocation, mapped.
#[derive(Debug)]
struct MappedPages {
    allocation: AllocationAt,
    first: CUdeviceptr,
    len: usize,
    pcie: bool,
    host: MappedDmaBuf,
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
    pub(super) fn map(device: CUdevice, address: CUdeviceptr, len: usize, pcie: bool) -> Result<Self> {
        let allocation = find(device, address, len)?;
        let (start, end) = (allocation.start, allocation.start + allocation.len as u64);
        let whole = pages_around(start, end - start)?;
        let part = pages_around(address, len as u64)?;
        let pages = match shared(&allocation, part, pcie) {
            Some(pages) => pages,
            None if whole.1 <= WHOLE && whole != part => {
                // A BAR that is nearly full may have room for the pages of the range.
                MappedPages::map(allocation, whole, pcie).or_else(|_| MappedPages::map(allocation, part, pcie))?
            }
            None => MappedPages::map(allocation, part, pcie)?,
        };
        Ok(Self { pages, address, len })
    }

    pub(super) fn host_ptr(&self) -> NonNull<u8> {
        let offset = usize::try_from(self.address - self.pages.first).unwrap_or(0);
        NonNull::new(self.pages.host.start().as_ptr().wrapping_add(offset)).unwrap_or(NonNull::dangling())
    }

    pub(super) const fn device_ptr(&self) -> CUdeviceptr {
        self.address
    }

    /// The pages around the range: the first address and the bytes.
    pub(crate) fn pages(&self) -> (CUdeviceptr, usize) {
        pages_around(self.address, self.len as u64).unwrap_or((self.pages.first, self.pages.len))
    }

    /// Whether the driver has the same allocation at the address as when it was mapped.
    pub(crate) fn is_current(&self) -> Result<bool> {
        self.pages.is_current()
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
    fn map(allocation: AllocationAt, (first, len): (CUdeviceptr, usize), pcie: bool) -> Result<Arc<Self>> {
        let dma_buf = cuda()?.dma_buf(first, len, pcie)?;
        let host = MappedDmaBuf::new(dma_buf.as_fd(), len)?;
        let pages = Arc::new(Self { allocation, first, len, pcie, host });
        let mut mapped = MAPPED.lock();
        mapped.retain(|other| other.strong_count() > 0);
        mapped.push(Arc::downgrade(&pages));
        Ok(pages)
    }

    fn is_current(&self) -> Result<bool> {
        Ok(cuda()?.allocation_at(self.allocation.start)? == self.allocation)
    }
}

/// Mapped pages that contain all of a range of pages of an allocation.
fn shared(allocation: &AllocationAt, (first, len): (CUdeviceptr, usize), pcie: bool) -> Option<Arc<MappedPages>> {
    // Without an id, memory that was allocated again at the address cannot be told apart.
    if allocation.buffer_id == 0 {
        return None;
    }
    let end = first + len as u64;
    let fits = |pages: &Arc<MappedPages>| {
        pages.allocation == *allocation
            && pages.pcie == pcie
            && pages.first <= first
            && end <= pages.first + pages.len as u64
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

/// The allocation that contains all of a range, if it is memory of `device`.
fn find(device: CUdevice, address: CUdeviceptr, len: usize) -> Result<AllocationAt> {
    let cuda = cuda()?;
    let found = cuda.allocation_at(address)?;
    let refuse = |reason| Err(no_mapping(address, reason));
    match found.placement {
        Placement::Unknown => return refuse(NoMapping::Unknown),
        Placement::Managed => return refuse(NoMapping::Managed),
        Placement::Host => return refuse(NoMapping::Host),
        Placement::Device if found.device != device => {
            return refuse(NoMapping::OtherDevice { device: found.device, expected: device });
        }
        Placement::Device => {}
    }
    if len == 0 {
        return refuse(NoMapping::Empty);
    }
    dma_buf::check_mapping(device).map_err(|error| match error {
        Error::NoMapping { reason, .. } => no_mapping(address, reason),
        other => other,
    })?;
    let offset = usize::try_from(address.saturating_sub(found.start)).unwrap_or(usize::MAX);
    if offset <= found.len && len <= found.len - offset {
        Ok(found)
    } else {
        Err(Error::OutOfRange { offset, len, size: found.len })
    }
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
