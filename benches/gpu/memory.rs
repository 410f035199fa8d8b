//! The peers' memory, allocated by CUDA.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::c_uint;

use vkgdr::cudarc::driver::result;
use vkgdr::cudarc::driver::sys::{self, CUdeviceptr};

use crate::Result;

/// Memory of `cuMemAlloc`. The context must be current.
pub(crate) struct Buffer(CUdeviceptr);

impl Buffer {
    pub(crate) fn new(len: usize) -> Result<Self> {
        // SAFETY: the context is current.
        Ok(Self(unsafe { result::malloc_sync(len) }?))
    }

    pub(crate) fn device_ptr(&self) -> CUdeviceptr {
        self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and nothing uses it any more.
        if let Err(error) = unsafe { result::free_sync(self.0) } {
            println!("cuMemFree: {error}");
        }
    }
}

/// Memory of `cuMemHostAlloc`, cached by the CPU and mapped for the device. The context must be current.
pub(crate) struct Pinned(*mut u8);

impl Pinned {
    pub(crate) fn new(len: usize) -> Result<Self> {
        const FLAGS: c_uint = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the memory is written before it is read.
        Ok(Self(unsafe { result::malloc_host(len, FLAGS) }?.cast()))
    }

    pub(crate) fn host_ptr(&self) -> *mut u8 {
        self.0
    }

    pub(crate) fn device_ptr(&self) -> Result<CUdeviceptr> {
        let mut pointer = 0;
        // SAFETY: `pointer` is live, and the memory was allocated with a mapping for the device.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut pointer, self.0.cast(), 0) }.result()?;
        Ok(pointer)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and nothing uses it any more.
        if let Err(error) = unsafe { result::free_host(self.0.cast()) } {
            println!("cuMemFreeHost: {error}");
        }
    }
}
