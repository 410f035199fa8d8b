//! Vulkan: the process's instances, their devices, and the memory calls of a device.
//!
//! The loader's instance is the first choice; [`icd`] is the way to NVIDIA's driver where the loader does not find it.
//! `handles` has the handles that programs are lent, `resources` the calls for buffers and images, and `semaphore` those for
//! timeline semaphores.
#![expect(unsafe_code, reason = "foreign function calls")]

#[cfg(feature = "vulkan")]
pub(crate) mod handles;
pub(crate) mod icd;
#[cfg(feature = "vulkan")]
pub(crate) mod resources;
mod semaphore;

use std::ffi::{CStr, c_char};
use std::fmt;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use ash::{khr, vk};

use super::descriptor::{self, DriverFd};
use super::process;
use crate::lock::Lock;
use crate::{Error, Result};

/// The name of Vulkan's loader, as `dlopen` is asked for it.
const LIBRARY: &str = "libvulkan.so.1";
/// Below 1.1 there are no device UUIDs: `VkPhysicalDeviceIDProperties` would stay zero.
const API_VERSION: u32 = vk::API_VERSION_1_1;

/// Adds the name of the call to a Vulkan result.
trait Named<T> {
    fn named(self, operation: &'static str) -> Result<T>;
}

impl<T> Named<T> for std::result::Result<T, vk::Result> {
    fn named(self, operation: &'static str) -> Result<T> {
        self.map_err(|code| Error::Vulkan { operation, code })
    }
}

/// A Vulkan instance. The process's are never destroyed: NVIDIA's libraries exhaust static TLS space when they are
/// loaded and unloaded repeatedly.
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
    /// Of the driver and its version: memory is shared only between equal ones.
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

/// A `VkBuffer` that an allocation is dedicated to, and what it requires of that.
pub(crate) struct BufferRequirements {
    pub(crate) buffer: vk::Buffer,
    pub(crate) size: u64,
    /// One bit for each memory type that the allocation may be of.
    pub(crate) memory_types: u32,
}

/// The buffer or image that an allocation is dedicated to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DedicatedTo {
    Buffer(vk::Buffer),
    Image(vk::Image),
}

/// What can be shared of a buffer's memory.
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
        process::check()?;
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
        let raw = unsafe { entry.create_instance(&info, None) }.named("vkCreateInstance")?;
        Ok(Self { raw, entry })
    }

    /// Every physical device that supports Vulkan 1.1.
    pub(crate) fn physical_devices(&self) -> Result<Vec<PhysicalDevice>> {
        // SAFETY: the instance is live.
        let handles = unsafe { self.raw.enumerate_physical_devices() }.named("vkEnumeratePhysicalDevices")?;
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
            timelines: semaphore::Timelines::find(&self.raw, &raw),
            raw,
            external_fd,
            has_budget,
            sharing: OnceLock::new(),
            physical,
            queue_family,
            instance,
        })
    }

    /// Creates a device that shares timeline semaphores as well. None where they cannot be had.
    fn with_semaphores(
        &self,
        device: &PhysicalDevice,
        extensions: &Extensions,
        enabled: &[*const c_char],
        info: vk::DeviceCreateInfo<'_>,
        create: impl FnOnce(vk::DeviceCreateInfo<'_>) -> std::result::Result<ash::Device, vk::Result>,
    ) -> Option<std::result::Result<ash::Device, vk::Result>> {
        if !semaphore::EXTENSIONS.iter().all(|name| extensions.has(name)) {
            return None;
        }
        let mut found = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut found);
        // SAFETY: the handle comes from this instance, whose version has the function.
        unsafe { self.raw.get_physical_device_features2(device.handle, &mut features) };
        if found.timeline_semaphore != vk::TRUE {
            return None;
        }
        let enabled = [enabled, &semaphore::EXTENSIONS.map(CStr::as_ptr)].concat();
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

/// A logical device: one that all handles of a GPU share and that is never destroyed, or a program's. In a forked child
/// its functions fail, and those that release do nothing.
pub(crate) struct Device {
    raw: ash::Device,
    external_fd: khr::external_memory_fd::Device,
    /// None where they cannot be shared.
    timelines: Option<semaphore::Timelines>,
    has_budget: bool,
    sharing: OnceLock<Sharing>,
    pub(crate) physical: PhysicalDevice,
    /// The family of its queue.
    queue_family: u32,
    pub(crate) instance: Instance,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.physical.name)
    }
}

