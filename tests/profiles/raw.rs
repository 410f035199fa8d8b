//! A Vulkan device without the library, to test the layer itself and to break Vulkan's rules.

use support::Result;
use vkgdr::ash::{self, vk};

/// An instance and a device of the first GPU, which last for the process.
pub(crate) struct Raw {
    _entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    pub(crate) device: ash::Device,
}

impl Raw {
    pub(crate) fn open() -> Result<Self> {
        // SAFETY: loads the system's Vulkan loader.
        let entry = unsafe { ash::Entry::load() }?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: valid for the call.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        // SAFETY: a live instance.
        let physical = unsafe { instance.enumerate_physical_devices() }?[0];
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        // SAFETY: valid for the call.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        Ok(Self { _entry: entry, instance, physical, device })
    }

    /// The memory types' flags.
    pub(crate) fn types(&self) -> Vec<vk::MemoryPropertyFlags> {
        // SAFETY: a live instance's device.
        let memory = unsafe { self.instance.get_physical_device_memory_properties(self.physical) };
        memory.memory_types_as_slice().iter().map(|found| found.property_flags).collect()
    }

    /// Allocates memory of a type.
    pub(crate) fn allocate(&self, memory_type: u32, size: u64) -> Result<vk::DeviceMemory> {
        let info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(memory_type);
        // SAFETY: a live device, and valid for the call.
        Ok(unsafe { self.device.allocate_memory(&info, None) }?)
    }

    /// Maps a range of memory.
    pub(crate) fn map(&self, memory: vk::DeviceMemory, offset: u64, size: u64) -> Result<*mut u8> {
        // SAFETY: live memory of this device, which the tests do not map twice.
        let pointer = unsafe { self.device.map_memory(memory, offset, size, vk::MemoryMapFlags::empty()) }?;
        Ok(pointer.cast())
    }

    pub(crate) fn unmap(&self, memory: vk::DeviceMemory) {
        // SAFETY: mapped memory of this device.
        unsafe { self.device.unmap_memory(memory) };
    }

    pub(crate) fn flush(&self, memory: vk::DeviceMemory, offset: u64, size: u64) -> Result {
        let range = vk::MappedMemoryRange::default().memory(memory).offset(offset).size(size);
        // SAFETY: live memory of this device. The range may be invalid: the layer checks it.
        Ok(unsafe { self.device.flush_mapped_memory_ranges(&[range]) }?)
    }

    pub(crate) fn invalidate(&self, memory: vk::DeviceMemory, offset: u64, size: u64) -> Result {
        let range = vk::MappedMemoryRange::default().memory(memory).offset(offset).size(size);
        // SAFETY: live memory of this device. The range may be invalid: the layer checks it.
        Ok(unsafe { self.device.invalidate_mapped_memory_ranges(&[range]) }?)
    }
}
