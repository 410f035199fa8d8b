//! Queries about a GPU and its driver: how much memory there is, memory types, PCI address, versions.
#![forbid(unsafe_code)]

use std::fmt;

use ash::vk;
use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use super::Vkgdr;
use crate::driver::cuda::cuda;
use crate::driver::process;
use crate::{MemoryKind, Result};

/// How much memory of a kind there is. All in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// The size of the heap that the kind's memory comes from. For mapped memory this is the part of the GPU's memory
    /// that the PCIe BAR exposes.
    pub total: u64,
    /// An estimate of what this process can still allocate from that heap.
    pub available: u64,
    /// Where `available` comes from.
    pub source: MemoryInfoSource,
}

/// Where [`MemoryInfo::available`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryInfoSource {
    /// From `VK_EXT_memory_budget`: the heap's budget, which allows for other processes, less what this process uses.
    Budget,
    /// From the heap's size alone: the driver has no `VK_EXT_memory_budget`, so that memory in use is unknown.
    Heap,
}

impl fmt::Display for MemoryInfoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Budget => "budget",
            Self::Heap => "heap size",
        })
    }
}

/// One of a GPU's memory types, as Vulkan lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryTypeInfo {
    /// Its place in Vulkan's list, from 0.
    pub index: u32,
    /// The place of its heap in Vulkan's list of heaps, from 0.
    pub heap: u32,
    /// The size of that heap in bytes.
    pub heap_size: u64,
    /// The properties of its memory.
    pub flags: vk::MemoryPropertyFlags,
}

/// The number of CUDA devices that this process sees. Initialises the CUDA driver.
///
/// # Errors
///
/// [`Error::Library`](crate::Error::Library) and [`Error::Symbol`](crate::Error::Symbol) when the driver is missing or
/// too old, the driver's errors, such as `CUDA_ERROR_NO_DEVICE`, and [`Error::Forked`](crate::Error::Forked).
pub fn device_count() -> Result<i32> {
    let cuda = cuda()?;
    cuda.init()?;
    cuda.device_count()
}

/// The CUDA device whose memory contains an address; none for other addresses, such as the host's. Initialises the
/// CUDA driver. A context must be current; [`StreamRef::pointer_device`](crate::StreamRef::pointer_device) needs
/// none.
///
/// # Errors
///
/// As [`device_count`], and `CUDA_ERROR_INVALID_CONTEXT` when no context is current.
pub fn pointer_device(address: CUdeviceptr) -> Result<Option<CUdevice>> {
    let cuda = cuda()?;
    cuda.init()?;
    cuda.pointer_device(address)
}

/// The newest CUDA version that the installed driver supports, as `1000 * major + 10 * minor`: 12080 is CUDA 12.8.
/// Does not initialise the driver.
///
/// # Errors
///
/// As [`device_count`].
pub fn driver_version() -> Result<i32> {
    cuda()?.version()
}

impl Vkgdr {
    /// How much memory of a kind there is. Makes one or two system calls: not for hot loops.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuitableMemoryType`](crate::Error::NoSuitableMemoryType) when the GPU has no such memory,
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn memory_info(&self, kind: MemoryKind) -> Result<MemoryInfo> {
        process::check()?;
        let MemoryTypeInfo { heap, heap_size: total, .. } = self.memory_type_of(kind)?;
        Ok(match self.gpu().vulkan().heap_budget(heap) {
            Some(budget) => MemoryInfo { total, available: budget.available, source: MemoryInfoSource::Budget },
            None => MemoryInfo { total, available: total, source: MemoryInfoSource::Heap },
        })
    }

    /// Every memory type of the GPU, in Vulkan's order.
    #[must_use]
    pub fn memory_types(&self) -> Vec<MemoryTypeInfo> {
        self.gpu().memory_types()
    }

    /// The memory type that this handle allocates a kind of memory from.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuitableMemoryType`](crate::Error::NoSuitableMemoryType) when the GPU has no such memory.
    pub fn memory_type_of(&self, kind: MemoryKind) -> Result<MemoryTypeInfo> {
        self.memory_type(kind).map(|memory_type| memory_type.info)
    }

    /// The GPU's PCI address: domain, bus, device and function in hexadecimal digits, such as `0000:41:00.0`.
    ///
    /// # Errors
    ///
    /// The error of `cuDeviceGetPCIBusId`, and [`Error::Forked`](crate::Error::Forked).
    pub fn pci_bus_id(&self) -> Result<String> {
        cuda()?.device_pci_bus_id(self.device())
    }

    /// The number of allocations of this GPU, on all handles of the process, that were dropped and wait until the
    /// device has finished with them. See [`collect`](Self::collect).
    #[must_use]
    pub fn pending_releases(&self) -> usize {
        self.gpu().deferred_frees().len()
    }

    /// The number of live allocations of this GPU, on all handles of the process, including those that wait to be
    /// released.
    #[must_use]
    pub fn live_allocations(&self) -> u32 {
        self.gpu().live_allocations()
    }
}
