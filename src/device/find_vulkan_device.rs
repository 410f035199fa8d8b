//! Finds the Vulkan device of a CUDA device: by the loader, otherwise by NVIDIA's headless driver without the loader.
#![forbid(unsafe_code)]

use ash::vk;
use cudarc::driver::sys::CUdevice;

use crate::diagnosis::{Evidence, System};
use crate::driver::vulkan::icd::HEADLESS;
use crate::driver::vulkan::{Instance, PhysicalDevice};
use crate::error::hyphenated;
use crate::{Error, Result};

/// A Vulkan device, and a line for the log if the loader did not find it.
pub(super) struct Found {
    pub(super) instance: &'static Instance,
    pub(super) physical: PhysicalDevice,
    pub(super) note: Option<String>,
}

/// The Vulkan device with this UUID. `name` is what CUDA calls the device.
///
/// # Errors
///
/// The loader's error, with the cause as far as the system shows one.
pub(super) fn find_vulkan_device(device: CUdevice, uuid: [u8; 16], name: &str) -> Result<Found> {
    let error = match among(Instance::get(), device, uuid) {
        Ok((instance, physical)) => return Ok(Found { instance, physical, note: None }),
        Err(error) => error,
    };
    if !is_missing(&error) {
        return Err(error);
    }
    match among(Instance::headless(), device, uuid) {
        Ok((instance, physical)) => {
            let note = format!("using {HEADLESS} without the Vulkan loader, since: {error}");
            Ok(Found { instance, physical, note: Some(note) })
        }
        Err(_) => {
            let cause = Evidence::gather(&System::here()).cause(name).to_string();
            Err(Error::NoVulkan { error: Box::new(error), cause })
        }
    }
}

fn among(
    instance: Result<&'static Instance>,
    device: CUdevice,
    uuid: [u8; 16],
) -> Result<(&'static Instance, PhysicalDevice)> {
    let instance = instance?;
    let mut devices = instance.physical_devices()?;
    // A driver that does not report a UUID leaves zeroes, which must not match each other.
    match devices.iter().position(|d| d.uuid == uuid && uuid != [0; 16]) {
        Some(matching) => Ok((instance, devices.swap_remove(matching))),
        None => Err(Error::NoMatchingDevice { device, uuid, found: describe(&devices) }),
    }
}

/// Whether an error means that the loader knows no driver for the GPU. Others, such as a lack of memory, would meet the
/// headless driver as well.
fn is_missing(error: &Error) -> bool {
    match error {
        Error::Library { .. } | Error::NoMatchingDevice { .. } => true,
        Error::Vulkan { code, .. } => {
            [vk::Result::ERROR_INCOMPATIBLE_DRIVER, vk::Result::ERROR_INITIALIZATION_FAILED].contains(code)
        }
        _ => false,
    }
}

/// The devices that Vulkan lists, for an error.
fn describe(devices: &[PhysicalDevice]) -> String {
    if devices.is_empty() {
        return "Vulkan has no device at all".to_owned();
    }
    let list: Vec<_> = devices.iter().map(|d| format!("{} ({})", d.name, hyphenated(d.uuid))).collect();
    format!("Vulkan has {}", list.join(", "))
}
