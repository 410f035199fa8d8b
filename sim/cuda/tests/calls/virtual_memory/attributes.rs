//! Attributes of pointers into reserved ranges.

use support::Result;
use support::codes::INVALID_VALUE;
use support::cuda::{Context, PrimaryContext};
use support::{child, simulated};

use super::{GRAIN, NONE, READ_WRITE, create, free, map, release, reserve, set, unmap};
use crate::{call, given, good};

/// `CU_POINTER_ATTRIBUTE_…`
const MEMORY_TYPE: u32 = 2;
const DEVICE_POINTER: u32 = 3;
const BUFFER_ID: u32 = 7;
const DEVICE_ORDINAL: u32 = 9;
const RANGE_START: u32 = 11;
const RANGE_SIZE: u32 = 12;
const MAPPED: u32 = 13;
const ACCESS_FLAGS: u32 = 16;
const MAPPING_SIZE: u32 = 18;
const MAPPING_START: u32 = 19;
const LOCALITY_DOMAIN: u32 = 22;

const DEVICE: u64 = 2;

fn ask(attribute: u32, address: u64) -> std::result::Result<u64, i32> {
    let mut value = 0_u64;
    match call!(cuPointerGetAttribute(&raw mut value => *mut u64, attribute => u32, address => u64)) {
        0 => Ok(value),
        code => Err(code),
    }
}

/// As `cuPointerGetAttributes` answers: for any address.
fn ask_many<const N: usize>(attributes: [u32; N], address: u64) -> [u64; N] {
    let mut values = [0_u64; N];
    let start = &raw mut values;
    let outs: [*mut u64; N] = std::array::from_fn(|index| start.cast::<u64>().wrapping_add(index));
    let count = u32::try_from(N).unwrap_or_default();
    good(call!(cuPointerGetAttributes(
        count => u32, attributes.as_ptr() => *const u32, outs.as_ptr() => *const *mut u64, address => u64
    )));
    values
}

#[test]
fn a_pointers_range_is_the_reservation_and_not_the_mapping() {
    let _context = PrimaryContext::retain_and_push(0);
    let size = 4 * GRAIN;
    let (start, handle) = (reserve(size), create(GRAIN));
    let inside = start + GRAIN as u64;
    let range = |address: u64| [RANGE_START, RANGE_SIZE, MAPPED].map(|attribute| ask(attribute, address));
    let mapping = |address: u64| [MAPPING_START, MAPPING_SIZE, MEMORY_TYPE].map(|attribute| ask(attribute, address));
    let of_range = |mapped: u64| [Ok(start), Ok(size as u64), Ok(mapped)];
    let of_mapping = [Ok(inside), Ok(GRAIN as u64), Ok(DEVICE)];
    let nothing = [Err(INVALID_VALUE); 3];

    // Reserved.
    assert_eq!((range(inside + 5), mapping(inside + 5)), (of_range(0), nothing));
    assert_eq!(ask_many([RANGE_START, RANGE_SIZE, MAPPED, MEMORY_TYPE], inside + 5), [start, size as u64, 0, 0]);
    // Mapped, without access.
    good(map(inside, GRAIN, handle));
    assert_eq!((range(inside + 5), mapping(inside + 5)), (of_range(1), of_mapping));
    let device = |address: u64| [DEVICE_POINTER, DEVICE_ORDINAL, ACCESS_FLAGS].map(|attribute| ask(attribute, address));
    assert_eq!(device(inside + 5), [Err(INVALID_VALUE), Ok(0), Ok(NONE.into())]);
    let buffer = ask(BUFFER_ID, inside);
    assert!(buffer.is_ok_and(|id| id != 0));
    // With access.
    good(set(inside, GRAIN, READ_WRITE));
    assert_eq!((range(inside + 5), mapping(inside + 5)), (of_range(1), of_mapping));
    assert_eq!(device(inside + 5), [Ok(inside + 5), Ok(0), Ok(READ_WRITE.into())]);
    assert_eq!(ask(BUFFER_ID, inside), buffer, "the same memory");
    // Beside it, and behind the end.
    for address in [start, inside - 1, inside + GRAIN as u64, start + size as u64 - 1] {
        assert_eq!((range(address), mapping(address)), (of_range(0), nothing));
    }
    good(unmap(inside, GRAIN));
    assert_eq!(range(inside), of_range(0));
    good(free(start, size));
    good(release(handle));
    assert_eq!(range(inside), nothing);
    assert_eq!(ask_many([RANGE_START, RANGE_SIZE, MAPPED], inside), [0; 3]);
}

#[test]
fn memory_is_in_no_locality_domain() {
    let _context = PrimaryContext::retain_and_push(0);
    let address: u64 = given(|out| call!(cuMemAlloc_v2(out => *mut u64, 100 => usize)));
    // An int.
    let none = u64::from((-1_i32).cast_unsigned());
    assert_eq!(ask(LOCALITY_DOMAIN, address), Ok(none));
    assert_eq!(ask_many([LOCALITY_DOMAIN], 77), [none]);
    good(call!(cuMemFree_v2(address => u64)));
}

/// Devices are no peers.
#[test]
fn a_device_has_no_access_to_the_memory_of_another() -> Result {
    simulated!("GPUs may be peers");
    if child::role().is_none() {
        let mut command = child::command("two devices")?;
        command.env("SIMCUDA_DEVICES", "2").env_remove("CUDA_VISIBLE_DEVICES");
        assert_eq!(child::run(command)?, ["done"]);
        return Ok(());
    }
    let first = Context::create(0);
    let device: u64 = given(|out| call!(cuMemAlloc_v2(out => *mut u64, 100 => usize)));
    let managed: u64 = given(|out| call!(cuMemAllocManaged(out => *mut u64, 100 => usize, 1 => u32)));
    let host: u64 = given(|out| call!(cuMemHostAlloc(out => *mut u64, 100 => usize, 0 => u32)));
    let access = || [device, managed, host].map(|address| ask(ACCESS_FLAGS, address));
    let (all, none) = (Ok(READ_WRITE.into()), Ok(NONE.into()));
    assert_eq!(access(), [all; 3]);
    let second = Context::create(1);
    assert_eq!(access(), [none, all, all]);
    second.destroy();
    assert_eq!(access(), [all; 3]);
    first.destroy();
    child::say("done");
    Ok(())
}
