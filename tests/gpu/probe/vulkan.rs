//! Vulkan, without the library under test: a separate device, on which all memory types are tried.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use ash::vk::{self, MemoryPropertyFlags as Property};
use ash::{ext, khr};
use vkgdr::MemoryKind;

use crate::cuda::{Answer, hex};
use crate::questions::SKIPPED;

trait Named<T> {
    fn named(self, call: &str) -> Answer<T>;
}

impl<T> Named<T> for Result<T, vk::Result> {
    fn named(self, call: &str) -> Answer<T> {
        self.map_err(|code| format!("{call}: VK_{code:?}"))
    }
}

/// The instance and device for one GPU. Both live until the process ends.
pub(crate) struct Vulkan {
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    external_fd: khr::external_memory_fd::Device,
    has_budget: bool,
    _entry: ash::Entry,
}

impl Vulkan {
    /// Opens the device with this UUID.
    pub(crate) fn open(uuid: &str) -> Answer<Self> {
        // SAFETY: the initialisers of the Vulkan loader have no preconditions.
        let entry = unsafe { ash::Entry::load() }.map_err(|error| error.to_string())?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `info` and its pointees live until the call returns.
        let instance = unsafe { entry.create_instance(&info, None) }.named("vkCreateInstance")?;
        // SAFETY: the instance is live.
        let devices = unsafe { instance.enumerate_physical_devices() }.named("vkEnumeratePhysicalDevices")?;
        let physical = devices
            .into_iter()
            .find(|&device| device_uuid(&instance, device) == uuid)
            .ok_or_else(|| format!("no Vulkan device with UUID {uuid}"))?;
        // SAFETY: the physical device comes from this instance.
        let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }
            .named("vkEnumerateDeviceExtensionProperties")?;
        let has = |name: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name));
        let has_budget = has(ext::memory_budget::NAME);
        let mut enabled = vec![khr::external_memory_fd::NAME.as_ptr()];
        if has_budget {
            enabled.push(ext::memory_budget::NAME.as_ptr());
        }
        let queue = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queue).enabled_extension_names(&enabled);
        // SAFETY: `info` and its pointees live until the call returns.
        let device = unsafe { instance.create_device(physical, &info, None) }.named("vkCreateDevice")?;
        let external_fd = khr::external_memory_fd::Device::new(&instance, &device);
        Ok(Self { instance, physical, device, external_fd, has_budget, _entry: entry })
    }

    pub(crate) fn memory(&self) -> vk::PhysicalDeviceMemoryProperties {
        // SAFETY: the physical device comes from this instance.
        unsafe { self.instance.get_physical_device_memory_properties(self.physical) }
    }

    /// The first device-local memory type.
    pub(crate) fn device_local(&self) -> u32 {
        let memory = self.memory();
        (0..)
            .zip(memory.memory_types_as_slice())
            .find(|(_, memory_type)| memory_type.property_flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL))
            .map_or(0, |(index, _)| index)
    }

    /// Budget and usage of each heap in bytes, if `VK_EXT_memory_budget` is supported.
    pub(crate) fn budgets(&self) -> Option<Vec<(u64, u64)>> {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the physical device comes from this instance; without the extension the struct is ignored.
        unsafe { self.instance.get_physical_device_memory_properties2(self.physical, &mut memory) };
        let heaps = memory.memory_properties.memory_heap_count as usize;
        self.has_budget.then(|| budget.heap_budget.into_iter().zip(budget.heap_usage).take(heaps).collect())
    }

    pub(crate) fn properties(&self) -> vk::PhysicalDeviceProperties {
        // SAFETY: the physical device comes from this instance.
        unsafe { self.instance.get_physical_device_properties(self.physical) }
    }

    /// The driver's limit of a single allocation.
    pub(crate) fn max_allocation(&self) -> u64 {
        let mut maintenance = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut maintenance);
        // SAFETY: the physical device comes from this instance.
        unsafe { self.instance.get_physical_device_properties2(self.physical, &mut properties) };
        maintenance.max_memory_allocation_size
    }

    /// The first memory type that is of this kind by its properties.
    pub(crate) fn type_of(&self, kind: MemoryKind) -> Answer<u32> {
        let (with, without) = match kind {
            MemoryKind::Mapped => (Property::DEVICE_LOCAL | Property::HOST_VISIBLE, Property::empty()),
            MemoryKind::Host => (Property::HOST_VISIBLE, Property::DEVICE_LOCAL),
            _ => (Property::DEVICE_LOCAL, Property::HOST_VISIBLE),
        };
        let memory = self.memory();
        let found = (0..).zip(memory.memory_types_as_slice()).find(|(_, memory_type)| {
            let flags = memory_type.property_flags;
            flags.contains(with) && !flags.intersects(without)
        });
        let without = if without.is_empty() { String::new() } else { format!(" and not {without:?}") };
        found.map(|(index, _)| index).ok_or_else(|| format!("{SKIPPED}no memory type is {with:?}{without}"))
    }

    /// How buffers' memory may be shared through this type of handle.
    pub(crate) fn external_buffer(&self, handle: vk::ExternalMemoryHandleTypeFlags) -> vk::ExternalMemoryProperties {
        let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(BUFFER_USAGE).handle_type(handle);
        let mut properties = vk::ExternalBufferProperties::default();
        // SAFETY: the physical device comes from this instance.
        unsafe { self.instance.get_physical_device_external_buffer_properties(self.physical, &info, &mut properties) };
        properties.external_memory_properties
    }

    /// The memory requirements of an exportable buffer of this size.
    pub(crate) fn buffer_requirements(&self, size: u64) -> Answer<vk::MemoryRequirements> {
        Ok(Buffer::new(self, size)?.requirements().memory_requirements)
    }

    /// Allocates exportable memory.
    pub(crate) fn allocate(&self, memory_type: u32, size: u64) -> Answer<Allocation<'_>> {
        let mut export =
            vk::ExportMemoryAllocateInfo::default().handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type)
            .push_next(&mut export);
        // SAFETY: `info` and its pointees live until the call returns.
        let memory = unsafe { self.device.allocate_memory(&info, None) }.named("vkAllocateMemory")?;
        Ok(Allocation { vulkan: self, memory, size, buffer: None })
    }

    /// Allocates exportable memory for one buffer of this size, and binds that.
    pub(crate) fn allocate_dedicated(&self, memory_type: u32, size: u64) -> Answer<Allocation<'_>> {
        let buffer = Buffer::new(self, size)?;
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut requirements = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        buffer.ask_requirements(&mut requirements);
        let requirements = requirements.memory_requirements;
        println!(
            "a buffer prefers dedicated memory: {}, requires it: {}",
            dedicated.prefers_dedicated_allocation, dedicated.requires_dedicated_allocation
        );
        if requirements.memory_type_bits & (1 << memory_type) == 0 {
            return Err(format!("no buffer in memory type {memory_type}"));
        }
        let mut export =
            vk::ExportMemoryAllocateInfo::default().handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let mut only = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer.buffer);
        let size = requirements.size;
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type)
            .push_next(&mut export)
            .push_next(&mut only);
        // SAFETY: `info` and its pointees live until the call returns.
        let memory = unsafe { self.device.allocate_memory(&info, None) }.named("vkAllocateMemory")?;
        let allocation = Allocation { vulkan: self, memory, size, buffer: Some(buffer) };
        let buffer = allocation.buffer.as_ref().map_or(vk::Buffer::null(), |buffer| buffer.buffer);
        // SAFETY: the memory was allocated for this buffer, which is bound once.
        unsafe { self.device.bind_buffer_memory(buffer, memory, 0) }.named("vkBindBufferMemory")?;
        Ok(allocation)
    }

    /// Imports memory of this device, and allows its export if `export` says so.
    pub(crate) fn import(&self, fd: OwnedFd, memory_type: u32, size: u64, export: bool) -> Answer<Allocation<'_>> {
        let opaque = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(opaque).fd(fd.as_raw_fd());
        let mut exportable = vk::ExportMemoryAllocateInfo::default().handle_types(opaque);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type)
            .push_next(&mut import);
        if export {
            info = info.push_next(&mut exportable);
        }
        // SAFETY: `info` and its pointees live until the call returns.
        let memory = unsafe { self.device.allocate_memory(&info, None) }.named("vkAllocateMemory")?;
        // The driver owns the descriptor now.
        let _taken = fd.into_raw_fd();
        Ok(Allocation { vulkan: self, memory, size, buffer: None })
    }
}

