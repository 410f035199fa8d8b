//! CUDA's functions on memory: imports, registration of host pages, allocation, attributes of addresses.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    self, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdevice, CUdeviceptr, CUexternalMemory,
};

use super::{Cuda, call};
use crate::Result;
use crate::error::Call;

// The driver writes these as integers, which may have values that today's enums lack.
const POINTER_MEMORY_TYPE: c_uint = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as c_uint;
const POINTER_DEVICE_ORDINAL: c_uint = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as c_uint;
pub(super) const MEMORY_TYPE_HOST: c_uint = sys::CUmemorytype::CU_MEMORYTYPE_HOST as c_uint;
pub(super) const MEMORY_TYPE_DEVICE: c_uint = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as c_uint;

impl Cuda {
    /// The device of a device address; `None` for host addresses, and for addresses that the driver does not know.
    pub(crate) fn pointer_device(&self, address: CUdeviceptr) -> Result<Option<CUdevice>> {
        let (memory_type, device) = self.pointer_place(address)?;
        Ok(if memory_type == MEMORY_TYPE_DEVICE { Some(device) } else { None })
    }

    /// Whether a host address is in pages that the driver has locked, so that the copy engine can access them.
    pub(crate) fn is_page_locked(&self, address: *const u8) -> Result<bool> {
        let (memory_type, _) = self.pointer_place(address.addr() as CUdeviceptr)?;
        Ok(memory_type == MEMORY_TYPE_HOST)
    }

    /// The memory type and the device of any address; type 0 for one that the driver does not know.
    fn pointer_place(&self, address: CUdeviceptr) -> Result<(c_uint, CUdevice)> {
        let (mut memory_type, mut device) = (0, 0);
        let attributes = [POINTER_MEMORY_TYPE, POINTER_DEVICE_ORDINAL];
        let mut values = [(&raw mut memory_type).cast::<c_void>(), (&raw mut device).cast()];
        call!(self, cuPointerGetAttributes(2, attributes.as_ptr(), values.as_mut_ptr(), address))?;
        Ok((memory_type, device))
    }

    /// The bytes of device memory that are free, of the current context's device.
    pub(crate) fn free_memory(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok(free as u64)
    }

    /// Imports exported Vulkan memory. On success the driver owns `fd`, and keeps it open until the import is destroyed or
    /// for a shorter time.
    ///
    /// # Safety
    ///
    /// `fd` must be an opaque file descriptor of a memory object of exactly `size` bytes, and `dedicated` say whether that is
    /// a dedicated allocation.
    pub(crate) unsafe fn external_memory_import(
        &self,
        fd: c_int,
        size: u64,
        dedicated: bool,
    ) -> Result<CUexternalMemory> {
        let desc = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd },
            size,
            flags: if dedicated { sys::CUDA_EXTERNAL_MEMORY_DEDICATED } else { 0 },
            reserved: [0; 16],
        };
        let mut memory = ptr::null_mut();
        call!(self, cuImportExternalMemory(&raw mut memory, &raw const desc) as Call::ImportMemory)?;
        Ok(memory)
    }

    /// # Safety
    ///
    /// `memory` must be a live imported memory of at least `size` bytes.
    pub(crate) unsafe fn external_memory_map(&self, memory: CUexternalMemory, size: u64) -> Result<CUdeviceptr> {
        let desc = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size, flags: 0, reserved: [0; 16] };
        let mut pointer = 0;
        call!(self, cuExternalMemoryGetMappedBuffer(&raw mut pointer, memory, &raw const desc) as Call::MapImported)?;
        Ok(pointer)
    }

    /// # Safety
    ///
    /// `memory` must be a live imported memory that is not used afterwards.
    pub(crate) unsafe fn external_memory_destroy(&self, memory: CUexternalMemory) -> Result<()> {
        self.despite_captures(|| call!(self, cuDestroyExternalMemory(memory)))
    }

    /// Page-locks memory of this process for all contexts, until it is unregistered or the current context is destroyed.
    /// With `mapped`, kernels can access it as well, see [`Self::host_device_pointer`].
    ///
    /// # Safety
    ///
    /// `len` bytes at `pages` must be mapped until then.
    pub(crate) unsafe fn host_register(&self, pages: *mut u8, len: usize, mapped: bool) -> Result<()> {
        let mapped = if mapped { sys::CU_MEMHOSTREGISTER_DEVICEMAP } else { 0 };
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | mapped;
        call!(self, cuMemHostRegister_v2(pages.cast::<c_void>(), len, flags))
    }

    /// The device address of registered memory.
    pub(crate) fn host_device_pointer(&self, pages: *mut u8) -> Result<CUdeviceptr> {
        let mut pointer = 0;
        call!(self, cuMemHostGetDevicePointer_v2(&raw mut pointer, pages.cast::<c_void>(), 0))?;
        Ok(pointer)
    }

    /// # Safety
    ///
    /// `pages` must have been registered in the current context, and no copy use them.
    pub(crate) unsafe fn host_unregister(&self, pages: *mut u8) -> Result<()> {
        self.despite_captures(|| call!(self, cuMemHostUnregister(pages.cast::<c_void>())))
    }

    /// `size` bytes of device memory, in the current context.
    pub(crate) fn memory_allocate(&self, size: usize) -> Result<CUdeviceptr> {
        let mut pointer = 0;
        call!(self, cuMemAlloc_v2(&raw mut pointer, size))?;
        Ok(pointer)
    }

    /// # Safety
    ///
    /// `pointer` must come from [`Self::external_memory_map`] or [`Self::memory_allocate`] and not be used afterwards.
    pub(crate) unsafe fn memory_free(&self, pointer: CUdeviceptr) -> Result<()> {
        self.despite_captures(|| call!(self, cuMemFree_v2(pointer)))
    }
}
