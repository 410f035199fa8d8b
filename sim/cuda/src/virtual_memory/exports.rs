//! The driver's functions.

use std::os::fd::{IntoRawFd as _, RawFd};

use cudarc::driver::sys::CUmemAllocationGranularity_flags;

use super::physical::{self, Physical};
use super::properties::{POSIX_FD, Properties};
use super::{GRANULARITY, reservation};
use crate::boundary::exports;
use crate::code::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::device;
use crate::fd;
use crate::ffi::{In, Out};
use crate::layout::{Access, AllocationProperties, Location};

const RECOMMENDED: u32 = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED as u32;
/// The host's pages, in which addresses are reserved.
const HOST_PAGE: usize = 4096;
/// Handle types with one bit set, of which descriptors are the simulated one.
const OTHER_HANDLES: [u32; 3] = [2, 4, 8];

fn granularity(out: Out<usize>, properties: In<AllocationProperties>, option: u32) -> Outcome {
    out.required()?;
    Properties::new(&properties.get()?)?;
    if option > RECOMMENDED {
        return Err(INVALID_VALUE);
    }
    out.set(GRANULARITY)
}

fn create(out: Out<usize>, size: usize, properties: In<AllocationProperties>, flags: u64) -> Outcome {
    out.required()?;
    let properties = Properties::new(&properties.get()?)?;
    if flags != 0 || !is_whole(size) {
        return Err(INVALID_VALUE);
    }
    out.set(physical::retain(&Physical::create(size, properties)?))
}

fn is_whole(size: usize) -> bool {
    size > 0 && size.is_multiple_of(GRANULARITY)
}

fn properties(out: Out<AllocationProperties>, handle: usize) -> Outcome {
    out.required()?;
    out.set(physical::get(handle)?.properties.given())
}

fn retain(out: Out<usize>, address: usize) -> Outcome {
    out.required()?;
    out.set(physical::retain(&reservation::at(address)?))
}

fn reserve(out: Out<usize>, size: usize, alignment: usize, wanted: usize, flags: u64) -> Outcome {
    out.required()?;
    let whole = size > 0 && size.is_multiple_of(HOST_PAGE) && wanted.is_multiple_of(HOST_PAGE);
    if !whole || flags != 0 || (alignment != 0 && !alignment.is_power_of_two()) {
        return Err(INVALID_VALUE);
    }
    out.set(reservation::reserve(size, alignment, wanted)?)
}

/// The offset must be zero, as documented.
fn map(address: usize, size: usize, offset: usize, handle: usize, flags: u64) -> Outcome {
    if flags != 0 || offset != 0 || !is_whole(size) || !address.is_multiple_of(GRANULARITY) {
        return Err(INVALID_VALUE);
    }
    let physical = physical::get(handle)?;
    if size > physical.size {
        return Err(INVALID_VALUE);
    }
    reservation::map(address, size, physical)
}

/// Devices are no peers, so that each has access to its own memory only.
fn set_access(address: usize, size: usize, access: In<Access>, count: usize) -> Outcome {
    if count == 0 || !is_whole(size) {
        return Err(INVALID_VALUE);
    }
    let mut checked = Vec::new();
    for index in 0..count {
        let Access { location, flags } = access.element(index)?;
        let device = device::located(location)?;
        match flags {
            Access::NONE | Access::READ_WRITE => checked.push((device, flags == Access::READ_WRITE)),
            Access::READ => return Err(NOT_SUPPORTED),
            _ => return Err(INVALID_VALUE),
        }
    }
    let own = reservation::at(address)?.properties.device;
    if checked.iter().any(|(device, accessible)| *device != own && *accessible) {
        return Err(INVALID_DEVICE);
    }
    let of_own = checked.into_iter().filter(|(device, _)| *device == own);
    of_own.into_iter().try_for_each(|(device, accessible)| reservation::set_access(address, size, device, accessible))
}

fn get_access(out: Out<u64>, location: In<Location>, address: usize) -> Outcome {
    out.required()?;
    let accessible = reservation::access(address, device::located(location.get()?)?)?;
    out.set(u64::from(if accessible { Access::READ_WRITE } else { Access::NONE }))
}

fn check_handle_type(kind: u32) -> Outcome {
    match kind {
        POSIX_FD => Ok(()),
        other if OTHER_HANDLES.contains(&other) => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

/// The handle must have been created for export.
fn export(out: Out<RawFd>, handle: usize, kind: u32, flags: u64) -> Outcome {
    out.required()?;
    check_handle_type(kind)?;
    let physical = physical::get(handle)?;
    if flags != 0 || physical.properties.handle_types & POSIX_FD == 0 {
        return Err(INVALID_VALUE);
    }
    out.set(physical.export()?.into_raw_fd())
}

/// The descriptor, which is passed in place of a pointer, stays the caller's.
fn import(out: Out<usize>, descriptor: usize, kind: u32) -> Outcome {
    out.required()?;
    check_handle_type(kind)?;
    // An int, of which a caller may leave the upper half undefined.
    let [a, b, c, d, ..] = descriptor.to_le_bytes();
    let physical = Physical::import(fd::borrow(RawFd::from_le_bytes([a, b, c, d]))?)?;
    out.set(physical::retain(&physical))
}

use physical::release;
use reservation::{free, unmap};

exports! {
    cuMemGetAllocationGranularity =>
        granularity(out: Out<usize>, properties: In<AllocationProperties>, option: u32);
    cuMemCreate => create(out: Out<usize>, size: usize, properties: In<AllocationProperties>, flags: u64);
    cuMemRelease => release(handle: usize), Release;
    cuMemGetAllocationPropertiesFromHandle => properties(out: Out<AllocationProperties>, handle: usize);
    cuMemRetainAllocationHandle => retain(out: Out<usize>, address: usize);
    cuMemAddressReserve =>
        reserve(out: Out<usize>, size: usize, alignment: usize, wanted: usize, flags: u64);
    cuMemAddressFree => free(address: usize, size: usize), Release;
    cuMemMap => map(address: usize, size: usize, offset: usize, handle: usize, flags: u64);
    cuMemUnmap => unmap(address: usize, size: usize), Release;
    cuMemSetAccess => set_access(address: usize, size: usize, access: In<Access>, count: usize);
    cuMemGetAccess => get_access(out: Out<u64>, location: In<Location>, address: usize);
    cuMemExportToShareableHandle => export(out: Out<RawFd>, handle: usize, kind: u32, flags: u64);
    cuMemImportFromShareableHandle => import(out: Out<usize>, descriptor: usize, kind: u32);
}
