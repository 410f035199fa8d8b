//! The devices: their identities, derived from the Vulkan device underneath, and their properties.
//!
//! By default there is one device, with the Vulkan device's UUID. With `SIMCUDA_DEVICES`, each device adds its number
//! to the last byte of the UUID and has a PCI bus of its own. `CUDA_VISIBLE_DEVICES` chooses and orders them: a program's
//! devices are its ordinals, from which the numbers may differ.

mod attributes;
mod visible;

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::boundary::exports;
use crate::code::{Code, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, Outcome};
use crate::ffi::{Out, Text, write_text};
use crate::heap;
use crate::layout::Location;
use crate::settings::settings;
use crate::vulkan;
pub(crate) use attributes::COMPUTE_CAPABILITY;

/// The numbers of the devices that the program sees, by ordinal. An ordinal is also the device's handle.
static VISIBLE: LazyLock<Vec<i32>> = LazyLock::new(|| visible::numbers(settings().devices, uuid_text));

/// The number of devices that the program sees.
pub(crate) fn how_many() -> i32 {
    i32::try_from(VISIBLE.len()).unwrap_or(i32::MAX)
}

/// The number of a device among all, which is Vulkan's, too.
pub(crate) fn number(device: i32) -> Result<i32, Code> {
    let index = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
    VISIBLE.get(index).copied().ok_or(INVALID_DEVICE)
}

/// Refuses ordinals that no device has.
pub(crate) fn check(device: i32) -> Outcome {
    number(device).map(drop)
}

/// The ordinal of a location, which must be a device.
pub(crate) fn located(location: Location) -> Result<i32, Code> {
    if location.kind != Location::ON_DEVICE {
        return Err(INVALID_VALUE);
    }
    check(location.id)?;
    Ok(location.id)
}

/// The ordinal of the device with this number, if the program sees it.
pub(crate) fn ordinal(number: i32) -> Option<i32> {
    (0..how_many()).find(|device| self::number(*device) == Ok(number))
}

fn bus_id(number: i32) -> String {
    format!("0000:{number:02x}:00.0")
}

fn uuid_of(number: i32) -> Result<[u8; 16], Code> {
    let mut uuid = vulkan::cpu_device().ok_or(NO_DEVICE)?.uuid;
    let last = &mut uuid[15];
    *last = last.wrapping_add(u8::try_from(number).map_err(|_| INVALID_DEVICE)?);
    Ok(uuid)
}

/// The UUID as `nvidia-smi -L` prints it; none without a Vulkan device underneath.
fn uuid_text(number: i32) -> Option<String> {
    let mut text = "GPU".to_owned();
    for (index, byte) in uuid_of(number).ok()?.iter().enumerate() {
        let hyphen = if [0, 4, 6, 8, 10].contains(&index) { "-" } else { "" };
        text += &format!("{hyphen}{byte:02x}");
    }
    Some(text)
}

/// A device attribute that is a limit.
pub(crate) fn limit(attribute: Attribute) -> u64 {
    attributes::value(attribute as u32).and_then(|value| u64::try_from(value).ok()).unwrap_or_default()
}

fn get(out: Out<i32>, ordinal: i32) -> Outcome {
    out.required()?;
    check(ordinal)?;
    out.set(ordinal)
}

fn count(out: Out<i32>) -> Outcome {
    out.set(how_many())
}

fn name(buffer: Out<u8>, capacity: i32, device: i32) -> Outcome {
    buffer.required()?;
    check(device)?;
    let under = vulkan::cpu_device().ok_or(NO_DEVICE)?;
    let capacity = usize::try_from(capacity).map_err(|_| INVALID_VALUE)?;
    write_text(buffer, capacity, &format!("Simulated CUDA device ({})", under.name))
}

fn uuid(out: Out<[u8; 16]>, device: i32) -> Outcome {
    out.required()?;
    out.set(uuid_of(number(device)?)?)
}

fn total_memory(out: Out<usize>, device: i32) -> Outcome {
    out.required()?;
    check(device)?;
    out.set(heap::capacity())
}

