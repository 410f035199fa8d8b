//! Instances, and what their physical devices can do with semaphores.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::{CStr, c_char};

use ash::khr::external_semaphore_fd;
use ash::vk::{
    self, ExternalSemaphoreFeatureFlags as Features, ExternalSemaphoreHandleTypeFlags as HandleTypes,
    ExternalSemaphoreProperties as Properties,
};

use crate::dispatch::InstanceState;
use crate::next::{CreateInstance, NextInstance};
use crate::tables::Tables;

/// The extension that this layer adds, where the driver lacks it.
pub(super) const ADDED: &CStr = external_semaphore_fd::NAME;

/// All instances of the process.
pub(super) static INSTANCES: Tables<Instance> = Tables::new();

/// The layer's state of an instance.
pub(super) struct Instance {
    passive: bool,
    next: NextInstance,
}

impl Instance {
    /// The extensions of the driver.
    ///
    /// # Safety
    /// `device` is a live physical device of the instance.
    pub(super) unsafe fn of_driver(
        &self,
        device: vk::PhysicalDevice,
    ) -> Result<Vec<vk::ExtensionProperties>, vk::Result> {
        // SAFETY: the caller's promise.
        unsafe { self.next.enumerate_device_extension_properties(device) }
    }
}

/// Whether a list has an extension.
pub(super) fn has(extensions: &[vk::ExtensionProperties], name: &CStr) -> bool {
    extensions.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
}

impl InstanceState for Instance {
    fn all() -> &'static Tables<Self> {
        &INSTANCES
    }

    unsafe fn create(call: &CreateInstance<'_>) -> Result<Self, vk::Result> {
        // SAFETY: the caller's promise.
        let next = unsafe { call.pass_on(call.info) }?;
        Ok(Self { passive: call.passive, next })
    }

    fn next(&self) -> &NextInstance {
        &self.next
    }

    fn is_passive(&self) -> bool {
        self.passive
    }
}

pub(super) unsafe extern "system" fn enumerate_device_extension_properties(
    device: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { INSTANCES.get(device) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: a live physical device of the caller's.
    let own = || unsafe { extensions(&instance, device) };
    // SAFETY: the caller's arguments.
    unsafe { instance.next.answer_extensions(device, layer, count, properties, own) }
}

/// The driver's extensions, and the one that the layer adds.
///
/// # Safety
/// `device` is a live physical device of the instance.
unsafe fn extensions(
    instance: &Instance,
    device: vk::PhysicalDevice,
) -> Result<Vec<vk::ExtensionProperties>, vk::Result> {
    // SAFETY: the caller's promise.
    let mut all = unsafe { instance.of_driver(device) }?;
    if !has(&all, ADDED) {
        let added = vk::ExtensionProperties::default().spec_version(external_semaphore_fd::SPEC_VERSION);
        all.extend(added.extension_name(ADDED));
    }
    Ok(all)
}

pub(super) unsafe extern "system" fn get_physical_device_external_semaphore_properties(
    device: vk::PhysicalDevice,
    info: *const vk::PhysicalDeviceExternalSemaphoreInfo<'_>,
    properties: *mut Properties<'_>,
) {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { INSTANCES.get(device) }) else { return };
    // SAFETY: the caller's arguments, passed on.
    unsafe { (instance.next.fp_v1_1().get_physical_device_external_semaphore_properties)(device, info, properties) };
    // SAFETY: Vulkan asks for a valid structure.
    if unsafe { (*info).handle_type } != HandleTypes::OPAQUE_FD {
        return;
    }
    // SAFETY: the caller's output, which was written.
    let properties = unsafe { &mut *properties };
    properties.export_from_imported_handle_types = HandleTypes::OPAQUE_FD;
    properties.compatible_handle_types = HandleTypes::OPAQUE_FD;
    properties.external_semaphore_features = Features::EXPORTABLE | Features::IMPORTABLE;
}
