//! `CUDA_VISIBLE_DEVICES`, which chooses and orders the devices of a process that starts with it.

use std::collections::HashMap;

use support::{Result, child, driver, simulated};

use crate::{call, given, good};

const NOT_INITIALIZED: i32 = 3;
const INVALID_DEVICE: i32 = 101;

/// Says which buses and UUIDs the devices have.
fn report() {
    let mut version = 0;
    good(call!(cuDriverGetVersion(&raw mut version => *mut i32)));
    let code = call!(cuInit(0 => u32));
    if code != 0 {
        let mut current = 0_usize;
        assert_eq!(call!(cuCtxGetCurrent(&raw mut current => *mut usize)), NOT_INITIALIZED);
        return child::say(driver::error_name(code));
    }
    let count: i32 = given(|out| call!(cuDeviceGetCount(out => *mut i32)));
    child::say(count);
    for device in 0..count {
        let mut uuid = [0_u8; 16];
        good(call!(cuDeviceGetUuid_v2(uuid.as_mut_ptr() => *mut u8, device => i32)));
        let mut id = [0_u8; 13];
        good(call!(cuDeviceGetPCIBusId(id.as_mut_ptr() => *mut u8, 13 => i32, device => i32)));
        let found: i32 = given(|out| call!(cuDeviceGetByPCIBusId(out => *mut i32, id.as_ptr() => *const u8)));
        assert_eq!(found, device);
        let bus = String::from_utf8_lossy(&id[5..7]).into_owned();
        for (address, code) in [
            (format!("{bus}:00.0"), 0),
            (format!("0000:{bus}:00"), 0),
            (format!("00000000:{bus}:0.0"), 0),
            (format!("0001:{bus}:00.0"), INVALID_DEVICE),
            (format!("{bus}:00"), INVALID_DEVICE),
            (format!("{bus}:00.1"), INVALID_DEVICE),
        ] {
            let (mut found, text) = (-1, format!("{address}\0"));
            assert_eq!(
                call!(cuDeviceGetByPCIBusId(&raw mut found => *mut i32, text.as_ptr() => *const u8)),
                code,
                "{address}"
            );
            assert!(code != 0 || found == device, "{address}");
        }
        // CU_DEVICE_ATTRIBUTE_PCI_BUS_ID.
        let bus: i32 = given(|out| call!(cuDeviceGetAttribute(out => *mut i32, 33 => u32, device => i32)));
        assert_eq!(format!("{bus:02x}").as_bytes(), &id[5..7]);
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        child::say(format!("{} {hex}", String::from_utf8_lossy(&id[5..7])));
    }
    let mut device = 0;
    assert_eq!(call!(cuDeviceGet(&raw mut device => *mut i32, count => i32)), INVALID_DEVICE);
}

/// The devices' buses, or the error, of a process with this value; and the UUIDs by bus.
fn devices(value: Option<&str>) -> Result<(Vec<String>, HashMap<String, String>)> {
    let mut command = child::command("report")?;
    command.env("SIMCUDA_DEVICES", "3").env_remove("CUDA_VISIBLE_DEVICES");
    if let Some(value) = value {
        command.env("CUDA_VISIBLE_DEVICES", value);
    }
    let mut said = child::run(command)?;
    if said.len() == 1 {
        return Ok((said, HashMap::new()));
    }
    assert_eq!(said.remove(0), said.len().to_string());
    let pairs: Vec<_> = said.iter().filter_map(|line| line.split_once(' ')).collect();
    let buses = pairs.iter().map(|(bus, _)| (*bus).to_owned()).collect();
    Ok((buses, pairs.into_iter().map(|(bus, uuid)| (bus.to_owned(), uuid.to_owned())).collect()))
}

#[test]
fn the_environment_chooses_and_orders_the_devices() -> Result {
    simulated!("the number of a machine's GPUs is its own");
    if child::role().is_some() {
        report();
        return Ok(());
    }
    let (all, uuids) = devices(None)?;
    assert_eq!(all, ["00", "01", "02"]);
    let named = |bus: &str| {
        let hex = &uuids[bus];
        format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    };
    for (value, expected) in [
        ("2, 0", &["02", "00"][..]),
        ("1", &["01"]),
        // The first entry that names no device ends the list.
        ("1,7,0", &["01"]),
        ("0,-1,1", &["00"]),
        (&format!("{},0", named("02")), &["02", "00"]),
        // All devices' UUIDs begin alike.
        (&format!("1,{}", &named("02")[..10]), &["01"]),
    ] {
        let (seen, found) = devices(Some(value))?;
        assert_eq!(seen, expected, "{value}");
        assert!(found.iter().all(|(bus, uuid)| uuids[bus] == *uuid), "{value}: {found:?}");
    }
    for value in ["", "-1", "NoDevFiles", "3", "0,0", "GPU-", "GPU-x"] {
        assert_eq!(devices(Some(value))?.0, ["CUDA_ERROR_NO_DEVICE"], "{value:?}");
    }
    Ok(())
}
