//! [`MemoryInfo`], and queries of the driver and of GPUs: devices, an address's device, memory types, attributes, counts, and
//! whether CUDA's own memory can be exported as a dma-buf and mapped by the CPU.
#![forbid(unsafe_code)]

use std::fmt;

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use super::Vkgdr;
use super::memory_type::{MemoryType, MemoryTypeInfo, Source};
use crate::addresses;
use crate::driver::cuda::{DeviceAttribute, cuda};
use crate::driver::os;
use crate::error::CudaCode;
use crate::{Error, MemoryKind, NoMapping, OpenFlags, Result};

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
    /// From the system: host memory that does not come from Vulkan. `total` is all of the system's memory, `available`
    /// what programs can take of it without swapping (`MemAvailable` in `/proc/meminfo`).
    System,
    /// From `cuMemGetInfo`: device and mapped memory that CUDA allocates, not Vulkan. `total` is all of the GPU's
    /// memory, `available` its free memory.
    Cuda,
}

impl fmt::Display for MemoryInfoSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Budget => "budget",
            Self::Heap => "heap size",
            Self::System => "system",
            Self::Cuda => "cuMemGetInfo",
        })
    }
}

/// The number of CUDA devices that this process sees. Initialises the CUDA driver.
///
/// # Errors
///
/// [`Error::Library`] and [`Error::Symbol`] when the driver is missing or
/// too old, the driver's errors, such as `CUDA_ERROR_NO_DEVICE`, and [`Error::Forked`].
pub fn device_count() -> Result<i32> {
    let cuda = cuda()?;
    cuda.init()?;
    cuda.device_count()
}

/// The CUDA device that owns the memory at an address; for a device address of this crate's host memory, the device for which
/// it is mapped. `None` for other addresses, such as plain host addresses. Initialises the CUDA driver. For addresses of foreign
/// memory a context must be current.
///
/// # Errors
///
/// The errors of [`device_count`], and `CUDA_ERROR_INVALID_CONTEXT` when a context is needed and none is current.
pub fn pointer_device(address: CUdeviceptr) -> Result<Option<CUdevice>> {
    let cuda = cuda()?;
    cuda.init()?;
    addresses::device_of(address).map_or_else(|| cuda.pointer_device(address), |device| Ok(Some(device)))
}

/// The newest CUDA version that the installed driver supports, as `1000 * major + 10 * minor`: 12080 is CUDA 12.8.
/// Loads the driver, after which a forked child cannot use it, and does not initialise it.
///
/// # Errors
///
/// The errors of [`device_count`].
pub fn driver_version() -> Result<i32> {
    cuda()?.version()
}

impl Vkgdr {
    /// How much memory of a type there is. For [`Source::Cuda`] and [`Source::DmaBuf`] a context of the device must be
    /// current.
    pub(crate) fn amount(&self, memory_type: &MemoryType) -> Result<MemoryInfo> {
        let MemoryTypeInfo { heap, heap_size: total, .. } = memory_type.info;
        let (available, source) = match memory_type.source {
            Source::Vulkan => match self.vulkan()?.device().heap_budget(heap) {
                Some(available) => (available, MemoryInfoSource::Budget),
                None => (total, MemoryInfoSource::Heap),
            },
            Source::RegisteredPages => (os::available_memory(), MemoryInfoSource::System),
            Source::Cuda | Source::DmaBuf => (cuda()?.free_memory()?, MemoryInfoSource::Cuda),
        };
        Ok(MemoryInfo { total, available, source })
    }

    /// Every memory type of the GPU, in Vulkan's order. None without Vulkan.
    #[must_use]
    pub fn memory_types(&self) -> Vec<MemoryTypeInfo> {
        self.vulkan().map(|vulkan| vulkan.memory_types()).unwrap_or_default()
    }

    /// The memory type that this handle allocates a kind of memory from. The type for `Host` changes once a driver refuses
    /// to share Vulkan's host memory, see [`MemoryKind::Host`].
    ///
    /// # Errors
    ///
    /// [`Error::NoSuitableMemoryType`] when the GPU has no such memory, and for
    /// memory that needs Vulkan the error of starting Vulkan.
    pub fn memory_type_of(&self, kind: MemoryKind) -> Result<MemoryTypeInfo> {
        self.memory_type(kind).map(|memory_type| memory_type.info)
    }

    /// The GPU's PCI address: domain, bus, device and function in hexadecimal digits, such as `0000:41:00.0`.
    ///
    /// # Errors
    ///
    /// The error of `cuDeviceGetPCIBusId`, and [`Error::Forked`].
    pub fn pci_bus_id(&self) -> Result<String> {
        cuda()?.device_pci_bus_id(self.device())
    }

    /// An attribute of the device by its number in `CUdevice_attribute`, which may be newer than this crate.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub fn attribute(&self, number: i32) -> Result<i32> {
        cuda()?.device_attribute(number, self.device())
    }

    /// The number of deferred frees of this GPU, on all handles of the process: memory, Vulkan's buffers and images,
    /// and semaphores that were dropped and wait until the device has finished with them. Free memory of a
    /// [`Pool`](crate::Pool) does not count, unless the pool was dropped. See [`collect`](Self::collect).
    #[must_use]
    pub fn deferred_frees(&self) -> usize {
        self.gpu().retired().len()
    }

    /// The number of live allocations of this GPU, on all handles of the process, including those that wait to be
    /// released.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn live_allocations(&self) -> u32 {
        self.gpu().live_allocations()
    }
}

/// The first driver that maps dma-bufs, as `cuDriverGetVersion` reports it: CUDA 13.3, R610.
const FIRST_VERSION: i32 = 13_030;

/// Whether the device has an attribute; false where the driver does not know it.
fn has_attribute(attribute: DeviceAttribute, device: CUdevice) -> Result<bool> {
    match cuda()?.device_attribute(attribute as i32, device) {
        Err(error) if error.cuda_code() == Some(CudaCode::INVALID_VALUE) => Ok(false),
        answer => answer.map(|value| value != 0),
    }
}

/// Fails unless the driver exports memory of the device.
pub(crate) fn check_export(device: CUdevice) -> Result<()> {
    if has_attribute(DeviceAttribute::DmaBuf, device)? { Ok(()) } else { refuse(NoMapping::NoExport { device }) }
}

/// Fails unless the driver and the device let the CPU map device memory.
pub(crate) fn check_mapping(device: CUdevice) -> Result<()> {
    let version = cuda()?.version()?;
    if version < FIRST_VERSION {
        return refuse(NoMapping::Driver { version });
    }
    check_export(device)?;
    if has_attribute(DeviceAttribute::DmaBufMmap, device)? { Ok(()) } else { refuse(NoMapping::NoMmap { device }) }
}

/// The type of mapped memory that CUDA allocates on the device. The CPU caches it where the GPU is coherent with it, unless the
/// mapping goes through the PCIe BAR.
pub(crate) fn mapped_memory_type(device: CUdevice, pcie: bool, flags: OpenFlags) -> Result<MemoryType> {
    let size = cuda()?.device_total_memory(device)?;
    let cached = !pcie && has_attribute(DeviceAttribute::UsesHostPageTables, device)?;
    Ok(MemoryType::for_dma_buf(size, cached, flags))
}

/// The type of memory without a host view that CUDA allocates on the device.
pub(crate) fn device_memory_type(device: CUdevice) -> Result<MemoryType> {
    Ok(MemoryType::for_cuda(cuda()?.device_total_memory(device)?))
}

fn refuse<T>(reason: NoMapping) -> Result<T> {
    Err(Error::NoMapping { address: 0, reason })
}
