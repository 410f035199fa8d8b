//! Instances.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::sync::OnceLock;

use ash::vk;

use super::catalog::profile;
use crate::interface::is_simulator;
use crate::next::NextInstance;
use crate::tables::Tables;

/// All instances of the process.
pub(super) static INSTANCES: Tables<Instance> = Tables::new();

/// What the layer knows of an instance.
pub(super) struct Instance {
    /// Whether this layer leaves the instance as it is: the simulated CUDA driver's, whose view is the device's.
    pub(super) passive: bool,
    pub(super) next: NextInstance,
    devices: OnceLock<Vec<vk::PhysicalDevice>>,
}

impl Instance {
    /// A physical device's place in Vulkan's list.
    pub(super) fn place(&self, device: vk::PhysicalDevice) -> Option<usize> {
        let devices = self.devices.get_or_init(|| {
            // SAFETY: the instance is live while its devices are asked about.
            let devices = unsafe { self.next.enumerate_physical_devices() }.unwrap_or_default();
            let wanted = profile().devices.len();
            if devices.len() != wanted {
                eprintln!("vklayer: the profile is of {wanted} devices, the driver has {}", devices.len());
                std::process::abort();
            }
            devices
        });
        devices.iter().position(|known| *known == device)
    }
}

pub(super) unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: Vulkan asks for a valid create info.
    let valid = unsafe { &*info };
    // SAFETY: as above.
    let passive = unsafe { is_simulator(valid) };
    // SAFETY: the loader's call of this layer.
    match unsafe { NextInstance::create(info, allocator, instance) } {
        Ok(next) => {
            let (handle, devices) = (next.handle, OnceLock::new());
            // SAFETY: a live instance: it was just created.
            unsafe { INSTANCES.insert(handle, Instance { passive, next, devices }) };
            vk::Result::SUCCESS
        }
        Err(result) => result,
    }
}

pub(super) unsafe extern "system" fn destroy_instance(
    instance: vk::Instance,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: null or a live instance of the caller's.
    let Some(known) = (unsafe { INSTANCES.remove(instance) }) else { return };
    // SAFETY: the caller's arguments, passed on.
    unsafe { (known.next.fp_v1_0().destroy_instance)(instance, allocator) };
}
