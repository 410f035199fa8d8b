//! Exported memory: descriptors with labels, and the features that the device reports.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_int;

use ash::khr::external_memory_fd;
use ash::vk;

use super::catalog::profile;
use super::device::DEVICES;
use super::instance::INSTANCES;
use super::physical::find;
use crate::rules::broken;

pub(super) unsafe extern "system" fn get_memory_fd(
    device: vk::Device,
    info: *const vk::MemoryGetFdInfoKHR<'_>,
    fd: *mut c_int,
) -> vk::Result {
    const FUNCTION: &str = "vkGetMemoryFdKHR";
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: Vulkan asks for a valid structure.
    let memory = unsafe { (*info).memory };
    let Some(label) = known.memories().get(&memory).and_then(|memory| memory.export) else {
        broken(FUNCTION, "the memory was not allocated for export (handleType-00671)");
    };
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (known.external_memory_fd.get_memory_fd_khr)(device, info, fd) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        let fd = unsafe { *fd };
        // Without a free descriptor lavapipe succeeds with -1.
        if fd >= 0
            && let Err(error) = label.write(fd)
        {
            // Without it the simulated CUDA driver would not follow the profile, and a test prove nothing.
            broken(FUNCTION, &format!("the label of the memory: {error}"));
        }
    }
    result
}

pub(super) unsafe extern "system" fn get_physical_device_external_buffer_properties(
    device: vk::PhysicalDevice,
    info: *const vk::PhysicalDeviceExternalBufferInfo<'_>,
    properties: *mut vk::ExternalBufferProperties<'_>,
) {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { INSTANCES.get(device) }) else { return };
    // SAFETY: the caller's arguments, passed on.
    unsafe { (instance.next.fp_v1_1().get_physical_device_external_buffer_properties)(device, info, properties) };
    // SAFETY: the caller's output, which was written.
    change(unsafe { &mut (*properties).external_memory_properties });
}

pub(super) unsafe extern "system" fn get_physical_device_image_format_properties2(
    device: vk::PhysicalDevice,
    info: *const vk::PhysicalDeviceImageFormatInfo2<'_>,
    properties: *mut vk::ImageFormatProperties2<'_>,
) -> vk::Result {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { INSTANCES.get(device) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let next = instance.next.fp_v1_1().get_physical_device_image_format_properties2;
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { next(device, info, properties) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the caller's structure.
        let p_next = unsafe { (*properties).p_next };
        // SAFETY: the chain that was just written.
        if let Some(external) = unsafe { find::<vk::ExternalImageFormatProperties<'_>>(p_next) } {
            change(&mut external.external_memory_properties);
        }
    }
    result
}

/// Takes from the driver's answer what the profile's driver cannot do.
fn change(properties: &mut vk::ExternalMemoryProperties) {
    if profile().hidden.contains(&external_memory_fd::NAME) {
        *properties = vk::ExternalMemoryProperties::default();
    }
}
