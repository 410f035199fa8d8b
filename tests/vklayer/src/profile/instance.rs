//! Instances.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::sync::OnceLock;

use ash::vk;

use super::catalog::profile;
use crate::interface::{InstanceLink, address, is_simulator, take_link};
use crate::tables::Tables;

/// All instances of the process.
pub(super) static INSTANCES: Tables<Instance> = Tables::new();

/// What the layer knows of an instance.
pub(super) struct Instance {
    pub(super) handle: vk::Instance,
    /// Whether this layer leaves the instance as it is: the simulated CUDA driver's, whose view is the device's.
    pub(super) passive: bool,
    pub(super) get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    pub(super) functions: ash::InstanceFnV1_0,
    pub(super) functions_1_1: ash::InstanceFnV1_1,
    devices: OnceLock<Vec<vk::PhysicalDevice>>,
}

impl Instance {
    /// A physical device's place in Vulkan's list.
    pub(super) fn place(&self, device: vk::PhysicalDevice) -> Option<usize> {
        let devices = self.devices.get_or_init(|| {
            // SAFETY: asked of this table's own instance, which is live while its devices are asked about.
            let devices = unsafe { self.enumerate() };
            let wanted = profile().devices.len();
            if devices.len() != wanted {
                eprintln!("vklayer: the profile is of {wanted} devices, the driver has {}", devices.len());
                std::process::abort();
            }
            devices
        });
        devices.iter().position(|known| *known == device)
    }

    /// # Safety
    /// The instance is live.
    unsafe fn enumerate(&self) -> Vec<vk::PhysicalDevice> {
        let enumerate = self.functions.enumerate_physical_devices;
        let mut count = 0;
        // SAFETY: a live instance, and a valid output.
        let counted = unsafe { enumerate(self.handle, &raw mut count, std::ptr::null_mut()) };
        let mut devices = vec![vk::PhysicalDevice::null(); count as usize];
        // SAFETY: as above, with room for `count` devices.
        let listed = unsafe { enumerate(self.handle, &raw mut count, devices.as_mut_ptr()) };
        let listed = counted == vk::Result::SUCCESS && listed == vk::Result::SUCCESS;
        devices.truncate(if listed { count as usize } else { 0 });
        devices
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
    let Some(link) = (unsafe { take_link::<InstanceLink>(valid.p_next) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let create = link.create_instance();
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { create(info, allocator, instance) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        let created = unsafe { *instance };
        // SAFETY: the new instance, and the link of this call.
        unsafe { remember(created, link, passive) };
    }
    result
}

/// # Safety
/// `instance` was just created through `link`.
unsafe fn remember(instance: vk::Instance, link: InstanceLink, passive: bool) {
    let get_instance_proc_addr = link.get_instance_proc_addr;
    let known = Instance {
        handle: instance,
        passive,
        get_instance_proc_addr,
        // SAFETY: the caller's promise.
        functions: unsafe { link.instance_functions(instance) },
        functions_1_1: ash::InstanceFnV1_1::load(|name| {
            // SAFETY: the caller's promise: a live instance and the next layer's function.
            address(unsafe { get_instance_proc_addr(instance, name.as_ptr()) })
        }),
        devices: OnceLock::new(),
    };
    // SAFETY: a live instance.
    unsafe { INSTANCES.insert(instance, known) };
}

pub(super) unsafe extern "system" fn destroy_instance(
    instance: vk::Instance,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: null or a live instance of the caller's.
    let Some(known) = (unsafe { INSTANCES.remove(instance) }) else { return };
    // SAFETY: the caller's arguments, passed on.
    unsafe { (known.functions.destroy_instance)(instance, allocator) };
}
