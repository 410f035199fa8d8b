//! `GDRCOPY_ENABLE_LOGGING`: a child's lines on standard error.
#![expect(unsafe_code, reason = "calls C functions")]

use std::ptr::{null, null_mut};

use support::{Result, child};

use crate::api::call;
use crate::fixture::{Fixture, NO_HANDLE, PAGE};

const TEST: &str = "logging::each_error_is_explained";

/// Makes one error of each kind, each of which is announced.
fn errors() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle, address) = (fixture.g, fixture.handle, fixture.memory.device_ptr());
    let (mut new, mut va, mut value) = (NO_HANDLE, null_mut(), 0);
    macro_rules! error {
        ($($call:tt)*) => {
            eprintln!("\nCALL {}", stringify!($($call)*));
            assert_ne!(call!($($call)*), 0);
        };
    }
    error!(close(null_mut()));
    error!(pin(g, 0, 1, 0, 0, &raw mut new));
    error!(pin(g, address, 0, 0, 0, &raw mut new));
    error!(pin(g, address, usize::MAX, 0, 0, &raw mut new));
    error!(pin(g, address, 1, 0, 0, null_mut()));
    error!(unpin(g, NO_HANDLE));
    error!(map(g, handle, &raw mut va, 0));
    error!(unmap(g, handle, null_mut(), PAGE));
    error!(copy_to(handle, null_mut(), [1_u8].as_ptr().cast(), 1));
    let (_, bytes) = fixture.map()?;
    error!(map(g, handle, &raw mut va, PAGE));
    error!(copy_to(handle, bytes, null(), 1));
    error!(copy_to(handle, bytes.wrapping_byte_sub(1), [1_u8].as_ptr().cast(), 1));
    error!(copy_from(handle, null_mut(), bytes, 1));
    error!(info(g, handle, null_mut()));
    error!(attribute(g, 9, &raw mut value));
    error!(type_string(9, null_mut()));
    eprintln!("\nEND");
    fixture.close()
}

#[test]
fn each_error_is_explained() -> Result {
    if child::role().is_some() {
        return errors();
    }
    let output = child::command(TEST, "errors")?.env("GDRCOPY_ENABLE_LOGGING", "1").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let calls: Vec<_> = text.split("\nCALL ").skip(1).collect();
    assert_eq!(calls.len(), 16, "{text}");
    for (index, call) in calls.iter().enumerate() {
        assert_eq!(call.matches("ERR:  libgdrapi of vkgdr: ").count(), 1, "{call}");
        assert_eq!(call.contains("is empty"), index == 2, "{call}");
        assert!(!call.contains("18446744073709551615"), "{call}");
    }
    Ok(())
}