impl Device {
    /// The remaining budget of a heap, if the driver reports it.
    pub(crate) fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        self.has_budget.then(|| self.instance.heap_budget(&self.physical, heap))
    }

    /// How the device shares memory. Asked at the first call, which vkgdr 0.1 never makes.
    pub(crate) fn sharing(&self) -> Sharing {
        *self.sharing.get_or_init(|| self.instance.sharing(&self.physical))
    }

    /// Allocates memory that can be exported as an opaque file descriptor, dedicated to a buffer or image if one is given.
    ///
    /// # Safety
    ///
    /// `type_index` must be one of this device's memory types, `size` neither zero nor beyond its heap, and fewer
    /// than `max_allocations` allocations be live. A buffer or image must be live, and require this type and size. The
    /// device must have the features that the flags need.
    pub(crate) unsafe fn allocate_memory(
        &self,
        type_index: u32,
        size: u64,
        dedicated: Option<DedicatedTo>,
        flags: vk::MemoryAllocateFlags,
    ) -> Result<vk::DeviceMemory> {
        let mut flags_info = vk::MemoryAllocateFlagsInfo::default().flags(flags);
        let mut info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(type_index);
        if !flags.is_empty() {
            info = info.push_next(&mut flags_info);
        }
        // SAFETY: by this method's contract.
        unsafe { self.allocate(info, dedicated, true) }
    }

    /// Imports the memory behind an opaque file descriptor, which stays the caller's, as another memory object. It can be
    /// exported again if `export` is true, which not every driver allows.
    ///
    /// # Safety
    ///
    /// As for [`Self::allocate_memory`], and the descriptor must have been exported from memory of this physical
    /// device with the same type and size.
    pub(crate) unsafe fn import_memory(
        &self,
        type_index: u32,
        size: u64,
        fd: BorrowedFd<'_>,
        dedicated: Option<DedicatedTo>,
        export: bool,
    ) -> Result<vk::DeviceMemory> {
        let lent = DriverFd::new(fd)?;
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(OPAQUE_FD).fd(lent.raw());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(type_index)
            .push_next(&mut import);
        // SAFETY: by this method's contract; the driver may take ownership of the duplicate.
        unsafe { self.allocate(info, dedicated, export) }.inspect_err(|_| lent.take_back())
    }

    /// # Safety
    ///
    /// As Vulkan asks of `vkAllocateMemory`.
    unsafe fn allocate(
        &self,
        info: vk::MemoryAllocateInfo<'_>,
        dedicated: Option<DedicatedTo>,
        export: bool,
    ) -> Result<vk::DeviceMemory> {
        process::check()?;
        let to = vk::MemoryDedicatedAllocateInfo::default();
        let mut to = match dedicated {
            None => to,
            Some(DedicatedTo::Buffer(buffer)) => to.buffer(buffer),
            Some(DedicatedTo::Image(image)) => to.image(image),
        };
        let mut exported = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE_FD);
        let mut info = info;
        if dedicated.is_some() {
            info = info.push_next(&mut to);
        }
        if export {
            info = info.push_next(&mut exported);
        }
        // SAFETY: by this method's contract.
        unsafe { self.raw.allocate_memory(&info, None) }.named("vkAllocateMemory")
    }

    /// Creates a buffer of at least `size` bytes to dedicate shared memory to. The caller destroys it.
    pub(crate) fn create_buffer(&self, size: u64) -> Result<BufferRequirements> {
        process::check()?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE_FD);
        let info = vk::BufferCreateInfo::default().size(size).usage(USAGE).push_next(&mut external);
        // SAFETY: `info` and what it points at live until the call returns.
        let buffer = unsafe { self.raw.create_buffer(&info, None) }.named("vkCreateBuffer")?;
        // SAFETY: the buffer was just created.
        let requirements = unsafe { self.raw.get_buffer_memory_requirements(buffer) };
        Ok(BufferRequirements { buffer, size: requirements.size, memory_types: requirements.memory_type_bits })
    }

    /// # Safety
    ///
    /// `buffer` must be a live buffer of this device and not be used afterwards.
    pub(crate) unsafe fn destroy_buffer(&self, buffer: vk::Buffer) {
        if process::is_forked() {
            return;
        }
        // SAFETY: by this method's contract.
        unsafe { self.raw.destroy_buffer(buffer, None) };
    }

    /// # Safety
    ///
    /// `memory` must be live memory of this device that is not used afterwards, nor its mapping.
    pub(crate) unsafe fn free_memory(&self, memory: vk::DeviceMemory) {
        if process::is_forked() {
            return;
        }
        // SAFETY: by this method's contract.
        unsafe { self.raw.free_memory(memory, None) };
    }

    /// Maps all of `memory`.
    ///
    /// # Safety
    ///
    /// `memory` must be live, host-visible memory of this device that is not mapped.
    pub(crate) unsafe fn map_memory(&self, memory: vk::DeviceMemory) -> Result<NonNull<u8>> {
        process::check()?;
        // SAFETY: by this method's contract.
        let pointer = unsafe { self.raw.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }
            .named("vkMapMemory")?;
        NonNull::new(pointer.cast())
            .ok_or(Error::Vulkan { operation: "vkMapMemory", code: vk::Result::ERROR_MEMORY_MAP_FAILED })
    }

    /// A new descriptor of the memory, close-on-exec.
    ///
    /// # Safety
    ///
    /// `memory` must be live memory of this device from [`Self::allocate_memory`], or from [`Self::import_memory`] with
    /// `export`.
    pub(crate) unsafe fn export_memory(&self, memory: vk::DeviceMemory) -> Result<OwnedFd> {
        process::check()?;
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(OPAQUE_FD);
        // SAFETY: by this method's contract.
        let fd = unsafe { self.external_fd.get_memory_fd(&info) }.named("vkGetMemoryFdKHR")?;
        if fd < 0 {
            // A driver was seen to return success without a descriptor for memory that it could not export.
            return Err(Error::Vulkan {
                operation: "vkGetMemoryFdKHR",
                code: vk::Result::ERROR_INVALID_EXTERNAL_HANDLE,
            });
        }
        // SAFETY: the call made a new descriptor, which belongs to the caller.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // The driver that gets it may keep it open for as long as the memory lives.
        descriptor::close_on_exec(&fd)?;
        Ok(fd)
    }

    /// # Safety
    ///
    /// `range` must be whole atoms, or end with the memory, of mapped memory of this device.
    pub(crate) unsafe fn flush(&self, range: &vk::MappedMemoryRange<'_>) -> Result<()> {
        process::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.raw.flush_mapped_memory_ranges(std::slice::from_ref(range)) }.named("vkFlushMappedMemoryRanges")
    }

    /// # Safety
    ///
    /// As for [`Self::flush`].
    pub(crate) unsafe fn invalidate(&self, range: &vk::MappedMemoryRange<'_>) -> Result<()> {
        process::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.raw.invalidate_mapped_memory_ranges(std::slice::from_ref(range)) }
            .named("vkInvalidateMappedMemoryRanges")
    }
}
