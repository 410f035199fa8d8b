//! Memory of CUDA's own allocators. Each function needs a current context.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use cudarc::driver::sys::CUdeviceptr;

use crate::driver::{call, check, report};

/// Memory of one of the allocators, freed on drop.
#[derive(Debug)]
pub struct CudaMemory {
    address: CUdeviceptr,
    len: usize,
    /// Whether the CPU sees it, at the same address.
    is_visible: bool,
    free: unsafe fn(CUdeviceptr) -> i32,
}

impl CudaMemory {
    /// Device memory.
    ///
    /// # Panics
    /// When the driver refuses.
    #[must_use]
    #[track_caller]
    pub fn device(len: usize) -> Self {
        let mut address = 0;
        // SAFETY: `address` is a valid output.
        check("cuMemAlloc_v2", unsafe { call::cuMemAlloc_v2(&raw mut address, len) });
        Self { address, len, is_visible: false, free: call::cuMemFree_v2 }
    }

    /// Managed memory.
    ///
    /// # Panics
    /// When the driver refuses.
    #[must_use]
    #[track_caller]
    pub fn managed(len: usize) -> Self {
        const GLOBAL: u32 = 1;
        let mut address = 0;
        // SAFETY: `address` is a valid output.
        check("cuMemAllocManaged", unsafe { call::cuMemAllocManaged(&raw mut address, len, GLOBAL) });
        Self { address, len, is_visible: true, free: call::cuMemFree_v2 }
    }

    /// Page-locked host memory.
    ///
    /// # Panics
    /// When the driver refuses.
    #[must_use]
    #[track_caller]
    pub fn host(len: usize) -> Self {
        let mut address = std::ptr::null_mut();
        // SAFETY: `address` is a valid output.
        check("cuMemHostAlloc", unsafe { call::cuMemHostAlloc(&raw mut address, len, 0) });
        let free = |address| {
            let pages = std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0));
            // SAFETY: the address that was allocated above.
            unsafe { call::cuMemFreeHost(pages) }
        };
        Self { address: address.expose_provenance() as CUdeviceptr, len, is_visible: true, free }
    }

    /// The device address of the first byte.
    #[must_use]
    pub const fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes: never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes as the CPU sees them; none of device memory.
    #[must_use]
    pub fn read(&self) -> Option<Vec<u8>> {
        let first: *const u8 = std::ptr::with_exposed_provenance(usize::try_from(self.address).ok()?);
        // SAFETY: `len` bytes, which the CPU sees at this address and the driver initialised.
        self.is_visible.then(|| unsafe { std::slice::from_raw_parts(first, self.len) }.to_vec())
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by the constructor, which chose the function, and freed once.
        report("freeing memory", unsafe { (self.free)(self.address) });
    }
}
