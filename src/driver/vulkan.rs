//! Vulkan: the process's instances and their physical devices. `device` has a logical device's calls for memory.
//!
//! The loader's instance is the first choice; [`icd`] loads NVIDIA's driver where the loader does not find it.
//! `handles` has the handles that programs are lent, `resources` the calls for buffers and images, and `semaphore` the
//! calls for timeline semaphores, through the functions in `timelines`.
#![expect(unsafe_code, reason = "foreign function calls")]

mod device;
#[cfg(feature = "vulkan")]
pub(crate) mod handles;
pub(crate) mod icd;
#[cfg(feature = "vulkan")]
pub(crate) mod resources;
#[cfg(feature = "vulkan")]
mod semaphore;
mod timelines;

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use ash::{khr, vk};

use super::fork;
use crate::error::Call;
use crate::lock::Lock;
use crate::{Error, Result};
pub(crate) use device::{BufferRequirements, DedicatedTo, Device};

/// The name of Vulkan's loader, as passed to `dlopen`.
const LIBRARY: &str = "libvulkan.so.1";
/// Below 1.1 there are no device UUIDs: `VkPhysicalDeviceIDProperties` would stay zero.
const API_VERSION: u32 = vk::API_VERSION_1_1;

/// Adds the name of the call to a Vulkan result.
trait Named<T> {
    fn named(self, call: impl Into<Call>) -> Result<T>;
}

impl<T> Named<T> for std::result::Result<T, vk::Result> {
    fn named(self, call: impl Into<Call>) -> Result<T> {
        self.map_err(|code| Error::vulkan(call, code))
    }
}

/// A Vulkan instance. The process's own instances are never destroyed: NVIDIA's libraries exhaust static TLS space when
/// they are loaded and unloaded repeatedly.
#[derive(Clone)]
pub(crate) struct Instance {
    raw: ash::Instance,
    /// Keeps the library open.
    entry: ash::Entry,
}

/// A physical device and what identifies it.
pub(crate) struct PhysicalDevice {
    handle: vk::PhysicalDevice,
    pub(crate) name: String,
    /// All zero if the driver does not report it.
    pub(crate) uuid: [u8; 16],
    /// The UUID of the driver and its version: memory is shared only between equal ones.
    pub(crate) driver_uuid: [u8; 16],
    /// `nonCoherentAtomSize` in bytes.
    pub(crate) atom: u64,
    /// `maxMemoryAllocationCount`: the limit of live allocations.
    pub(crate) max_allocations: u32,
}

/// How a device shares memory as opaque file descriptors, from `VkExternalMemoryProperties`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    /// Whether only dedicated allocations can be shared.
    pub(crate) dedicated_only: bool,
    /// Whether imported memory can be exported again.
    pub(crate) exports_imports: bool,
}

/// How a buffer's memory can be shared.
const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::STORAGE_BUFFER;
const OPAQUE_FD: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// The bytes of a heap that this process can still allocate, from `VK_EXT_memory_budget`.
pub(crate) struct HeapBudget {
    pub(crate) available: u64,
}