/// An exportable buffer.
struct Buffer<'a> {
    vulkan: &'a Vulkan,
    buffer: vk::Buffer,
}

impl<'a> Buffer<'a> {
    fn new(vulkan: &'a Vulkan, size: u64) -> Answer<Self> {
        let mut external =
            vk::ExternalMemoryBufferCreateInfo::default().handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let info = vk::BufferCreateInfo::default().size(size).usage(BUFFER_USAGE).push_next(&mut external);
        // SAFETY: `info` and its pointees live until the call returns.
        let buffer = unsafe { vulkan.device.create_buffer(&info, None) }.named("vkCreateBuffer")?;
        Ok(Self { vulkan, buffer })
    }

    fn requirements(&self) -> vk::MemoryRequirements2<'_> {
        let mut requirements = vk::MemoryRequirements2::default();
        self.ask_requirements(&mut requirements);
        requirements
    }

    fn ask_requirements(&self, requirements: &mut vk::MemoryRequirements2<'_>) {
        let info = vk::BufferMemoryRequirementsInfo2::default().buffer(self.buffer);
        // SAFETY: the buffer is live.
        unsafe { self.vulkan.device.get_buffer_memory_requirements2(&info, requirements) };
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: the buffer is live, and no work was submitted that uses it.
        unsafe { self.vulkan.device.destroy_buffer(self.buffer, None) };
    }
}

