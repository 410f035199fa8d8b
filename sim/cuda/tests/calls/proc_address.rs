//! `cuGetProcAddress`, as NVIDIA's libraries 470 to 555 answer.

use std::ffi::{CStr, c_char};

use support::codes::NOT_FOUND;
use support::{Result, child, driver, simcuda};

use crate::call;

const FOUND: (i32, bool, u32) = (0, true, 0);
const UNKNOWN: (i32, bool, u32) = (0, false, 1);
const TOO_LOW: (i32, bool, u32) = (0, false, 2);

/// The code, whether there is an address, and the status, of the newest function with this name that a version has.
fn get(name: &CStr, version: i32) -> (i32, bool, u32) {
    let (mut address, mut status) = (1_usize, 77_u32);
    let code = call!(cuGetProcAddress_v2(
        name.as_ptr() => *const c_char, &raw mut address => *mut usize, version => i32, 0 => u64,
        &raw mut status => *mut u32
    ));
    (code, address != 0, status)
}

fn address(name: &CStr, version: i32) -> usize {
    let mut address = 0_usize;
    let code = call!(cuGetProcAddress_v2(
        name.as_ptr() => *const c_char, &raw mut address => *mut usize, version => i32, 0 => u64,
        std::ptr::null_mut() => *mut u32
    ));
    assert_eq!(code, 0);
    address
}

#[test]
fn a_name_or_version_that_has_no_function_is_told_by_the_status_alone() {
    assert_eq!(get(c"cuMemAllok", driver::version()), UNKNOWN);
    assert_eq!(get(c"cuMemAlloc_v2", driver::version()), UNKNOWN, "the version chooses the form");
    assert_eq!(get(c"cuCtxGetCurrent", 2000), TOO_LOW);
    assert_eq!(get(c"cuCtxGetCurrent", 4000), FOUND);
    assert_eq!(get(c"cuGraphInstantiate", 9000), TOO_LOW);
}

#[test]
fn the_first_form_of_the_query_fails_and_leaves_the_pointer_alone() {
    for (name, version) in [(c"cuMemAllok", driver::version()), (c"cuCtxGetCurrent", 2000)] {
        let mut address = 77_usize;
        let code = call!(cuGetProcAddress(
            name.as_ptr() => *const c_char, &raw mut address => *mut usize, version => i32, 0 => u64
        ));
        assert_eq!((code, address), (NOT_FOUND, 77), "{name:?}");
    }
}

#[test]
fn a_version_above_the_drivers_gets_the_drivers_newest_form() -> Result {
    if child::role().is_none() {
        assert_eq!(get(c"cuMemAlloc", driver::version() + 1000), FOUND);
        if simcuda().is_some() {
            let mut command = child::command("old")?;
            command.env("SIMCUDA_DRIVER_VERSION", "12040");
            assert_eq!(child::run(command)?, ["done"]);
        }
        return Ok(());
    }
    let newest = address(c"cuEventElapsedTime", 12_040);
    assert_eq!(address(c"cuEventElapsedTime", 13_000), newest, "the form of 12.8 is beyond the driver");
    assert_ne!(address(c"cuMemAlloc", 2000), address(c"cuMemAlloc", 13_000));
    assert_eq!(get(c"cuMemcpyBatchAsync", 13_000), UNKNOWN, "the driver does not know it");
    child::say("done");
    Ok(())
}