impl Instance {
    /// The instance of the Vulkan loader, created at the first call. A failure is not remembered.
    pub(crate) fn get() -> Result<&'static Self> {
        static INSTANCE: Lock<Option<&'static Instance>> = Lock::new(None);
        Self::once(&INSTANCE, || {
            // SAFETY: loading the Vulkan loader runs its initialisers, as the caller requested.
            unsafe { ash::Entry::load() }
                .map_err(|error| Error::Library { library: LIBRARY, reason: error.to_string() })
        })
    }

    /// An instance of NVIDIA's headless driver, without the loader: see [`icd`].
    pub(crate) fn headless() -> Result<&'static Self> {
        static INSTANCE: Lock<Option<&'static Instance>> = Lock::new(None);
        Self::once(&INSTANCE, icd::entry)
    }

    fn once(
        instance: &Lock<Option<&'static Self>>,
        load: impl FnOnce() -> Result<ash::Entry>,
    ) -> Result<&'static Self> {
        fork::check()?;
        let mut instance = instance.lock();
        if let Some(instance) = *instance {
            return Ok(instance);
        }
        let created: &'static Self = Box::leak(Box::new(Self::create(load()?)?));
        *instance = Some(created);
        Ok(created)
    }

    fn create(entry: ash::Entry) -> Result<Self> {
        let application =
            vk::ApplicationInfo::default().application_name(c"vkgdr").engine_name(c"vkgdr").api_version(API_VERSION);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `info` and what it points at live until the call returns.
        let raw = unsafe { entry.create_instance(&info, None) }.named(Call::StartVulkan)?;
        Ok(Self { raw, entry })
    }

    /// Every physical device that supports Vulkan 1.1.
    pub(crate) fn physical_devices(&self) -> Result<Vec<PhysicalDevice>> {
        // SAFETY: the instance is live.
        let handles = unsafe { self.raw.enumerate_physical_devices() }.named(Call::ListDevices)?;
        Ok(handles.into_iter().filter_map(|handle| self.describe(handle)).collect())
    }

    fn describe(&self, handle: vk::PhysicalDevice) -> Option<PhysicalDevice> {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        // SAFETY: `handle` comes from this instance.
        unsafe { self.raw.get_physical_device_properties2(handle, &mut properties) };
        let properties = properties.properties;
        let name = properties.device_name_as_c_str().unwrap_or(c"?").to_string_lossy().into_owned();
        (properties.api_version >= API_VERSION).then_some(PhysicalDevice {
            handle,
            name,
            uuid: id.device_uuid,
            driver_uuid: id.driver_uuid,
            atom: properties.limits.non_coherent_atom_size.max(1),
            max_allocations: properties.limits.max_memory_allocation_count,
        })
    }

    pub(crate) fn memory_properties(&self, device: &PhysicalDevice) -> vk::PhysicalDeviceMemoryProperties {
        // SAFETY: the handle comes from this instance.
        unsafe { self.raw.get_physical_device_memory_properties(device.handle) }
    }

    /// The remaining budget of a heap. Only for devices with `VK_EXT_memory_budget`.
    pub(crate) fn heap_budget(&self, device: &PhysicalDevice, heap: u32) -> HeapBudget {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the handle comes from this instance, and the device has the extension.
        unsafe { self.raw.get_physical_device_memory_properties2(device.handle, &mut properties) };
        let heap = heap as usize;
        HeapBudget { available: budget.heap_budget[heap].saturating_sub(budget.heap_usage[heap]) }
    }

    /// Creates the logical device, with `VK_KHR_external_memory_fd` and, if supported, `VK_EXT_memory_budget`.
    pub(crate) fn create_device(&self, physical: PhysicalDevice) -> Result<Device> {
        let extensions = self.extensions(&physical)?;
        if !extensions.has(khr::external_memory_fd::NAME) {
            return Err(Error::Extension { device: physical.name, extension: "VK_KHR_external_memory_fd" });
        }
        let has_budget = extensions.has(ash::ext::memory_budget::NAME);
        let mut enabled = vec![khr::external_memory_fd::NAME.as_ptr()];
        if has_budget {
            enabled.push(ash::ext::memory_budget::NAME.as_ptr());
        }
        // A device must be created with a queue. This crate submits nothing to it; programs that are lent the device do.
        let queue_family = self.queue_family(&physical);
        let queue = [vk::DeviceQueueCreateInfo::default().queue_family_index(queue_family).queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queue);
        // SAFETY: the description and what it points at live until the call returns; the extensions and features exist.
        let create = |info: vk::DeviceCreateInfo<'_>| unsafe { self.raw.create_device(physical.handle, &info, None) };
        let with_semaphores = self.with_semaphores(&physical, &extensions, &enabled, info, create);
        let raw = with_semaphores.unwrap_or_else(|| create(info.enabled_extension_names(&enabled)));
        let raw = raw.named("vkCreateDevice")?;
        let external_fd = khr::external_memory_fd::Device::new(&self.raw, &raw);
        let instance = self.clone();
        Ok(Device {
            timelines: timelines::Timelines::find(&self.raw, &raw),
            raw,
            external_fd,
            has_budget,
            sharing: OnceLock::new(),
            physical,
            queue_family,
            instance,
        })
    }

    /// Creates a device that shares timeline semaphores as well. `None` where the device does not support them.
    fn with_semaphores(
        &self,
        device: &PhysicalDevice,
        extensions: &Extensions,
        enabled: &[*const c_char],
        info: vk::DeviceCreateInfo<'_>,
        create: impl FnOnce(vk::DeviceCreateInfo<'_>) -> std::result::Result<ash::Device, vk::Result>,
    ) -> Option<std::result::Result<ash::Device, vk::Result>> {
        if !timelines::EXTENSIONS.iter().all(|name| extensions.has(name)) {
            return None;
        }
        let mut found = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut found);
        // SAFETY: the handle comes from this instance, whose version has the function.
        unsafe { self.raw.get_physical_device_features2(device.handle, &mut features) };
        if found.timeline_semaphore != vk::TRUE {
            return None;
        }
        let enabled = [enabled, &timelines::EXTENSIONS.map(CStr::as_ptr)].concat();
        let mut wanted = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        match create(info.enabled_extension_names(&enabled).push_next(&mut wanted)) {
            Err(vk::Result::ERROR_EXTENSION_NOT_PRESENT | vk::Result::ERROR_FEATURE_NOT_PRESENT) => None,
            created => Some(created),
        }
    }

    fn extensions(&self, device: &PhysicalDevice) -> Result<Extensions> {
        // SAFETY: the handle comes from this instance.
        let found = unsafe { self.raw.enumerate_device_extension_properties(device.handle) };
        found.named("vkEnumerateDeviceExtensionProperties").map(Extensions)
    }

    /// The first queue family that draws and computes, otherwise the first.
    fn queue_family(&self, device: &PhysicalDevice) -> u32 {
        // SAFETY: the handle comes from this instance.
        let families = unsafe { self.raw.get_physical_device_queue_family_properties(device.handle) };
        let wanted = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        (0..).zip(families).find(|(_, family)| family.queue_flags.contains(wanted)).map_or(0, |(index, _)| index)
    }

    fn sharing(&self, device: &PhysicalDevice) -> Sharing {
        let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(USAGE).handle_type(OPAQUE_FD);
        let mut properties = vk::ExternalBufferProperties::default();
        // SAFETY: the handle comes from this instance, whose version has the function, as the device's has.
        unsafe { self.raw.get_physical_device_external_buffer_properties(device.handle, &info, &mut properties) };
        let found = properties.external_memory_properties;
        Sharing {
            dedicated_only: found.external_memory_features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY),
            exports_imports: found.export_from_imported_handle_types.contains(OPAQUE_FD),
        }
    }
}

/// The extensions of a physical device.
struct Extensions(Vec<vk::ExtensionProperties>);

impl Extensions {
    fn has(&self, name: &CStr) -> bool {
        self.0.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
    }
}