const BUFFER_USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

fn device_uuid(instance: &ash::Instance, device: vk::PhysicalDevice) -> String {
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
    // SAFETY: the physical device comes from this instance.
    unsafe { instance.get_physical_device_properties2(device, &mut properties) };
    hex(&id.device_uuid)
}

/// Exportable memory.
pub(crate) struct Allocation<'a> {
    vulkan: &'a Vulkan,
    memory: vk::DeviceMemory,
    /// In bytes.
    pub(crate) size: u64,
    /// Bound to this memory, which is dedicated to it.
    buffer: Option<Buffer<'a>>,
}

impl Allocation<'_> {
    pub(crate) fn export(&self) -> Answer<OwnedFd> {
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(self.memory)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // SAFETY: the memory is live and was allocated for export.
        let fd = unsafe { self.vulkan.external_fd.get_memory_fd(&info) }.named("vkGetMemoryFdKHR")?;
        if fd < 0 {
            return Err(format!("vkGetMemoryFdKHR: gave descriptor {fd}"));
        }
        // SAFETY: the call created a new descriptor for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Maps all of it until it is freed. The memory must be host-visible and not mapped yet.
    pub(crate) fn map(&self) -> Answer<*mut u8> {
        // SAFETY: the memory is live and, by this method's contract, host-visible and not mapped.
        unsafe { self.vulkan.device.map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }
            .map(<*mut _>::cast)
            .named("vkMapMemory")
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        // Before its memory.
        drop(self.buffer.take());
        // SAFETY: the memory is live, and its users have ended, since they borrow it.
        unsafe { self.vulkan.device.free_memory(self.memory, None) };
    }
}
