//! Create and destroy pools, and choose a device's.

use super::state::Pool;
use super::table as pools;
use super::{access, allocate, attributes};
use crate::boundary::exports;
use crate::code::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::device;
use crate::ffi::{In, Out};
use crate::handle;
use crate::layout::{Access, Location, MANAGED, PINNED, PoolProperties};

/// Pinned memory of a device only: the device reports that it has neither host pools nor handles to share them.
fn create(out: Out<usize>, properties: In<PoolProperties>) -> Outcome {
    out.required()?;
    let properties = properties.get()?;
    check_location(properties.location, properties.allocation_type)?;
    if properties.handle_types != 0 {
        return Err(NOT_SUPPORTED);
    }
    let handle = handle::next();
    pools::insert(Pool::new(handle, properties.location.id, properties.most));
    out.set(handle)
}

fn check_location(location: Location, allocation_type: u32) -> Outcome {
    match (allocation_type, location.kind) {
        (PINNED, Location::ON_DEVICE) => device::check(location.id).map_err(|_| INVALID_VALUE),
        (PINNED | MANAGED, Location::ON_DEVICE..=Location::LAST) => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

/// Memory that is still allocated is released when it is freed.
fn destroy(pool: usize) -> Outcome {
    pools::remove(pool)?.destroy();
    Ok(())
}

fn trim(pool: usize, keep: usize) -> Outcome {
    pools::get(pool)?.trim(keep);
    Ok(())
}

fn default_of(out: Out<usize>, device: i32) -> Outcome {
    out.required()?;
    out.set(pools::default_of(device)?.handle)
}

fn current_of(out: Out<usize>, device: i32) -> Outcome {
    out.required()?;
    out.set(pools::current_of(device)?.handle)
}

fn set_current(device: i32, pool: usize) -> Outcome {
    device::check(device)?;
    pools::set_current(device, &pools::get(pool)?)
}

fn default_at(out: Out<usize>, location: In<Location>, allocation_type: u32) -> Outcome {
    out.required()?;
    let location = location.get()?;
    check_location(location, allocation_type)?;
    default_of(out, location.id)
}

fn current_at(out: Out<usize>, location: In<Location>, allocation_type: u32) -> Outcome {
    out.required()?;
    let location = location.get()?;
    check_location(location, allocation_type)?;
    current_of(out, location.id)
}

fn set_current_at(location: In<Location>, allocation_type: u32, pool: usize) -> Outcome {
    let location = location.get()?;
    check_location(location, allocation_type)?;
    set_current(location.id, pool)
}

use access::{get as get_access, set as set_access};
use allocate::{allocate, allocate_from_pool, free};
use attributes::{get as get_attribute, set as set_attribute};

exports! {
    cuMemPoolCreate => create(out: Out<usize>, properties: In<PoolProperties>);
    cuMemPoolDestroy => destroy(pool: usize), Release;
    cuMemPoolTrimTo => trim(pool: usize, keep: usize);
    cuMemPoolGetAttribute => get_attribute(pool: usize, attribute: u32, out: Out<u64>);
    cuMemPoolSetAttribute => set_attribute(pool: usize, attribute: u32, value: In<u64>);
    cuMemPoolSetAccess => set_access(pool: usize, map: In<Access>, count: usize);
    cuMemPoolGetAccess => get_access(out: Out<u32>, pool: usize, location: In<Location>);
    cuDeviceGetDefaultMemPool => default_of(out: Out<usize>, device: i32);
    cuDeviceGetMemPool => current_of(out: Out<usize>, device: i32);
    cuDeviceSetMemPool => set_current(device: i32, pool: usize);
    cuMemGetDefaultMemPool => default_at(out: Out<usize>, location: In<Location>, allocation_type: u32);
    cuMemGetMemPool => current_at(out: Out<usize>, location: In<Location>, allocation_type: u32);
    cuMemSetMemPool => set_current_at(location: In<Location>, allocation_type: u32, pool: usize);
    cuMemAllocAsync, cuMemAllocAsync_ptsz => allocate(out: Out<usize>, size: usize, stream: usize);
    cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz =>
        allocate_from_pool(out: Out<usize>, size: usize, pool: usize, stream: usize);
    cuMemFreeAsync, cuMemFreeAsync_ptsz => free(pointer: usize, stream: usize), Release;
}
