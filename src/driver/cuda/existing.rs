//! CUDA's functions on existing memory (properties, descriptors), and on the attributes of devices.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use cudarc::driver::sys::{self, CUdevice, CUdeviceptr};

use super::super::descriptor;
use super::{Cuda, LIBRARY, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, call};
use crate::error::Call;
use crate::{Error, Result};

/// A property of a device; the value is its number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DeviceAttribute {
    /// Whether device memory can be exported as a dma-buf.
    DmaBuf = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED as isize,
    /// Whether the CPU can map such a dma-buf: `CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED` of CUDA 13.3, which cudarc lacks.
    DmaBufMmap = 152,
    /// Whether the device accesses the CPU's memory by the CPU's page tables, so that the CPU caches the device's memory.
    UsesHostPageTables =
        sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES as isize,
}

/// The kind of memory at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The driver does not know the address.
    Unknown,
    Device,
    Host,
    Managed,
}

/// Live memory, as the driver describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryAt {
    pub(crate) placement: Placement,
    pub(crate) device: CUdevice,
    /// Unique in the process ("subsequent allocations do not reuse IDs", CUDA driver API); 0 where the driver gives none.
    pub(crate) buffer_id: c_ulonglong,
    /// The first address of the allocation; of mapped virtual memory (`cuMemMap`), that of the reserved addresses.
    pub(crate) start: CUdeviceptr,
    /// The bytes from `start`; of virtual memory, some of them may have no memory.
    pub(crate) len: usize,
}

impl Cuda {
    /// An integer property of a device, by its number; `CUDA_ERROR_INVALID_VALUE` for one that the driver does not know.
    pub(crate) fn device_attribute(&self, number: c_int, device: CUdevice) -> Result<c_int> {
        let mut value = 0;
        call!(self, cuDeviceGetAttribute(&raw mut value, number, device))?;
        Ok(value)
    }

    /// The memory at an address.
    pub(crate) fn memory_at(&self, address: CUdeviceptr) -> Result<MemoryAt> {
        use sys::CUpointer_attribute as Attribute;
        // Whether the driver writes one byte or four for a boolean is not documented.
        let (mut memory_type, mut device, mut managed) = (0_u32, 0_i32, 0_u32);
        let (mut buffer_id, mut start, mut len) = (0_u64, 0_u64, 0_usize);
        let attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as c_uint,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as c_uint,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as c_uint,
            Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID as c_uint,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as c_uint,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as c_uint,
        ];
        let mut values: [*mut c_void; 6] = [
            (&raw mut memory_type).cast(),
            (&raw mut device).cast(),
            (&raw mut managed).cast(),
            (&raw mut buffer_id).cast(),
            (&raw mut start).cast(),
            (&raw mut len).cast(),
        ];
        call!(self, cuPointerGetAttributes(6, attributes.as_ptr(), values.as_mut_ptr(), address))?;
        let placement = match memory_type {
            MEMORY_TYPE_DEVICE | MEMORY_TYPE_HOST if managed & 0xff != 0 => Placement::Managed,
            MEMORY_TYPE_DEVICE => Placement::Device,
            MEMORY_TYPE_HOST => Placement::Host,
            _ => Placement::Unknown,
        };
        Ok(MemoryAt { placement, device, buffer_id, start, len })
    }

    /// The id of the physical allocation at an address of device memory, unique in the process.
    pub(crate) fn memory_block_id(&self, address: CUdeviceptr) -> Result<c_ulonglong> {
        let mut id = 0_u64;
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID as c_uint;
        let mut value: *mut c_void = (&raw mut id).cast();
        call!(self, cuPointerGetAttributes(1, &raw const attribute, &raw mut value, address))?;
        Ok(id)
    }

    /// The allocation that contains an address, or the mapping of virtual memory: its first address and its bytes. A context
    /// must be current.
    pub(crate) fn address_range(&self, address: CUdeviceptr) -> Result<(CUdeviceptr, usize)> {
        let (mut start, mut len) = (0, 0);
        call!(self, cuMemGetAddressRange_v2(&raw mut start, &raw mut len, address))?;
        Ok((start, len))
    }

    /// A new descriptor, a dma-buf, of a range of device memory in whole pages of 64 KiB. It keeps the pages alive. A
    /// context of the device must be current. With `pcie` the range is accessed through the PCIe BAR, even where there
    /// is another way.
    ///
    /// # Errors
    ///
    /// [`Error::Symbol`] before CUDA 11.7, and the errors of `cuMemGetHandleForAddressRange`.
    pub(crate) fn dma_buf(&self, start: CUdeviceptr, len: usize, pcie: bool) -> Result<OwnedFd> {
        let Some(get_handle) = self.table.cuMemGetHandleForAddressRange else {
            return Err(Error::Symbol { library: LIBRARY, symbol: Call::ExportDmaBuf.name() });
        };
        let mut fd: c_int = -1;
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD as c_uint;
        let flags =
            if pcie { sys::CUmemRangeFlags::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE as c_ulonglong } else { 0 };
        // SAFETY: the output is a live integer, as this type of handle wants it, and the driver checks the range.
        self.check(Call::ExportDmaBuf, unsafe { get_handle(ptr::from_mut(&mut fd).cast(), start, len, kind, flags) })?;
        // SAFETY: a new descriptor, which the driver gave to the caller.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // No driver promises it.
        descriptor::close_on_exec(&fd)?;
        Ok(fd)
    }
}
