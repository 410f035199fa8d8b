//! `cuGetProcAddress`.

use support::codes::INVALID_VALUE;
use support::{Result, child, driver, simcuda};

use crate::call;

/// The codes, and whether there was an address, of the newest function with this name that a version has.
fn get(name: &std::ffi::CStr, version: i32) -> (i32, bool) {
    let (mut address, mut status) = (1_usize, 0_u32);
    let code = call!(cuGetProcAddress_v2(
        name.as_ptr() => *const std::ffi::c_char, &raw mut address => *mut usize, version => i32, 0 => u64,
        &raw mut status => *mut u32
    ));
    (code, address != 0)
}

#[test]
fn a_version_above_the_drivers_is_refused() -> Result {
    const TEST: &str = "proc_address::a_version_above_the_drivers_is_refused";
    if child::role().is_none() {
        let version = driver::version();
        assert_eq!(get(c"cuMemAlloc", version), (0, true));
        assert_eq!(get(c"cuMemAlloc", version + 10), (INVALID_VALUE, false));
        if simcuda().is_some() {
            let mut command = child::command(TEST, "old")?;
            command.env("SIMCUDA_DRIVER_VERSION", "12040");
            assert_eq!(child::run(command)?, ["done"]);
        }
        return Ok(());
    }
    for version in [2000, 3020, 12_000, 12_040] {
        assert_eq!(get(c"cuMemAlloc", version), (0, true), "{version}");
    }
    for version in [0, -1, 12_050, 13_000] {
        assert_eq!(get(c"cuMemAlloc", version), (INVALID_VALUE, false), "{version}");
    }
    child::say("done");
    Ok(())
}
