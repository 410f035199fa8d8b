//! Devices.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use ash::vk::{self, Handle as _};

use super::fault;
use super::ledger::{Noun, born, died};
use super::tables::{DEVICES, DeviceTable, INSTANCES};
use crate::interface::{DeviceLink, take_link};

pub(super) unsafe extern "system" fn create_device(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    device: *mut vk::Device,
) -> vk::Result {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { INSTANCES.get(physical) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    if let Some(result) = fault(instance.identity.counted, "vkCreateDevice") {
        return result;
    }
    // SAFETY: Vulkan asks for a valid create info.
    let chain = unsafe { (*info).p_next };
    // SAFETY: the loader's call of this layer.
    let Some(link) = (unsafe { take_link::<DeviceLink>(chain) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: the instance of the physical device, which the link belongs to.
    let Some(next) = (unsafe { link.create_device(instance.handle) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { next(physical, info, allocator, device) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        let created = unsafe { *device };
        // SAFETY: the new device, and the link of this call.
        unsafe { remember(created, link, instance.identity.counted) };
    }
    result
}

/// # Safety
/// `device` was just created through `link`.
unsafe fn remember(device: vk::Device, link: DeviceLink, counted: bool) {
    // SAFETY: the caller's promise.
    let table = unsafe { DeviceTable::resolve(device, link.get_device_proc_addr, counted) };
    if counted {
        born(Noun::Device, table.identity.serial, device.as_raw());
    }
    // SAFETY: a live device.
    unsafe { DEVICES.insert(device, table) };
}

pub(super) unsafe extern "system" fn destroy_device(device: vk::Device, allocator: *const vk::AllocationCallbacks<'_>) {
    // SAFETY: null or a live device of the caller's.
    let Some(table) = (unsafe { DEVICES.remove(device) }) else { return };
    fault(table.identity.counted, "vkDestroyDevice");
    died(Noun::Device, table.identity.serial, device.as_raw());
    // SAFETY: the caller's arguments, passed on.
    unsafe { (table.functions.destroy_device)(device, allocator) };
}
