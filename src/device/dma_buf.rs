//! A device's support for dma-bufs: export, mapping by the CPU, caching.
#![forbid(unsafe_code)]

use cudarc::driver::sys::CUdevice;

use super::memory_type::MemoryType;
use crate::driver::cuda::{DeviceAttribute, cuda};
use crate::driver::fork;
use crate::error::CudaCode;
use crate::{Error, NoMapping, OpenFlags, Result};

/// The first driver that maps dma-bufs, as `cuDriverGetVersion` reports it: CUDA 13.3, R610.
const FIRST_VERSION: i32 = 13_030;

/// Fails unless the driver exports memory of the device.
pub(crate) fn check_export(device: CUdevice) -> Result<()> {
    match cuda()?.device_attribute(DeviceAttribute::DmaBuf as i32, device) {
        Ok(0) => refuse(NoMapping::NoExport { device }),
        Err(error) if is_unknown(&error) => refuse(NoMapping::NoExport { device }),
        answer => answer.map(|_| ()),
    }
}

/// Fails unless the driver and the device let the CPU map device memory.
pub(crate) fn check_mapping(device: CUdevice) -> Result<()> {
    fork::check()?;
    let cuda = cuda()?;
    let version = cuda.version()?;
    if version < FIRST_VERSION {
        return refuse(NoMapping::Driver { version });
    }
    check_export(device)?;
    match cuda.device_attribute(DeviceAttribute::DmaBufMmap as i32, device) {
        Ok(0) => refuse(NoMapping::NoMmap { device }),
        Err(error) if is_unknown(&error) => refuse(NoMapping::NoMmap { device }),
        answer => answer.map(|_| ()),
    }
}

/// Whether the CPU caches such mappings: where the GPU is coherent with it, unless the mapping goes through the PCIe
/// BAR.
fn is_cached(device: CUdevice, pcie: bool) -> Result<bool> {
    if pcie {
        return Ok(false);
    }
    match cuda()?.device_attribute(DeviceAttribute::UsesHostPageTables as i32, device) {
        Ok(value) => Ok(value != 0),
        Err(error) if is_unknown(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The type of mapped memory that CUDA allocates on the device.
pub(crate) fn memory_type(device: CUdevice, pcie: bool, flags: OpenFlags) -> Result<MemoryType> {
    let size = cuda()?.device_total_memory(device)?;
    Ok(MemoryType::for_dma_buf(size, is_cached(device, pcie)?, flags))
}

/// The type of memory without a host view that CUDA allocates on the device.
pub(crate) fn device_memory_type(device: CUdevice) -> Result<MemoryType> {
    Ok(MemoryType::for_cuda(cuda()?.device_total_memory(device)?))
}

/// Whether an error says that the driver does not know an attribute.
fn is_unknown(error: &Error) -> bool {
    error.cuda_code() == Some(CudaCode::INVALID_VALUE)
}

fn refuse<T>(reason: NoMapping) -> Result<T> {
    Err(Error::NoMapping { address: 0, reason })
}
