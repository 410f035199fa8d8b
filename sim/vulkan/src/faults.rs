//! The layer `VK_LAYER_VKGDR_faults`: chosen calls fail, and live objects are counted.
//!
//! An injected failure calls nothing beneath and writes no output.
#![expect(unsafe_code, reason = "is a Vulkan layer: called by the loader, calls the next layer")]

mod device;
pub(crate) mod injection;
mod instance;
pub(crate) mod ledger;
mod memory;
mod tables;

use std::ffi::c_char;

use ash::vk;

use crate::interface::{NegotiateInterface, entry, negotiate, text};
use device::{create_device, destroy_device};
use instance::{create_instance, destroy_instance, enumerate_device_extension_properties, enumerate_physical_devices};
use memory::{
    allocate_memory, flush_mapped_memory_ranges, free_memory, get_memory_fd, invalidate_mapped_memory_ranges,
    map_memory, unmap_memory,
};
use tables::{DEVICES, INSTANCES};

/// The loader's first call.
///
/// # Safety
/// `interface` is null or the loader's structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vklayer_faults_negotiate(interface: *mut NegotiateInterface) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe { negotiate(interface, get_instance_proc_addr, Some(get_device_proc_addr)) }
}

/// Counts a call and says what it must fail with; the simulated CUDA driver's calls always pass.
fn fault(counted: bool, function: &'static str) -> Option<vk::Result> {
    if !counted {
        return None;
    }
    injection::enter(function).map(vk::Result::from_raw)
}

/// This layer's functions of an instance or physical device.
fn instance_function(name: &[u8]) -> vk::PFN_vkVoidFunction {
    match name {
        b"vkGetInstanceProcAddr" => entry!(get_instance_proc_addr as PFN_vkGetInstanceProcAddr),
        b"vkCreateInstance" => entry!(create_instance as PFN_vkCreateInstance),
        b"vkDestroyInstance" => entry!(destroy_instance as PFN_vkDestroyInstance),
        b"vkEnumeratePhysicalDevices" => {
            entry!(enumerate_physical_devices as PFN_vkEnumeratePhysicalDevices)
        }
        b"vkEnumerateDeviceExtensionProperties" => {
            entry!(enumerate_device_extension_properties as PFN_vkEnumerateDeviceExtensionProperties)
        }
        b"vkCreateDevice" => entry!(create_device as PFN_vkCreateDevice),
        _ => None,
    }
}

/// This layer's functions of a device.
fn device_function(name: &[u8]) -> vk::PFN_vkVoidFunction {
    match name {
        b"vkGetDeviceProcAddr" => entry!(get_device_proc_addr as PFN_vkGetDeviceProcAddr),
        b"vkDestroyDevice" => entry!(destroy_device as PFN_vkDestroyDevice),
        b"vkAllocateMemory" => entry!(allocate_memory as PFN_vkAllocateMemory),
        b"vkFreeMemory" => entry!(free_memory as PFN_vkFreeMemory),
        b"vkMapMemory" => entry!(map_memory as PFN_vkMapMemory),
        b"vkUnmapMemory" => entry!(unmap_memory as PFN_vkUnmapMemory),
        b"vkFlushMappedMemoryRanges" => {
            entry!(flush_mapped_memory_ranges as PFN_vkFlushMappedMemoryRanges)
        }
        b"vkInvalidateMappedMemoryRanges" => {
            entry!(invalidate_mapped_memory_ranges as PFN_vkInvalidateMappedMemoryRanges)
        }
        b"vkGetMemoryFdKHR" => entry!(get_memory_fd as PFN_vkGetMemoryFdKHR),
        _ => None,
    }
}

unsafe extern "system" fn get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan asks for a terminated name.
    let name = unsafe { text(name) }?;
    instance_function(name.to_bytes()).or_else(|| {
        // SAFETY: null or a live instance of the caller's.
        let table = unsafe { INSTANCES.get(instance) }?;
        // SAFETY: a live instance of the caller's.
        unsafe { table.next.answer(name, device_function(name.to_bytes())) }
    })
}

unsafe extern "system" fn get_device_proc_addr(device: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan asks for a terminated name.
    let name = unsafe { text(name) }?;
    // SAFETY: a live device of the caller's.
    let table = unsafe { DEVICES.get(device) }?;
    // SAFETY: as above.
    unsafe { table.next.answer(name, device_function(name.to_bytes())) }
}
