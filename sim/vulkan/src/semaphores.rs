//! The layer `VK_LAYER_VKGDR_semaphores`: semaphores are exported and imported by opaque descriptors, which lavapipe
//! cannot do.
//!
//! It adds `VK_KHR_external_semaphore_fd`, and goes beneath all layers but the profile's. The driver has a timeline
//! semaphore for each shared one, also for binary ones, whose waits and signals get values when they are submitted. What
//! all sides see is the payload behind the descriptor (`payload.rs`); two threads for each shared semaphore carry the
//! values of the driver to it, and back (`semaphores/mirror.rs`).
//!
//! Not simulated: temporary imports, other types of descriptors, swapchains that signal or wait for shared semaphores,
//! sparse binding, and `vkGetFenceStatus` as a wait: a signal may reach other processes only after it said success. A signal from outside that comes after the submission of a queue's signal must be ordered by the
//! semaphore itself: the submission waits for its value. Signals of the host, and what the program submits after it has seen
//! the one from outside, may be ordered in any way.
#![expect(unsafe_code, reason = "is a Vulkan layer: called by the loader, calls the next layer")]

mod device;
mod fd;
mod instance;
mod life;
mod mirror;
mod shared;
mod submit;
mod waits;

use std::ffi::CStr;

use ash::vk;

use crate::dispatch::{DeviceLayer, Layer, device_life, function_named, get_device_proc_addr, get_instance_proc_addr};
use crate::interface::{NegotiateInterface, negotiate};
use device::Device;
use fd::{get_semaphore_fd, import_semaphore_fd};
use instance::{Instance, enumerate_device_extension_properties, get_physical_device_external_semaphore_properties};
use life::{create_semaphore, destroy_semaphore};
use submit::{queue_submit, queue_submit2};
use waits::{
    device_wait_idle, get_semaphore_counter_value, queue_wait_idle, signal_semaphore, wait_for_fences, wait_semaphores,
};

/// The layer.
struct Semaphores;

impl Layer for Semaphores {
    type Instance = Instance;

    fn instance_function(name: &CStr) -> vk::PFN_vkVoidFunction {
        let own = function_named! { name;
            PFN_vkEnumerateDeviceExtensionProperties => enumerate_device_extension_properties,
            PFN_vkGetPhysicalDeviceExternalSemaphoreProperties => get_physical_device_external_semaphore_properties,
        };
        own.or_else(|| Self::device_function(name))
    }

    fn added_function(name: &CStr) -> vk::PFN_vkVoidFunction {
        function_named! { name;
            PFN_vkGetSemaphoreFdKHR => get_semaphore_fd,
            PFN_vkImportSemaphoreFdKHR => import_semaphore_fd,
        }
    }

    fn device_life(name: &CStr) -> vk::PFN_vkVoidFunction {
        device_life::<Self>(name)
    }
}

impl DeviceLayer for Semaphores {
    type Device = Device;

    fn device_function(name: &CStr) -> vk::PFN_vkVoidFunction {
        function_named! { name;
            PFN_vkCreateSemaphore => create_semaphore,
            PFN_vkDestroySemaphore => destroy_semaphore,
            PFN_vkQueueSubmit => queue_submit,
            PFN_vkQueueSubmit2 => queue_submit2,
            PFN_vkWaitSemaphores => wait_semaphores,
            PFN_vkSignalSemaphore => signal_semaphore,
            PFN_vkGetSemaphoreCounterValue => get_semaphore_counter_value,
            PFN_vkWaitForFences => wait_for_fences,
            PFN_vkQueueWaitIdle => queue_wait_idle,
            PFN_vkDeviceWaitIdle => device_wait_idle,
        }
    }
}

/// The loader's first call.
///
/// # Safety
/// `interface` is null or the loader's structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vklayer_semaphores_negotiate(interface: *mut NegotiateInterface) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe { negotiate(interface, get_instance_proc_addr::<Semaphores>, Some(get_device_proc_addr::<Semaphores>)) }
}
