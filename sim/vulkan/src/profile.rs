//! The layer `VK_LAYER_VKGDR_profile`: a CPU's Vulkan device looks like a GPU.
//!
//! It goes last, nearest the driver. `VKLAYER_PROFILE` names what it shows:
//!
//! | profile | what it is |
//! |---|---|
//! | `rebar` | a discrete GPU with Resizable BAR: all of its memory can be mapped |
//! | `bar256` | the same without Resizable BAR: mapped memory has a heap of 256 MiB |
//! | `no-bar` | none of the GPU's memory can be mapped |
//! | `non-coherent` | no kind of memory that both sides see is coherent; the atom is 256 bytes |
//! | `two-gpus`, `two-gpus-swapped` | two GPUs, which Vulkan lists in CUDA's order, or the other way round |
//! | `foreign-uuid` | a GPU that CUDA does not know |
//! | `no-external-memory` | a driver without `VK_KHR_external_memory_fd` |
//!
//! All memory is really in the driver's one type. The layer is as strict as a GPU's driver:
//!
//! * A heap gives no more than its budget, which `VK_EXT_memory_budget` tells: beyond it, allocating is
//!   `VK_ERROR_OUT_OF_DEVICE_MEMORY`. The books are the process's, one for each GPU.
//! * Mapping memory that the CPU cannot see is `VK_ERROR_MEMORY_MAP_FAILED`.
//! * Of memory that is not coherent the CPU sees pages of its own (`profile/shadow.rs`). Bytes cross when they are
//!   flushed or invalidated, no others and no sooner.
//! * A range to flush or invalidate that breaks Vulkan's rules ends the process, also where memory is coherent.
//!
//! The two GPUs need a driver that lists two devices, such as one that `VK_DRIVER_FILES` names twice.
#![expect(unsafe_code, reason = "is a Vulkan layer: called by the loader, calls the next layer")]

mod books;
mod catalog;
mod device;
mod instance;
mod memory;
mod physical;
mod range;
mod requirements;
mod shadow;

use std::ffi::c_char;

use ash::vk;

use crate::interface::{NegotiateInterface, entry, negotiate, text};
use device::{DEVICES, create_device, destroy_device};
use instance::{INSTANCES, create_instance, destroy_instance};
use memory::{
    allocate_memory, flush_mapped_memory_ranges, free_memory, invalidate_mapped_memory_ranges, map_memory, unmap_memory,
};
use physical::{
    enumerate_device_extension_properties, get_physical_device_memory_properties,
    get_physical_device_memory_properties2, get_physical_device_properties, get_physical_device_properties2,
};
use requirements::{buffer, buffer2, device_buffer, device_image, image, image2, memory_fd_properties};

/// The loader's first call.
///
/// # Safety
/// `interface` is null or the loader's structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vklayer_profile_negotiate(interface: *mut NegotiateInterface) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe { negotiate(interface, get_instance_proc_addr, Some(get_device_proc_addr)) }
}

/// The functions that come and go with instances and devices: this layer's also where it is passive.
fn life_function(name: &[u8]) -> vk::PFN_vkVoidFunction {
    match name {
        b"vkGetInstanceProcAddr" => entry!(get_instance_proc_addr as PFN_vkGetInstanceProcAddr),
        b"vkCreateInstance" => entry!(create_instance as PFN_vkCreateInstance),
        b"vkDestroyInstance" => entry!(destroy_instance as PFN_vkDestroyInstance),
        b"vkCreateDevice" => entry!(create_device as PFN_vkCreateDevice),
        b"vkGetDeviceProcAddr" => entry!(get_device_proc_addr as PFN_vkGetDeviceProcAddr),
        b"vkDestroyDevice" => entry!(destroy_device as PFN_vkDestroyDevice),
        _ => None,
    }
}

/// This layer's functions of a physical device.
fn physical_function(name: &[u8]) -> vk::PFN_vkVoidFunction {
    match name {
        b"vkGetPhysicalDeviceProperties" => {
            entry!(get_physical_device_properties as PFN_vkGetPhysicalDeviceProperties)
        }
        b"vkGetPhysicalDeviceProperties2" | b"vkGetPhysicalDeviceProperties2KHR" => {
            entry!(get_physical_device_properties2 as PFN_vkGetPhysicalDeviceProperties2)
        }
        b"vkGetPhysicalDeviceMemoryProperties" => {
            entry!(get_physical_device_memory_properties as PFN_vkGetPhysicalDeviceMemoryProperties)
        }
        b"vkGetPhysicalDeviceMemoryProperties2" | b"vkGetPhysicalDeviceMemoryProperties2KHR" => {
            entry!(get_physical_device_memory_properties2 as PFN_vkGetPhysicalDeviceMemoryProperties2)
        }
        b"vkEnumerateDeviceExtensionProperties" => {
            entry!(enumerate_device_extension_properties as PFN_vkEnumerateDeviceExtensionProperties)
        }
        _ => None,
    }
}

/// This layer's functions of a device.
fn device_function(name: &[u8]) -> vk::PFN_vkVoidFunction {
    match name.strip_suffix(b"KHR").unwrap_or(name) {
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
        b"vkGetBufferMemoryRequirements" => entry!(buffer as PFN_vkGetBufferMemoryRequirements),
        b"vkGetImageMemoryRequirements" => entry!(image as PFN_vkGetImageMemoryRequirements),
        b"vkGetBufferMemoryRequirements2" => entry!(buffer2 as PFN_vkGetBufferMemoryRequirements2),
        b"vkGetImageMemoryRequirements2" => entry!(image2 as PFN_vkGetImageMemoryRequirements2),
        b"vkGetDeviceBufferMemoryRequirements" => {
            entry!(device_buffer as PFN_vkGetDeviceBufferMemoryRequirements)
        }
        b"vkGetDeviceImageMemoryRequirements" => {
            entry!(device_image as PFN_vkGetDeviceImageMemoryRequirements)
        }
        b"vkGetMemoryFdProperties" => entry!(memory_fd_properties as PFN_vkGetMemoryFdPropertiesKHR),
        _ => None,
    }
}

unsafe extern "system" fn get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan asks for a terminated name.
    let name = unsafe { text(name) }?;
    let bytes = name.to_bytes();
    life_function(bytes).or_else(|| {
        // SAFETY: null or a live instance of the caller's.
        let known = unsafe { INSTANCES.get(instance) }?;
        let own = if known.passive { None } else { physical_function(bytes).or_else(|| device_function(bytes)) };
        // SAFETY: a live instance of the caller's.
        unsafe { known.next.answer(name, own) }
    })
}

unsafe extern "system" fn get_device_proc_addr(device: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan asks for a terminated name.
    let name = unsafe { text(name) }?;
    let bytes = name.to_bytes();
    // SAFETY: a live device of the caller's.
    let known = unsafe { DEVICES.get(device) }?;
    let own = if known.passive { None } else { device_function(bytes) };
    // SAFETY: as above.
    unsafe { known.next.answer(name, life_function(bytes).or(own)) }
}
