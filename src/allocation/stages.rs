//! [`Stages`]: the driver objects of an allocation, one variant for each source of memory.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use cudarc::driver::sys::CUdeviceptr;

use super::cuda::{DeviceMapping, ExternalMemory};
use super::existing::{self, ExistingRange};
use super::registered::RegisteredPages;
use super::vulkan::{Dedication, DeviceMemory, Exported, Layout, Request};
use crate::device::gpu::CountedAllocation;
use crate::driver::fork;
use crate::{Error, MemoryKind, Result};

/// The driver objects of an allocation. [`release`](Self::release) ends them in the order of the fields, except that
/// the mapping in `CudaMapped` lasts until the drop, after `cuMemFree`.
#[derive(Debug)]
pub(super) enum Stages {
    Imported {
        device_mapping: DeviceMapping,
        external: ExternalMemory,
        memory: DeviceMemory,
    },
    Registered(RegisteredPages),
    Cuda {
        device_memory: DeviceMapping,
        _counted: CountedAllocation,
    },
    CudaMapped {
        range: ExistingRange,
        device_memory: DeviceMapping,
        _counted: CountedAllocation,
    },
    /// Not an allocation: the mapping of memory that others allocated.
    Existing(ExistingRange),
}

impl Stages {
    /// Allocates or imports Vulkan's memory, and shares it with CUDA.
    pub(super) fn share(
        counted: CountedAllocation,
        request: Request<'_>,
        kind: MemoryKind,
        exported: Option<&Exported>,
    ) -> Result<Self> {
        let mut memory = match exported {
            None => DeviceMemory::allocate(counted, request),
            Some(exported) => DeviceMemory::import(counted, request, exported),
        }?;
        if kind.has_host_view() {
            memory.map()?;
        }
        // A driver need not export imported memory: its descriptor is duplicated.
        let fd = exported.map_or_else(|| memory.export(), Exported::duplicate)?;
        let external = ExternalMemory::import(fd, memory.size(), request.dedication != Dedication::None)?;
        let device_mapping = DeviceMapping::map(&external, memory.size())?;
        Ok(Self::Imported { device_mapping, external, memory })
    }

    /// The first byte for the CPU, if it sees the memory, and for the device.
    pub(super) fn pointers(&self) -> (Option<NonNull<u8>>, CUdeviceptr) {
        match self {
            Self::Imported { device_mapping, memory, .. } => (memory.host_ptr(), device_mapping.pointer()),
            Self::Registered(pages) => (Some(pages.host_ptr()), pages.device_ptr()),
            Self::Cuda { device_memory, .. } => (None, device_memory.pointer()),
            Self::CudaMapped { range, .. } | Self::Existing(range) => (Some(range.host_ptr()), range.device_ptr()),
        }
    }

    /// How Vulkan's memory was allocated; `None` for other memory.
    pub(super) fn layout(&self) -> Option<Layout> {
        match self {
            Self::Imported { memory, .. } => Some(Layout { size: memory.size(), dedicated: memory.is_dedicated() }),
            _ => None,
        }
    }

    /// A new descriptor of memory of this kind, for other processes.
    pub(super) fn export(&self, kind: MemoryKind) -> Result<OwnedFd> {
        match self {
            Self::Imported { memory, .. } => memory.export(),
            Self::Registered(pages) => pages.export(),
            Self::Cuda { .. } | Self::CudaMapped { .. } | Self::Existing(_) => Err(Error::NoExport { kind }),
        }
    }

    /// A new descriptor of `len` bytes of this kind as a dma-buf, and the offset of the memory in it. Its context must be
    /// current.
    pub(super) fn dma_buf(&self, len: usize, kind: MemoryKind) -> Result<(OwnedFd, u64)> {
        match self {
            Self::Existing(range) | Self::CudaMapped { range, .. } => range.dma_buf(),
            Self::Cuda { device_memory, .. } => existing::export(device_memory.pointer(), len),
            Self::Imported { .. } | Self::Registered(_) => Err(Error::NoDmaBuf { kind }),
        }
    }

    /// Makes the CPU's writes to `(offset, size)`, whole atoms, visible to the device.
    pub(super) fn flush(&self, atoms: (u64, u64)) -> Result<()> {
        match self {
            Self::Imported { memory, .. } => memory.flush(atoms),
            // Coherent: the calls are made only because the handle's flags ask for them.
            Self::Registered(_) | Self::Cuda { .. } | Self::CudaMapped { .. } | Self::Existing(_) => fork::check(),
        }
    }

    /// Makes the device's writes to `(offset, size)`, whole atoms, visible to the CPU.
    pub(super) fn invalidate(&self, atoms: (u64, u64)) -> Result<()> {
        match self {
            Self::Imported { memory, .. } => memory.invalidate(atoms),
            Self::Registered(_) | Self::Cuda { .. } | Self::CudaMapped { .. } | Self::Existing(_) => fork::check(),
        }
    }

    /// Releases every stage in the current context, except mappings of a dma-buf, which the drop releases. A failing
    /// stage does not stop the next; the first error is returned. A second call does nothing.
    #[inline]
    pub(super) fn release(&mut self) -> Result<()> {
        match self {
            Self::Imported { device_mapping, external, memory } => {
                let mapping = device_mapping.release();
                let external = external.release();
                memory.release();
                mapping?;
                external
            }
            Self::Registered(pages) => pages.release(),
            Self::Cuda { device_memory, .. } | Self::CudaMapped { device_memory, .. } => device_memory.release(),
            // Unmapped when the last range of the pages is dropped.
            Self::Existing(_) => Ok(()),
        }
    }

    /// Forgets the objects that CUDA released with their context.
    pub(super) fn abandon(&mut self) {
        match self {
            Self::Imported { device_mapping, external, .. } => {
                device_mapping.abandon();
                external.abandon();
            }
            Self::Registered(pages) => pages.abandon(),
            Self::Cuda { device_memory, .. } | Self::CudaMapped { device_memory, .. } => device_memory.abandon(),
            Self::Existing(_) => {}
        }
    }
}
