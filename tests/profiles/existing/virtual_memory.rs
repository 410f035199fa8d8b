//! Host views of virtual memory: reserved addresses, of which the program gives memory to parts.
#![expect(unsafe_code, reason = "calls CUDA's functions of virtual memory")]

use support::{Result, device_read, host_write, pattern, refused};
use vkgdr::cudarc::driver::sys::{self, CUdeviceptr, CUresult};
use vkgdr::{Error, MappingFlags, NoMapping};

use super::open;
use crate::under;

/// A multiple of the granularity of drivers' allocations.
const UNIT: usize = 2 << 20;

#[track_caller]
fn good(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

/// Addresses for four units.
struct Reserved(CUdeviceptr);

impl Reserved {
    fn new() -> Self {
        let mut address = 0;
        // SAFETY: the output is a live integer.
        good(unsafe { sys::cuMemAddressReserve(&raw mut address, 4 * UNIT, 0, 0, 0) });
        Self(address)
    }

    fn unit(&self, index: usize) -> CUdeviceptr {
        self.0 + (index * UNIT) as u64
    }

    /// Gives a unit of the addresses new memory.
    fn map(&self, index: usize) {
        // SAFETY: 0 is valid for each member.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        // SAFETY: as above.
        let mut access: sys::CUmemAccessDesc = unsafe { std::mem::zeroed() };
        access.location = properties.location;
        access.flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let mut memory = 0;
        // SAFETY: the output is a live integer.
        good(unsafe { sys::cuMemCreate(&raw mut memory, UNIT, &raw const properties, 0) });
        // SAFETY: nothing is mapped there.
        good(unsafe { sys::cuMemMap(self.unit(index), UNIT, 0, memory, 0) });
        // SAFETY: the mapping keeps the memory.
        good(unsafe { sys::cuMemRelease(memory) });
        // SAFETY: just mapped.
        good(unsafe { sys::cuMemSetAccess(self.unit(index), UNIT, &raw const access, 1) });
    }

    fn unmap(&self, index: usize) {
        // SAFETY: mapped, and no work uses it.
        good(unsafe { sys::cuMemUnmap(self.unit(index), UNIT) });
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: all that was mapped is unmapped.
        good(unsafe { sys::cuMemAddressFree(self.0, 4 * UNIT) });
    }
}

#[test]
fn a_part_of_the_addresses_that_has_memory_has_a_view() -> Result {
    under("dma-buf", || {
        let (_context, gpu) = open()?;
        let reserved = Reserved::new();
        let reason = |address, len| match refused(support::map_existing(&gpu, address, len, MappingFlags::empty())) {
            Error::NoMapping { reason, .. } => reason,
            error => panic!("{error}"),
        };
        // Addresses alone are no memory.
        assert_eq!(reason(reserved.unit(1), 100), NoMapping::Unknown);
        reserved.map(2);
        let address = reserved.unit(2) + 70_000;
        let view = support::map_existing(&gpu, address, 1000, MappingFlags::empty())?;
        assert!(view.is_current()?);
        host_write(&view, 0, &pattern(1000, 1))?;
        assert!(device_read(address, 1000) == pattern(1000, 1));
        assert_eq!(view.dma_buf()?.offset, 70_000);
        // Beyond the memory, and beyond the addresses.
        for len in [UNIT, 2 * UNIT] {
            let error = refused(support::map_existing(&gpu, address, len, MappingFlags::empty()));
            assert!(matches!(error, Error::OutOfRange { size: UNIT, offset: 70_000, .. }), "{error}");
        }
        // Memory beside it is another mapping, which NVIDIA's kernel module leaves out of one that begins here.
        reserved.map(3);
        let error = refused(support::map_existing(&gpu, address, UNIT, MappingFlags::empty()));
        assert!(matches!(error, Error::OutOfRange { size: UNIT, .. }), "{error}");
        // Other memory beside it changes nothing; other memory in its place does.
        reserved.map(0);
        assert!(view.is_current()?);
        reserved.unmap(2);
        assert!(!view.is_current()?);
        reserved.map(2);
        assert!(!view.is_current()?);
        assert!(matches!(refused(view.dma_buf()), Error::NoMapping { reason: NoMapping::Freed, .. }));
        let next = support::map_existing(&gpu, address, 1000, MappingFlags::empty())?;
        assert!(next.is_current()?);
        host_write(&next, 0, &pattern(1000, 2))?;
        assert!(device_read(address, 1000) == pattern(1000, 2));
        drop((view, next));
        [0, 2, 3].iter().for_each(|index| reserved.unmap(*index));
        Ok(())
    })
}
