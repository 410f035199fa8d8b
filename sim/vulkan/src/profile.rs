//! The layer `VK_LAYER_VKGDR_profile`: a CPU's Vulkan device looks like a GPU.
//!
//! It goes last, nearest the driver. `VKLAYER_PROFILE` names the profile: sim/README.md says what each shows,
//! and `profile/catalog.rs` has their properties. The simulated CUDA driver has its part of some
//! (`sim/cuda/src/profile.rs`), and finds the properties of memory by the label that this layer gives to
//! descriptors. A profile without Vulkan has no layer.
//!
//! All memory is actually of the driver's one type. The layer enforces the limits of a GPU's driver:
//!
//! * Allocations beyond a heap's budget, which `VK_EXT_memory_budget` reports, fail with
//!   `VK_ERROR_OUT_OF_DEVICE_MEMORY`, and so do those for which no hole of the heap is large enough. Usage is counted
//!   per process and GPU.
//! * Mapping memory that is not host-visible fails with `VK_ERROR_MEMORY_MAP_FAILED`.
//! * The CPU's mapping of non-coherent memory has pages of its own (`profile/shadow.rs`). Exactly the bytes that are
//!   flushed or invalidated are copied between the two sides, and only then.
//! * A range to flush or invalidate that violates Vulkan's rules ends the process, also for coherent memory. So does an
//!   export of memory that was not allocated for it, and a dedicated allocation of another size than the buffer's.
//! * An import of memory of another GPU fails with `VK_ERROR_INVALID_EXTERNAL_HANDLE`.
//!
//! Profiles of two GPUs need a driver that lists two devices, such as one that `VK_DRIVER_FILES` names twice.
#![expect(unsafe_code, reason = "is a Vulkan layer: called by the loader, calls the next layer")]

mod allocate;
mod books;
mod catalog;
mod device;
mod export;
mod instance;
mod memory;
mod memory_functions;
mod physical;
mod range;
mod requirements;
mod shadow;

use std::ffi::CStr;

use ash::vk;

use crate::dispatch::{DeviceLayer, Layer, device_life, function_named, get_device_proc_addr, get_instance_proc_addr};
use crate::interface::{NegotiateInterface, negotiate};
use allocate::{allocate_memory, free_memory};
use device::Device;
use export::{
    get_memory_fd, get_physical_device_external_buffer_properties, get_physical_device_image_format_properties2,
};
use instance::Instance;
use memory_functions::{flush_mapped_memory_ranges, invalidate_mapped_memory_ranges, map_memory, unmap_memory};
use physical::{
    enumerate_device_extension_properties, get_physical_device_memory_properties,
    get_physical_device_memory_properties2, get_physical_device_properties, get_physical_device_properties2,
};
use requirements::{
    buffer, buffer2, device_buffer, device_image, image, image2, memory_fd_properties, memory_host_pointer_properties,
};

/// The layer.
struct ProfileLayer;

impl Layer for ProfileLayer {
    type Instance = Instance;

    fn instance_function(name: &CStr) -> vk::PFN_vkVoidFunction {
        let own = function_named! { name;
            PFN_vkGetPhysicalDeviceProperties => get_physical_device_properties,
            PFN_vkGetPhysicalDeviceProperties2 => get_physical_device_properties2,
            PFN_vkGetPhysicalDeviceMemoryProperties => get_physical_device_memory_properties,
            PFN_vkGetPhysicalDeviceMemoryProperties2 => get_physical_device_memory_properties2,
            PFN_vkEnumerateDeviceExtensionProperties => enumerate_device_extension_properties,
            PFN_vkGetPhysicalDeviceExternalBufferProperties => get_physical_device_external_buffer_properties,
            PFN_vkGetPhysicalDeviceImageFormatProperties2 => get_physical_device_image_format_properties2,
        };
        own.or_else(|| Self::device_function(name))
    }

    fn device_life(name: &CStr) -> vk::PFN_vkVoidFunction {
        device_life::<Self>(name)
    }
}

impl DeviceLayer for ProfileLayer {
    type Device = Device;

    fn device_function(name: &CStr) -> vk::PFN_vkVoidFunction {
        function_named! { name;
            PFN_vkAllocateMemory => allocate_memory,
            PFN_vkFreeMemory => free_memory,
            PFN_vkMapMemory => map_memory,
            PFN_vkUnmapMemory => unmap_memory,
            PFN_vkFlushMappedMemoryRanges => flush_mapped_memory_ranges,
            PFN_vkInvalidateMappedMemoryRanges => invalidate_mapped_memory_ranges,
            PFN_vkGetBufferMemoryRequirements => buffer,
            PFN_vkGetImageMemoryRequirements => image,
            PFN_vkGetBufferMemoryRequirements2 => buffer2,
            PFN_vkGetImageMemoryRequirements2 => image2,
            PFN_vkGetDeviceBufferMemoryRequirements => device_buffer,
            PFN_vkGetDeviceImageMemoryRequirements => device_image,
            PFN_vkGetMemoryFdPropertiesKHR => memory_fd_properties,
            PFN_vkGetMemoryHostPointerPropertiesEXT => memory_host_pointer_properties,
            PFN_vkGetMemoryFdKHR => get_memory_fd,
        }
    }
}

/// The loader's first call.
///
/// # Safety
/// `interface` is null or the loader's structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vklayer_profile_negotiate(interface: *mut NegotiateInterface) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe { negotiate(interface, get_instance_proc_addr::<ProfileLayer>, Some(get_device_proc_addr::<ProfileLayer>)) }
}
