//! Instances and what they enumerate.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_char;

use ash::vk::{self, Handle as _};

use super::fault;
use super::ledger::{Noun, born, died};
use super::tables::{INSTANCES, Identity, InstanceTable};
use crate::interface::is_simulator;
use crate::next::NextInstance;

pub(super) unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: Vulkan asks for a valid create info.
    let valid = unsafe { &*info };
    // SAFETY: as above.
    let counted = !unsafe { is_simulator(valid) };
    if let Some(result) = fault(counted, "vkCreateInstance") {
        return result;
    }
    // SAFETY: the loader's call of this layer.
    match unsafe { NextInstance::create(info, allocator, instance) } {
        Ok(next) => {
            // SAFETY: as above.
            unsafe { remember(next, counted) };
            vk::Result::SUCCESS
        }
        Err(result) => result,
    }
}

/// # Safety
/// The instance was just created.
unsafe fn remember(next: NextInstance, counted: bool) {
    let (handle, identity) = (next.handle, Identity::new(counted));
    if counted {
        born(Noun::Instance, identity.serial, handle.as_raw());
    }
    // SAFETY: the caller's promise.
    unsafe { INSTANCES.insert(handle, InstanceTable { identity, next }) };
}

pub(super) unsafe extern "system" fn destroy_instance(
    instance: vk::Instance,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: null or a live instance of the caller's.
    let Some(table) = (unsafe { INSTANCES.remove(instance) }) else { return };
    fault(table.identity.counted, "vkDestroyInstance");
    died(Noun::Instance, table.identity.serial, instance.as_raw());
    // SAFETY: the caller's arguments, passed on.
    unsafe { (table.next.fp_v1_0().destroy_instance)(instance, allocator) };
}

pub(super) unsafe extern "system" fn enumerate_physical_devices(
    instance: vk::Instance,
    count: *mut u32,
    devices: *mut vk::PhysicalDevice,
) -> vk::Result {
    // SAFETY: a live instance of the caller's.
    let Some(table) = (unsafe { INSTANCES.get(instance) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    if let Some(result) = fault(table.identity.counted, "vkEnumeratePhysicalDevices") {
        return result;
    }
    // SAFETY: the caller's arguments, passed on.
    unsafe { (table.next.fp_v1_0().enumerate_physical_devices)(instance, count, devices) }
}

pub(super) unsafe extern "system" fn enumerate_device_extension_properties(
    device: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    // SAFETY: a live physical device of the caller's.
    let Some(table) = (unsafe { INSTANCES.get(device) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    if let Some(result) = fault(table.identity.counted, "vkEnumerateDeviceExtensionProperties") {
        return result;
    }
    let next = table.next.fp_v1_0().enumerate_device_extension_properties;
    // SAFETY: the caller's arguments, passed on.
    unsafe { next(device, layer, count, properties) }
}
