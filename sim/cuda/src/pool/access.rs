//! Which devices may access a pool's memory: its own always, no other, since the devices are no peers.

use super::table as pools;
use crate::code::{INVALID_DEVICE, INVALID_VALUE, Outcome};
use crate::device;
use crate::ffi::{In, Out};
use crate::layout::{Access, Location};

pub(super) fn set(pool: usize, map: In<Access>, count: usize) -> Outcome {
    let pool = pools::get(pool)?;
    for index in 0..count {
        let Access { location, flags } = map.element(index)?;
        if !matches!(flags, Access::NONE | Access::READ | Access::READ_WRITE) {
            return Err(INVALID_VALUE);
        }
        match (device::located(location)? == pool.device, flags) {
            // The pool's own device keeps its access.
            (true, Access::READ_WRITE) | (false, Access::NONE) => {}
            (true, _) => return Err(INVALID_VALUE),
            (false, _) => return Err(INVALID_DEVICE),
        }
    }
    Ok(())
}

pub(super) fn get(out: Out<u32>, pool: usize, location: In<Location>) -> Outcome {
    out.required()?;
    let pool = pools::get(pool)?;
    let own = device::located(location.get()?)? == pool.device;
    out.set(if own { Access::READ_WRITE } else { Access::NONE })
}
