//! Which devices may access a pool's memory: its own always, no other, since the devices are no peers.

use cudarc::driver::sys::{CUmemAccess_flags, CUmemLocationType};

use super::table as pools;
use crate::code::{INVALID_DEVICE, INVALID_VALUE, Outcome};
use crate::device;
use crate::ffi::{In, Out};
use crate::layout::{Access, Location};

const NONE: u32 = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE as u32;
const READ: u32 = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ as u32;
const READ_WRITE: u32 = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32;
const ON_DEVICE: u32 = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;

pub(super) fn set(pool: usize, map: In<Access>, count: usize) -> Outcome {
    let pool = pools::get(pool)?;
    for index in 0..count {
        let Access { location, flags } = map.element(index)?;
        if location.kind != ON_DEVICE || !matches!(flags, NONE | READ | READ_WRITE) {
            return Err(INVALID_VALUE);
        }
        device::check(location.id)?;
        match flags {
            // The pool's own device keeps its access.
            READ_WRITE if location.id == pool.device => {}
            _ if location.id == pool.device => return Err(INVALID_VALUE),
            NONE => {}
            _ => return Err(INVALID_DEVICE),
        }
    }
    Ok(())
}

pub(super) fn get(out: Out<u32>, pool: usize, location: In<Location>) -> Outcome {
    out.required()?;
    let pool = pools::get(pool)?;
    let location = location.get()?;
    if location.kind != ON_DEVICE {
        return Err(INVALID_VALUE);
    }
    device::check(location.id)?;
    out.set(if location.id == pool.device { READ_WRITE } else { NONE })
}
