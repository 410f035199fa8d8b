//! Vulkan: the process's instances and their physical devices. `device` has a logical device's calls, and the handles that
//! programs are lent.
//!
//! The loader's instance is the first choice. Where the loader does not find NVIDIA's driver, the driver is called directly, by
//! the interface between the two (Vulkan Loader, "Loader and Driver Interface").
//!
//! # Safety
//!
//! Objects that are passed to an `unsafe` function must be live and of this device. An object that is freed or destroyed must
//! not be used afterwards. Descriptions must be valid for the Vulkan function.
#![expect(unsafe_code, reason = "foreign function calls")]

pub(crate) mod device;

use std::ffi::CStr;

use ash::{khr, vk};
use libloading::Library;

use super::{fork, load_library};
use crate::error::Call;
use crate::lock::Lock;
use crate::{Error, Result};
#[cfg(feature = "vulkan")]
pub(crate) use device::Requirements;
use device::Timelines;
pub(crate) use device::{DedicatedTo, Device};

/// The name of Vulkan's loader, as passed to `dlopen`.
const LIBRARY: &str = "libvulkan.so.1";
/// NVIDIA's Vulkan driver for machines without X11. The one that `nvidia_icd.json` names, `libGLX_nvidia.so.0`, needs
/// libXext and libX11. It does not start on some headless machines where this one does (NVIDIA/nvidia-container-toolkit
/// issues 16, 191 and 1952).
pub(crate) const HEADLESS: &str = "libEGL_nvidia.so.0";
/// The newest version of the loader's interface that is followed here: from 5 on, a driver accepts applications for Vulkan 1.1
/// and later. A driver answers with the version that it knows.
const INTERFACE: u32 = 5;
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
}

const OPAQUE_FD: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

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

    /// An instance of NVIDIA's headless driver, without the loader.
    pub(crate) fn headless() -> Result<&'static Self> {
        static INSTANCE: Lock<Option<&'static Instance>> = Lock::new(None);
        Self::once(&INSTANCE, headless_entry)
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
        })
    }

    pub(crate) fn memory_properties(&self, device: &PhysicalDevice) -> vk::PhysicalDeviceMemoryProperties {
        // SAFETY: the handle comes from this instance.
        unsafe { self.raw.get_physical_device_memory_properties(device.handle) }
    }

    /// Creates the logical device, with `VK_KHR_external_memory_fd` and, if supported, `VK_EXT_memory_budget` and timeline
    /// semaphores.
    pub(crate) fn create_device(&self, physical: PhysicalDevice) -> Result<Device> {
        let has = self.extensions(&physical)?;
        if !has(khr::external_memory_fd::NAME) {
            return Err(Error::Extension { device: physical.name, extension: "VK_KHR_external_memory_fd" });
        }
        let has_budget = has(ash::ext::memory_budget::NAME);
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
        let plain = || create(info.enabled_extension_names(&enabled));
        let raw = if Timelines::EXTENSIONS.iter().all(|name| has(name)) && self.has_timelines(&physical) {
            let enabled = [enabled.as_slice(), &Timelines::EXTENSIONS.map(CStr::as_ptr)].concat();
            let mut wanted = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
            match create(info.enabled_extension_names(&enabled).push_next(&mut wanted)) {
                Err(vk::Result::ERROR_EXTENSION_NOT_PRESENT | vk::Result::ERROR_FEATURE_NOT_PRESENT) => plain(),
                created => created,
            }
        } else {
            plain()
        };
        Ok(Device::new(self.clone(), raw.named("vkCreateDevice")?, physical, queue_family, has_budget))
    }

    fn has_timelines(&self, device: &PhysicalDevice) -> bool {
        let mut found = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut found);
        // SAFETY: the handle comes from this instance, whose version has the function.
        unsafe { self.raw.get_physical_device_features2(device.handle, &mut features) };
        found.timeline_semaphore == vk::TRUE
    }

    /// Whether a physical device has an extension.
    fn extensions(&self, device: &PhysicalDevice) -> Result<impl Fn(&CStr) -> bool + use<>> {
        // SAFETY: the handle comes from this instance.
        let found = unsafe { self.raw.enumerate_device_extension_properties(device.handle) };
        let found = found.named("vkEnumerateDeviceExtensionProperties")?;
        Ok(move |name: &CStr| found.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name)))
    }

    /// The first queue family that draws and computes, otherwise the first.
    fn queue_family(&self, device: &PhysicalDevice) -> u32 {
        // SAFETY: the handle comes from this instance.
        let families = unsafe { self.raw.get_physical_device_queue_family_properties(device.handle) };
        let wanted = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        (0..).zip(families).find(|(_, family)| family.queue_flags.contains(wanted)).map_or(0, |(index, _)| index)
    }
}

/// The functions of the headless driver, whose library stays loaded.
fn headless_entry() -> Result<ash::Entry> {
    type Negotiate = unsafe extern "system" fn(*mut u32) -> vk::Result;
    let library = load_library(HEADLESS).map_err(|reason| Error::Library { library: HEADLESS, reason })?;
    // SAFETY: vk_icd.h declares the function with this type.
    let negotiate: Negotiate = unsafe { function(&library, "vk_icdNegotiateLoaderICDInterfaceVersion") }?;
    // SAFETY: as above.
    let get_instance_proc_addr = unsafe { function(&library, "vk_icdGetInstanceProcAddr") }?;
    let mut version = INTERFACE;
    // SAFETY: `version` is a live local.
    unsafe { negotiate(&raw mut version) }.result().named("vk_icdNegotiateLoaderICDInterfaceVersion")?;
    // SAFETY: the driver's function looks names up as `vkGetInstanceProcAddr` does, and its library is never unloaded.
    Ok(unsafe { ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr }) })
}

/// The headless driver's function of that name.
///
/// # Safety
///
/// `F` must be the function's type.
unsafe fn function<F: Copy>(library: &Library, symbol: &'static str) -> Result<F> {
    // SAFETY: by this function's contract.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    found.map(|function| *function).map_err(|_| Error::Symbol { library: HEADLESS, symbol })
}
