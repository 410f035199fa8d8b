//! Virtual memory: reserved addresses, to which physical memory is mapped.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{c_int, c_void};
use std::ptr;

use vkgdr::cudarc::driver::sys::{CUdevice, CUdeviceptr};

use super::{Answer, Cuda, check, symbol};

/// `CUmemLocation`.
#[repr(C)]
struct Location {
    kind: c_int,
    device: CUdevice,
}

impl Location {
    const fn of(cuda: &Cuda) -> Self {
        // CU_MEM_LOCATION_TYPE_DEVICE
        Self { kind: 1, device: cuda.device }
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    win32_meta_data: *mut c_void,
    flags: [u8; 8],
}

impl Properties {
    const fn of(cuda: &Cuda) -> Self {
        // CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE
        let location = Location::of(cuda);
        Self { kind: 1, handle_types: 0, location, win32_meta_data: ptr::null_mut(), flags: [0; 8] }
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: Location,
    flags: c_int,
}

/// Physical memory.
pub(crate) struct Physical {
    handle: u64,
    len: usize,
}

impl Physical {
    /// The granularity of sizes and addresses in bytes.
    pub(crate) fn granularity(cuda: &Cuda) -> Answer<usize> {
        let (properties, mut granularity) = (Properties::of(cuda), 0);
        call!(
            "cuMemGetAllocationGranularity",
            (*mut usize, *const Properties, c_int),
            (&raw mut granularity, &raw const properties, 0)
        )?;
        Ok(granularity)
    }

    pub(crate) fn new(cuda: &Cuda, len: usize) -> Answer<Self> {
        let (properties, mut handle) = (Properties::of(cuda), 0);
        call!(
            "cuMemCreate",
            (*mut u64, usize, *const Properties, u64),
            (&raw mut handle, len, &raw const properties, 0)
        )?;
        Ok(Self { handle, len })
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        let _ = call!("cuMemRelease", (u64), (self.handle));
    }
}

/// Reserved addresses. What is mapped there must be unmapped before they are freed.
pub(crate) struct Reservation {
    pub(crate) start: CUdeviceptr,
    len: usize,
}

impl Reservation {
    pub(crate) fn new(len: usize) -> Answer<Self> {
        let mut start = 0;
        call!(
            "cuMemAddressReserve",
            (*mut CUdeviceptr, usize, usize, CUdeviceptr, u64),
            (&raw mut start, len, 0, 0, 0)
        )?;
        Ok(Self { start, len })
    }

    /// Maps physical memory to read and write.
    pub(crate) fn map(&self, cuda: &Cuda, offset: usize, physical: &Physical) -> Answer<()> {
        let address = self.start + offset as u64;
        call!("cuMemMap", (CUdeviceptr, usize, usize, u64, u64), (address, physical.len, 0, physical.handle, 0))?;
        // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        let access = Access { location: Location::of(cuda), flags: 3 };
        call!(
            "cuMemSetAccess",
            (CUdeviceptr, usize, *const Access, usize),
            (address, physical.len, &raw const access, 1)
        )
    }

    pub(crate) fn unmap(&self, offset: usize, len: usize) -> Answer<()> {
        call!("cuMemUnmap", (CUdeviceptr, usize), (self.start + offset as u64, len))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let _ = call!("cuMemAddressFree", (CUdeviceptr, usize), (self.start, self.len));
    }
}
