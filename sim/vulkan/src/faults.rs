//! The layer `VK_LAYER_VKGDR_faults`: chosen calls fail, live objects are counted, and calls are traced.
//!
//! An injected failure does not call the next layer and writes no output.
#![expect(unsafe_code, reason = "is a Vulkan layer: called by the loader, calls the next layer")]

mod device;
mod identity;
mod image;
pub(crate) mod injection;
mod instance;
pub(crate) mod ledger;
mod memory;
mod passing;
mod semaphore;
mod trace;

use std::ffi::CStr;

use ash::vk;

use crate::dispatch::{DeviceLayer, Layer, device_life, function_named, get_device_proc_addr, get_instance_proc_addr};
use crate::interface::{NegotiateInterface, negotiate};
use device::Device;
use image::{bind_image_memory, create_image, destroy_image};
use instance::{Instance, enumerate_device_extension_properties, enumerate_physical_devices};
use memory::{
    allocate_memory, bind_buffer_memory, create_buffer, destroy_buffer, flush_mapped_memory_ranges, free_memory,
    get_memory_fd, invalidate_mapped_memory_ranges, map_memory, unmap_memory,
};
use semaphore::{
    create_semaphore, destroy_semaphore, get_semaphore_fd, import_semaphore_fd, signal_semaphore, wait_semaphores,
};

/// The layer.
struct Faults;

impl Layer for Faults {
    type Instance = Instance;

    fn instance_function(name: &CStr) -> vk::PFN_vkVoidFunction {
        let own = function_named! { name;
            PFN_vkEnumeratePhysicalDevices => enumerate_physical_devices,
            PFN_vkEnumerateDeviceExtensionProperties => enumerate_device_extension_properties,
        };
        own.or_else(|| Self::device_function(name))
    }

    fn device_life(name: &CStr) -> vk::PFN_vkVoidFunction {
        device_life::<Self>(name)
    }
}

impl DeviceLayer for Faults {
    type Device = Device;

    fn device_function(name: &CStr) -> vk::PFN_vkVoidFunction {
        function_named! { name;
            PFN_vkCreateBuffer => create_buffer,
            PFN_vkDestroyBuffer => destroy_buffer,
            PFN_vkBindBufferMemory => bind_buffer_memory,
            PFN_vkCreateImage => create_image,
            PFN_vkDestroyImage => destroy_image,
            PFN_vkBindImageMemory => bind_image_memory,
            PFN_vkAllocateMemory => allocate_memory,
            PFN_vkFreeMemory => free_memory,
            PFN_vkMapMemory => map_memory,
            PFN_vkUnmapMemory => unmap_memory,
            PFN_vkFlushMappedMemoryRanges => flush_mapped_memory_ranges,
            PFN_vkInvalidateMappedMemoryRanges => invalidate_mapped_memory_ranges,
            PFN_vkGetMemoryFdKHR => get_memory_fd,
            PFN_vkCreateSemaphore => create_semaphore,
            PFN_vkDestroySemaphore => destroy_semaphore,
            PFN_vkGetSemaphoreFdKHR => get_semaphore_fd,
            PFN_vkImportSemaphoreFdKHR => import_semaphore_fd,
            PFN_vkSignalSemaphore => signal_semaphore,
            PFN_vkWaitSemaphores => wait_semaphores,
        }
    }
}

/// The loader's first call.
///
/// # Safety
/// `interface` is null or the loader's structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vklayer_faults_negotiate(interface: *mut NegotiateInterface) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe { negotiate(interface, get_instance_proc_addr::<Faults>, Some(get_device_proc_addr::<Faults>)) }
}
