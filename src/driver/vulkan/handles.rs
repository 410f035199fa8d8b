//! [`Handles`]: the Vulkan handles that this crate and a program exchange, and the checks of a device that the program made.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::fmt;

use ash::vk;

use super::{Device, Instance};
use crate::driver::fork;
use crate::{Error, Result};

/// A Vulkan device, with the objects that it was made from, as [ash] has them.
#[derive(Clone)]
#[non_exhaustive]
pub struct Handles {
    /// The loader, or the driver where it is called without one.
    pub entry: ash::Entry,
    /// The instance.
    pub instance: ash::Instance,
    /// The physical device.
    pub physical_device: vk::PhysicalDevice,
    /// The logical device.
    pub device: ash::Device,
    /// The family of its queue, whose index in the family is 0.
    pub queue_family: u32,
}

impl Handles {
    /// The handles of a device that the program made, from Vulkan's raw handles. `get_instance_proc_addr` is the
    /// function `vkGetInstanceProcAddr` of the loader.
    ///
    /// # Safety
    ///
    /// The function must be Vulkan's, and stay loaded. The handles must be live and belong together.
    #[must_use]
    pub unsafe fn from_raw(
        get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
        instance: vk::Instance,
        physical_device: vk::PhysicalDevice,
        device: vk::Device,
        queue_family: u32,
    ) -> Self {
        // SAFETY: by this function's contract.
        let entry = unsafe { ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr }) };
        // SAFETY: by this function's contract.
        let instance = unsafe { ash::Instance::load(entry.static_fn(), instance) };
        // SAFETY: by this function's contract.
        let device = unsafe { ash::Device::load(instance.fp_v1_0(), device) };
        Self { entry, instance, physical_device, device, queue_family }
    }

    /// The handles of a device that the program made, with a queue of the family.
    #[must_use]
    pub const fn new(
        entry: ash::Entry,
        instance: ash::Instance,
        physical_device: vk::PhysicalDevice,
        device: ash::Device,
        queue_family: u32,
    ) -> Self {
        Self { entry, instance, physical_device, device, queue_family }
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles")
            .field("instance", &self.instance.handle())
            .field("physical_device", &self.physical_device)
            .field("device", &self.device.handle())
            .field("queue_family", &self.queue_family)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// A device that the program made. It is not destroyed with this value.
    ///
    /// # Safety
    ///
    /// The handles must be live, belong together, and stay alive for as long as this value and its allocations are
    /// used.
    pub(crate) unsafe fn adopt(handles: &Handles) -> Result<Self> {
        fork::check()?;
        let Handles { entry, instance, physical_device, device, queue_family } = handles.clone();
        // SAFETY: a live physical device of the instance, by this function's contract.
        let properties = unsafe { instance.get_physical_device_properties(physical_device) };
        let unsuitable = |reason| {
            let device = properties.device_name_as_c_str().unwrap_or(c"?").to_string_lossy().into_owned();
            Err(Error::UnsuitableDevice { device, reason })
        };
        let of_instance = entry.static_fn().get_instance_proc_addr;
        // SAFETY: a live instance, and a terminated name.
        if unsafe { of_instance(instance.handle(), c"vkGetPhysicalDeviceProperties2".as_ptr()) }.is_none() {
            return unsuitable("its instance is for Vulkan 1.0; ask for 1.1 in VkApplicationInfo::apiVersion");
        }
        let of_device = instance.fp_v1_0().get_device_proc_addr;
        // SAFETY: a live device, and a terminated name.
        if unsafe { of_device(device.handle(), c"vkGetMemoryFdKHR".as_ptr()) }.is_none() {
            return unsuitable("it was created without VK_KHR_external_memory_fd; enable that extension");
        }
        let instance = Instance { raw: instance, entry };
        let Some(physical) = instance.describe(physical_device) else {
            return unsuitable("its driver has Vulkan 1.0 only; 1.1 is needed");
        };
        // Asked of the physical device, and so not to be enabled (specification, "Extending Physical Device Core
        // Functionality").
        let has_budget = instance.extensions(&physical)?(ash::ext::memory_budget::NAME);
        Ok(Self::new(instance, device, physical, queue_family, has_budget))
    }

    /// The handles of the device.
    pub(crate) fn handles(&self) -> Handles {
        let (entry, instance) = (self.instance.entry.clone(), self.instance.raw.clone());
        Handles::new(entry, instance, self.physical.handle, self.raw.clone(), self.queue_family)
    }
}