// The form of CUDA 2, with a 32-bit size.
fn total_memory_legacy(out: Out<u32>, device: i32) -> Outcome {
    out.required()?;
    check(device)?;
    out.set(u32::try_from(heap::capacity()).unwrap_or(u32::MAX))
}

fn attribute(out: Out<i32>, key: u32, device: i32) -> Outcome {
    out.required()?;
    let value = attributes::value(key).ok_or(INVALID_VALUE)?;
    let number = number(device)?;
    out.set(if key == attributes::PCI_BUS_ID { number } else { value })
}

fn compute_capability(major: Out<i32>, minor: Out<i32>, device: i32) -> Outcome {
    major.required()?;
    minor.required()?;
    check(device)?;
    major.set(attributes::COMPUTE_CAPABILITY.0)?;
    minor.set(attributes::COMPUTE_CAPABILITY.1)
}

fn pci_bus_id(buffer: Out<u8>, capacity: i32, device: i32) -> Outcome {
    buffer.required()?;
    let number = number(device)?;
    let capacity = usize::try_from(capacity).map_err(|_| INVALID_VALUE)?;
    write_text(buffer, capacity, &bus_id(number))
}

fn by_pci_bus_id(out: Out<i32>, text: Text<'_>) -> Outcome {
    out.required()?;
    let text = text.read().ok_or(INVALID_VALUE)?;
    let bus = bus_of(text).ok_or(INVALID_DEVICE)?;
    out.set((0..how_many()).find(|device| number(*device) == Ok(bus)).ok_or(INVALID_DEVICE)?)
}

/// The bus of a device's address, which is its number ([`bus_id`]): "domain:bus:device.function", or without the function or the
/// domain, in hexadecimal digits.
fn bus_of(address: &str) -> Option<i32> {
    let (path, function) = address.split_once('.').map_or((address, None), |(path, function)| (path, Some(function)));
    let number = |digits| i32::from_str_radix(digits, 16).ok();
    let numbers = path.split(':').chain(function).map(number).collect::<Option<Vec<_>>>()?;
    match (function, numbers.as_slice()) {
        (Some(_), [0, bus, 0, 0] | [bus, 0, 0]) | (None, [0, bus, 0]) => Some(*bus),
        _ => None,
    }
}

fn can_access_peer(out: Out<i32>, device: i32, peer: i32) -> Outcome {
    out.required()?;
    check(device)?;
    check(peer)?;
    out.set(0)
}

/// No device can access another's memory: the attributes of pairs, from `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK` on, are 0.
fn peer_attribute(out: Out<i32>, attribute: u32, source: i32, target: i32) -> Outcome {
    const ATTRIBUTES: RangeInclusive<u32> = 1..=5;
    out.required()?;
    check(source)?;
    check(target)?;
    match attribute {
        _ if source == target => Err(INVALID_DEVICE),
        _ if !ATTRIBUTES.contains(&attribute) => Err(INVALID_VALUE),
        _ => out.set(0),
    }
}

exports! {
    cuDeviceGet => get(out: Out<i32>, ordinal: i32);
    cuDeviceGetCount => count(out: Out<i32>);
    cuDeviceGetName => name(buffer: Out<u8>, capacity: i32, device: i32);
    cuDeviceGetUuid, cuDeviceGetUuid_v2 => uuid(out: Out<[u8; 16]>, device: i32);
    cuDeviceTotalMem_v2 => total_memory(out: Out<usize>, device: i32);
    cuDeviceTotalMem => total_memory_legacy(out: Out<u32>, device: i32);
    cuDeviceGetAttribute => attribute(out: Out<i32>, key: u32, device: i32);
    cuDeviceComputeCapability => compute_capability(major: Out<i32>, minor: Out<i32>, device: i32);
    cuDeviceGetPCIBusId => pci_bus_id(buffer: Out<u8>, capacity: i32, device: i32);
    cuDeviceGetByPCIBusId => by_pci_bus_id(out: Out<i32>, text: Text<'_>);
    cuDeviceGetP2PAttribute => peer_attribute(out: Out<i32>, attribute: u32, source: i32, target: i32);
    cuDeviceCanAccessPeer => can_access_peer(out: Out<i32>, device: i32, peer: i32);
}
