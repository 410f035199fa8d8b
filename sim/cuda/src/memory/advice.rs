//! Advice on managed memory: prefetches, usage and streams. Host and device share one memory here, so that nothing moves:
//! the arguments are checked, and kept for those who ask (`ranges`).

use cudarc::driver::sys::{CUmem_advise, CUmemAttach_flags, CUmemLocationType, CUstream_flags};

use super::ranges::{self, HOST, ON_HOST, managed};

use crate::boundary::exports;
use crate::code::{INVALID_DEVICE, INVALID_VALUE, Outcome};
use crate::context;
use crate::device;
use crate::layout::Location;
use crate::stream::table as streams;

const ON_NUMA_NODE: u32 = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA as u32;
const ON_NEAREST_NODE: u32 = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT as u32;

impl Location {
    /// The location that the functions of CUDA 8 mean by a device's number.
    fn of_device(device: i32) -> Location {
        Location { kind: if device == HOST { ON_HOST } else { Location::ON_DEVICE }, id: device }
    }

    /// The device's number, for a device or the host.
    fn device(self) -> i32 {
        if self.kind == ON_HOST { HOST } else { self.id }
    }

    fn check(self, nodes: bool) -> Outcome {
        match self.kind {
            Location::ON_DEVICE => device::check(self.id),
            ON_HOST => Ok(()),
            ON_NUMA_NODE if nodes && self.id < 0 => Err(INVALID_DEVICE),
            ON_NUMA_NODE | ON_NEAREST_NODE if nodes => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }
}

fn prefetch(address: usize, len: usize, location: Location, flags: u32, stream: usize) -> Outcome {
    streams::usable(stream)?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    location.check(true)?;
    ranges::change(address, len, |advice| advice.prefetched = Some(location))
}

fn prefetch_to_device(address: usize, len: usize, device: i32, stream: usize) -> Outcome {
    prefetch(address, len, Location::of_device(device), 0, stream)
}

/// Advice that a location is the preferred one or accesses the memory needs one; the rest ignores it.
fn advise(address: usize, len: usize, advice: u32, location: Location) -> Outcome {
    const SET_READ_MOSTLY: u32 = CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY as u32;
    const UNSET_READ_MOSTLY: u32 = CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY as u32;
    const SET_PREFERRED: u32 = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION as u32;
    const UNSET_PREFERRED: u32 = CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION as u32;
    const SET_ACCESSED: u32 = CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY as u32;
    const UNSET_ACCESSED: u32 = CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY as u32;
    context::usable()?;
    match advice {
        SET_READ_MOSTLY | UNSET_READ_MOSTLY | UNSET_PREFERRED => {}
        SET_PREFERRED => location.check(true)?,
        SET_ACCESSED | UNSET_ACCESSED => location.check(false)?,
        _ => return Err(INVALID_VALUE),
    }
    ranges::change(address, len, |page| match advice {
        SET_READ_MOSTLY | UNSET_READ_MOSTLY => page.read_mostly = advice == SET_READ_MOSTLY,
        SET_PREFERRED => page.preferred = Some(location),
        UNSET_PREFERRED => page.preferred = None,
        SET_ACCESSED => {
            page.accessed_by.insert(location.device());
        }
        _ => {
            page.accessed_by.remove(&location.device());
        }
    })
}

fn advise_device(address: usize, len: usize, advice: u32, device: i32) -> Outcome {
    advise(address, len, advice, Location::of_device(device))
}

/// Every stream may use the memory, whatever the association: the device has concurrent managed access.
fn attach(stream: usize, address: usize, len: usize, flags: u32) -> Outcome {
    const GLOBAL: u32 = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
    const HOST: u32 = CUmemAttach_flags::CU_MEM_ATTACH_HOST as u32;
    const SINGLE: u32 = CUmemAttach_flags::CU_MEM_ATTACH_SINGLE as u32;
    const NULL: usize = CUstream_flags::CU_STREAM_DEFAULT as usize;
    streams::usable(stream)?;
    let valid = matches!(flags, GLOBAL | HOST) || flags == SINGLE && stream != NULL;
    let found = managed(address, 1)?;
    // The length is that of the whole allocation, or 0 for it.
    let whole = len == 0 || address == found.window.address && len == found.window.size;
    if valid && whole { Ok(()) } else { Err(INVALID_VALUE) }
}

exports! {
    cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz =>
        prefetch_to_device(address: usize, len: usize, device: i32, stream: usize);
    cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz =>
        prefetch(address: usize, len: usize, location: Location, flags: u32, stream: usize);
    cuMemAdvise => advise_device(address: usize, len: usize, advice: u32, device: i32);
    cuMemAdvise_v2 => advise(address: usize, len: usize, advice: u32, location: Location);
    cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz =>
        attach(stream: usize, address: usize, len: usize, flags: u32);
}
