//! Instances and what they enumerate.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_char;

use ash::vk;

use super::identity::Identity;
use super::ledger::Noun;
use super::passing::passed_on;
use super::trace;
use crate::dispatch::InstanceState;
use crate::next::{CreateInstance, NextInstance};
use crate::tables::Tables;

/// All instances of the process.
pub(super) static INSTANCES: Tables<Instance> = Tables::new();

/// An instance beneath this layer.
pub(super) struct Instance {
    pub(super) identity: Identity,
    pub(super) next: NextInstance,
}

impl InstanceState for Instance {
    fn all() -> &'static Tables<Self> {
        &INSTANCES
    }

    unsafe fn create(call: &CreateInstance<'_>) -> Result<Self, vk::Result> {
        let identity = Identity::new(call.passive);
        let entered = identity.enter("vkCreateInstance");
        // SAFETY: the caller's promise.
        unsafe { trace::create_instance(identity, call.info) };
        entered?;
        // SAFETY: the caller's promise.
        let next = unsafe { call.pass_on(call.info) }?;
        identity.born(Noun::Instance, next.handle);
        Ok(Self { identity, next })
    }

    fn before_destroying(&self) {
        // A fault only shows in the count: the function returns nothing.
        let _ = self.identity.enter("vkDestroyInstance");
        self.identity.died(Noun::Instance, self.next.handle);
    }

    fn next(&self) -> &NextInstance {
        &self.next
    }

    fn is_passive(&self) -> bool {
        self.identity.is_passive()
    }
}

passed_on! {
    enumerate_physical_devices = "vkEnumeratePhysicalDevices"(
        instance: vk::Instance, count: *mut u32, devices: *mut vk::PhysicalDevice
    ) of INSTANCES else ERROR_INITIALIZATION_FAILED => |kept| kept.next.fp_v1_0().enumerate_physical_devices;
    enumerate_device_extension_properties = "vkEnumerateDeviceExtensionProperties"(
        device: vk::PhysicalDevice, layer: *const c_char, count: *mut u32, properties: *mut vk::ExtensionProperties
    ) of INSTANCES else ERROR_INITIALIZATION_FAILED => |kept| kept.next.fp_v1_0().enumerate_device_extension_properties;
}
