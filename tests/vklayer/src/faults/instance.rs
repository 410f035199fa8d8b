//! Instances and what they enumerate.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_char;

use ash::vk::{self, Handle as _};

use super::fault;
use super::ledger::{Noun, born, died};
use super::tables::{INSTANCES, InstanceTable};
use crate::interface::{InstanceLink, is_simulator, take_link};

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
    let Some(link) = (unsafe { take_link::<InstanceLink>(valid.p_next) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let create = link.create_instance();
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { create(info, allocator, instance) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        let created = unsafe { *instance };
        // SAFETY: the new instance, and the link of this call.
        unsafe { remember(created, link, counted) };
    }
    result
}

/// # Safety
/// `instance` was just created through `link`.
unsafe fn remember(instance: vk::Instance, link: InstanceLink, counted: bool) {
    // SAFETY: the caller's promise.
    let table = unsafe { InstanceTable::resolve(instance, link, counted) };
    if counted {
        born(Noun::Instance, table.identity.serial, instance.as_raw());
    }
    // SAFETY: a live instance.
    unsafe { INSTANCES.insert(instance, table) };
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
    unsafe { (table.functions.destroy_instance)(instance, allocator) };
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
    unsafe { (table.functions.enumerate_physical_devices)(instance, count, devices) }
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
    let next = table.functions.enumerate_device_extension_properties;
    // SAFETY: the caller's arguments, passed on.
    unsafe { next(device, layer, count, properties) }
}
