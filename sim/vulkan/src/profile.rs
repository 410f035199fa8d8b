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

use std::ffi::CStr;

use ash::vk;

use crate::dispatch::{DeviceLayer, Layer, device_life, function_named, get_device_proc_addr, get_instance_proc_addr};
use crate::interface::{NegotiateInterface, negotiate};
use device::Device;
use instance::Instance;
use memory::{
    allocate_memory, flush_mapped_memory_ranges, free_memory, invalidate_mapped_memory_ranges, map_memory, unmap_memory,
};
use physical::{
    enumerate_device_extension_properties, get_physical_device_memory_properties,
    get_physical_device_memory_properties2, get_physical_device_properties, get_physical_device_properties2,
};
use requirements::{buffer, buffer2, device_buffer, device_image, image, image2, memory_fd_properties};

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
