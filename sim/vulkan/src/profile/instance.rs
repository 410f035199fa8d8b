//! Instances.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::sync::OnceLock;

use ash::vk;
use simcommon::stop;

use super::catalog::profile;
use crate::dispatch::InstanceState;
use crate::next::{CreateInstance, NextInstance};
use crate::tables::Tables;

/// All instances of the process.
pub(super) static INSTANCES: Tables<Instance> = Tables::new();

/// The layer's state of an instance.
pub(super) struct Instance {
    /// Whether the layer leaves the instance alone: it is the simulated CUDA driver's own, which is the device's side.
    pub(super) passive: bool,
    pub(super) next: NextInstance,
    devices: OnceLock<Vec<vk::PhysicalDevice>>,
}

impl Instance {
    /// A physical device's index in Vulkan's list.
    pub(super) fn place(&self, device: vk::PhysicalDevice) -> Option<usize> {
        let devices = self.devices.get_or_init(|| {
            // SAFETY: the instance is live while its devices are asked about.
            let devices = unsafe { self.next.enumerate_physical_devices() }.unwrap_or_default();
            let wanted = profile().devices.len();
            if devices.len() != wanted {
                stop!("vklayer: the profile is of {wanted} devices, the driver has {}", devices.len());
            }
            devices
        });
        devices.iter().position(|known| *known == device)
    }
}

impl InstanceState for Instance {
    fn all() -> &'static Tables<Self> {
        &INSTANCES
    }

    unsafe fn create(call: &CreateInstance<'_>) -> Result<Self, vk::Result> {
        // SAFETY: the caller's promise.
        let next = unsafe { call.pass_on(call.info) }?;
        Ok(Self { passive: call.passive, next, devices: OnceLock::new() })
    }

    fn next(&self) -> &NextInstance {
        &self.next
    }

    fn is_passive(&self) -> bool {
        self.passive
    }
}
