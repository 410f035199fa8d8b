//! Devices.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ash::ext::memory_budget;
use ash::khr::external_memory_fd;
use ash::vk;

use super::catalog::profile;
use super::instance::{INSTANCES, Instance};
use super::memory::Memory;
use crate::interface::{extension_names, text};
use crate::next::NextDevice;
use crate::tables::Tables;

/// All devices of the process.
pub(super) static DEVICES: Tables<Device> = Tables::new();

/// What the layer knows of a device.
pub(super) struct Device {
    /// As the instance.
    pub(super) passive: bool,
    /// The place of its physical device in Vulkan's list.
    pub(super) place: usize,
    /// The driver's own memory type, in which all memory really is.
    pub(super) driver_type: u32,
    pub(super) next: NextDevice,
    pub(super) external_memory_fd: external_memory_fd::DeviceFn,
    memories: Mutex<BTreeMap<vk::DeviceMemory, Memory>>,
}

impl Device {
    /// Its live memory.
    pub(super) fn memories(&self) -> MutexGuard<'_, BTreeMap<vk::DeviceMemory, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    // SAFETY: Vulkan asks for a valid create info.
    let mut info = unsafe { *info };
    // SAFETY: as above.
    let names = unsafe { extensions(&info) };
    if !instance.passive {
        let Some(names) = &names else { return vk::Result::ERROR_EXTENSION_NOT_PRESENT };
        info = info.enabled_extension_names(names);
    }
    // SAFETY: the loader's call of this layer, with fewer extensions, which are alive during the call.
    match unsafe { NextDevice::create(&instance.next, physical, &raw const info, allocator, device) } {
        Ok(next) => {
            // SAFETY: the new device, and the physical device of this call.
            unsafe { remember(next, &instance, physical) };
            vk::Result::SUCCESS
        }
        Err(result) => result,
    }
}

/// The extensions that the application enables without the one that is this layer's own; `None` when the profile hides
/// one of them.
///
/// # Safety
/// `info` is a valid create info.
unsafe fn extensions(info: &vk::DeviceCreateInfo<'_>) -> Option<Vec<*const c_char>> {
    // SAFETY: the caller's promise.
    let mut names = unsafe { extension_names(info.pp_enabled_extension_names, info.enabled_extension_count) };
    // SAFETY: the names are terminated strings.
    let name = |name: *const c_char| unsafe { text(name) }.unwrap_or_default();
    if names.iter().any(|&pointer| profile().hidden.contains(&name(pointer))) {
        return None;
    }
    names.retain(|&pointer| name(pointer) != memory_budget::NAME);
    Some(names)
}

/// # Safety
/// The device was just created on `physical`, which is the instance's.
unsafe fn remember(next: NextDevice, instance: &Instance, physical: vk::PhysicalDevice) {
    let handle = next.handle;
    let known = Device {
        passive: instance.passive,
        place: if instance.passive { 0 } else { instance.place(physical).unwrap_or_default() },
        // SAFETY: the caller's promise.
        driver_type: unsafe { host_visible_type(instance, physical) },
        // SAFETY: the caller's promise: a live device.
        external_memory_fd: external_memory_fd::DeviceFn::load(|name| unsafe { next.find(name) }),
        next,
        memories: Mutex::default(),
    };
    // SAFETY: as above.
    unsafe { DEVICES.insert(handle, known) };
}

/// The driver's first memory type that the CPU can see.
///
/// # Safety
/// `physical` is the instance's.
unsafe fn host_visible_type(instance: &Instance, physical: vk::PhysicalDevice) -> u32 {
    // SAFETY: the caller's promise.
    let memory = unsafe { instance.next.get_physical_device_memory_properties(physical) };
    let visible = |kind: &vk::MemoryType| kind.property_flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
    let place = memory.memory_types_as_slice().iter().position(visible);
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or_default()
}

pub(super) unsafe extern "system" fn destroy_device(device: vk::Device, allocator: *const vk::AllocationCallbacks<'_>) {
    // SAFETY: null or a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.remove(device) }) else { return };
    // SAFETY: the caller's arguments, passed on.
    unsafe { (known.next.fp_v1_0().destroy_device)(device, allocator) };
}
