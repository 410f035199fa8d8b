//! `cuMemGetHandleForAddressRange`: a dma-buf of device memory, which the host can map where the profile says so.
//!
//! A descriptor stands for whole pages, which may have bytes of several allocations. It keeps them: a mapping shows the
//! same pages after the memory was freed, until the driver gives them to other memory at the same address.

use std::os::fd::{IntoRawFd as _, RawFd};

use cudarc::driver::sys::{CUmemRangeFlags_enum, CUmemRangeHandleType};

use super::table::{self, Kind};
use crate::boundary::exports;
use crate::code::{INVALID_VALUE, Outcome};
use crate::context;
use crate::ffi::Out;
use crate::pages::{PAGE, Pages};
use crate::profile::profile;
use crate::virtual_memory;

const DMA_BUF_FD: u32 = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD as u32;
const PCIE: u64 = CUmemRangeFlags_enum::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE as u64;

fn get(out: Out<RawFd>, address: usize, size: usize, kind: u32, flags: u64) -> Outcome {
    out.required()?;
    context::usable()?;
    if kind != DMA_BUF_FD || flags & !PCIE != 0 {
        return Err(INVALID_VALUE);
    }
    let profile = profile();
    if !profile.dma_buf {
        return Err(profile.dma_buf_refusal);
    }
    let whole = |value: usize| value > 0 && value.is_multiple_of(PAGE);
    if !whole(address) || !whole(size) || address.checked_add(size).is_none() {
        return Err(INVALID_VALUE);
    }
    if let Some(file) = virtual_memory::dma_buf(address, size, profile.dma_buf_mmap)? {
        return out.set(file.into_raw_fd());
    }
    // Not of `cuMemAllocAsync`: "must have been obtained by a prior call to either cuMemAlloc or cuMemAddressReserve".
    if !table::overlaps(address, size, |kind| matches!(kind, Kind::Device)) {
        return Err(INVALID_VALUE);
    }
    let pages = Pages::containing(address, size).ok_or(INVALID_VALUE)?;
    out.set(pages.export(address, size, profile.dma_buf_mmap)?.into_raw_fd())
}

exports! {
    cuMemGetHandleForAddressRange => get(out: Out<RawFd>, address: usize, size: usize, kind: u32, flags: u64);
}
