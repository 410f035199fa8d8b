//! `cuInit` and `cuDriverGetVersion`.

use crate::boundary::exports;
use crate::call;
use crate::code::{INVALID_VALUE, NO_DEVICE, Outcome};
use crate::device;
use crate::ffi::Out;
use crate::profile::driver_version;
use crate::vulkan;

fn init(flags: u32) -> Outcome {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    call::initialize(|| {
        vulkan::cpu_device().ok_or(NO_DEVICE)?;
        if device::how_many() > 0 { Ok(()) } else { Err(NO_DEVICE) }
    })
}

fn version(out: Out<i32>) -> Outcome {
    out.set(driver_version())
}

exports! {
    cuInit => init(flags: u32), Early;
    cuDriverGetVersion => version(out: Out<i32>), Early;
}
