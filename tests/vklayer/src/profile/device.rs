//! Devices.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ash::ext::memory_budget;
use ash::khr::external_memory_fd;
use ash::vk;

use super::catalog::profile;
use super::instance::{INSTANCES, Instance};
use super::memory::Memory;
use crate::interface::{DeviceLink, address, take_link, text};
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
    pub(super) get_device_proc_addr: vk::PFN_vkGetDeviceProcAddr,
    pub(super) functions: ash::DeviceFnV1_0,
    pub(super) functions_1_1: ash::DeviceFnV1_1,
    pub(super) functions_1_3: ash::DeviceFnV1_3,
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
    // SAFETY: the loader's call of this layer.
    let Some(link) = (unsafe { take_link::<DeviceLink>(info.p_next) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: the instance of the physical device, which the link belongs to.
    let Some(next) = (unsafe { link.create_device(instance.handle) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: the caller's arguments with fewer extensions, alive during the call.
    let result = unsafe { next(physical, &raw const info, allocator, device) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        let created = unsafe { *device };
        // SAFETY: the new device, and the link of this call.
        unsafe { remember(created, link, &instance, physical) };
    }
    result
}

/// The extensions that the application enables without the one that is this layer's own; `None` when the profile hides
/// one of them.
///
/// # Safety
/// `info` is a valid create info.
unsafe fn extensions(info: &vk::DeviceCreateInfo<'_>) -> Option<Vec<*const c_char>> {
    let count = info.enabled_extension_count as usize;
    if count == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the caller's promise: an array of this length.
    let mut names = unsafe { std::slice::from_raw_parts(info.pp_enabled_extension_names, count) }.to_vec();
    // SAFETY: the names are terminated strings.
    let name = |name: *const c_char| unsafe { text(name) }.unwrap_or_default();
    if names.iter().any(|&pointer| profile().hidden.contains(&name(pointer))) {
        return None;
    }
    names.retain(|&pointer| name(pointer) != memory_budget::NAME);
    Some(names)
}

/// # Safety
/// `device` was just created through `link` on `physical`, which is the instance's.
unsafe fn remember(device: vk::Device, link: DeviceLink, instance: &Instance, physical: vk::PhysicalDevice) {
    let get_device_proc_addr = link.get_device_proc_addr;
    let find = |name: &std::ffi::CStr| {
        // SAFETY: the caller's promise: a live device and the next layer's function.
        let function = unsafe { get_device_proc_addr(device, name.as_ptr()) };
        // What is in Vulkan now was an extension before.
        let name = CString::new([name.to_bytes(), b"KHR"].concat()).unwrap_or_default();
        // SAFETY: as above.
        address(function.or_else(|| unsafe { get_device_proc_addr(device, name.as_ptr()) }))
    };
    let known = Device {
        passive: instance.passive,
        place: if instance.passive { 0 } else { instance.place(physical).unwrap_or_default() },
        // SAFETY: the caller's promise.
        driver_type: unsafe { host_visible_type(instance, physical) },
        get_device_proc_addr,
        functions: ash::DeviceFnV1_0::load(find),
        functions_1_1: ash::DeviceFnV1_1::load(find),
        functions_1_3: ash::DeviceFnV1_3::load(find),
        external_memory_fd: external_memory_fd::DeviceFn::load(find),
        memories: Mutex::default(),
    };
    // SAFETY: a live device.
    unsafe { DEVICES.insert(device, known) };
}

/// The driver's first memory type that the CPU can see.
///
/// # Safety
/// `physical` is the instance's.
unsafe fn host_visible_type(instance: &Instance, physical: vk::PhysicalDevice) -> u32 {
    let mut memory = vk::PhysicalDeviceMemoryProperties::default();
    // SAFETY: the caller's promise, and a valid output.
    unsafe { (instance.functions.get_physical_device_memory_properties)(physical, &raw mut memory) };
    let visible = |kind: &vk::MemoryType| kind.property_flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
    let place = memory.memory_types_as_slice().iter().position(visible);
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or_default()
}

pub(super) unsafe extern "system" fn destroy_device(device: vk::Device, allocator: *const vk::AllocationCallbacks<'_>) {
    // SAFETY: null or a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.remove(device) }) else { return };
    // SAFETY: the caller's arguments, passed on.
    unsafe { (known.functions.destroy_device)(device, allocator) };
}
