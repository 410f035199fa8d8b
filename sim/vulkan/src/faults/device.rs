//! Devices.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use ash::khr::external_memory_fd;
use ash::vk::{self, Handle as _};

use super::fault;
use super::ledger::{Noun, born, died};
use super::tables::{DEVICES, DeviceTable, INSTANCES, Identity};
use crate::next::NextDevice;

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
    // SAFETY: the loader's call of this layer.
    match unsafe { NextDevice::create(&instance.next, physical, info, allocator, device) } {
        Ok(next) => {
            // SAFETY: as above.
            unsafe { remember(next, instance.identity.counted) };
            vk::Result::SUCCESS
        }
        Err(result) => result,
    }
}

/// # Safety
/// The device was just created.
unsafe fn remember(next: NextDevice, counted: bool) {
    let (handle, identity) = (next.handle, Identity::new(counted));
    if counted {
        born(Noun::Device, identity.serial, handle.as_raw());
    }
    // SAFETY: the caller's promise.
    let external_memory_fd = external_memory_fd::DeviceFn::load(|name| unsafe { next.find(name) });
    // SAFETY: as above.
    unsafe { DEVICES.insert(handle, DeviceTable { identity, next, external_memory_fd }) };
}

pub(super) unsafe extern "system" fn destroy_device(device: vk::Device, allocator: *const vk::AllocationCallbacks<'_>) {
    // SAFETY: null or a live device of the caller's.
    let Some(table) = (unsafe { DEVICES.remove(device) }) else { return };
    fault(table.identity.counted, "vkDestroyDevice");
    died(Noun::Device, table.identity.serial, device.as_raw());
    // SAFETY: the caller's arguments, passed on.
    unsafe { (table.next.fp_v1_0().destroy_device)(device, allocator) };
}
