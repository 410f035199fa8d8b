//! The peer: the driver calls of an allocation, made directly through ash and cudarc on a separate Vulkan device, with
//! the necessary checks only and without cleanup after failures.
#![expect(unsafe_code, reason = "calls the drivers")]

use std::hint::black_box;

use vkgdr::ash::{self, khr, vk};
use vkgdr::cudarc::driver::sys::{self, CUdeviceptr, CUexternalMemory};

use crate::Result;

/// A Vulkan device, which lives as long as the process.
pub(crate) struct Bare {
    _entry: ash::Entry,
    _instance: ash::Instance,
    device: ash::Device,
    external_fd: khr::external_memory_fd::Device,
    memory_type: u32,
}

/// The objects of an allocation.
struct Stages {
    memory: vk::DeviceMemory,
    external: CUexternalMemory,
    pointer: CUdeviceptr,
}

impl Bare {
    /// Opens the Vulkan device with this UUID.
    pub(crate) fn open(uuid: [u8; 16]) -> Result<Self> {
        // SAFETY: loading Vulkan runs its initialisers.
        let entry = unsafe { ash::Entry::load() }?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `info` lives until the call returns.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        let physical = find(&instance, uuid)?;
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
        let extensions = [khr::external_memory_fd::NAME.as_ptr()];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&extensions);
        // SAFETY: the physical device is the instance's, and `info` lives until the call returns.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        let external_fd = khr::external_memory_fd::Device::new(&instance, &device);
        let memory_type = mapped_type(&instance, physical)?;
        Ok(Self { _entry: entry, _instance: instance, device, external_fd, memory_type })
    }

    /// Allocates and frees mapped memory in the current context.
    pub(crate) fn cycle(&self, size: u64) -> Result {
        let stages = self.allocate(size)?;
        self.free(black_box(stages))
    }

    fn allocate(&self, size: u64) -> Result<Stages> {
        let handle_type = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(handle_type);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(self.memory_type)
            .push_next(&mut export);
        // SAFETY: a memory type of the device, and a size within its heap.
        let memory = unsafe { self.device.allocate_memory(&info, None) }?;
        // SAFETY: the memory is live, host-visible and not mapped.
        let host = unsafe { self.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }?;
        black_box(host);
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(handle_type);
        // SAFETY: the memory is live and was allocated for export.
        let fd = unsafe { self.external_fd.get_memory_fd(&info) }?;
        let external = import(fd, size)?;
        let pointer = map(external, size)?;
        Ok(Stages { memory, external, pointer })
    }

    fn free(&self, stages: Stages) -> Result {
        // SAFETY: the pointer is live, and is not used afterwards.
        unsafe { sys::cuMemFree_v2(stages.pointer) }.result()?;
        // SAFETY: the imported memory is live, and is not used afterwards.
        unsafe { sys::cuDestroyExternalMemory(stages.external) }.result()?;
        // SAFETY: the memory is mapped.
        unsafe { self.device.unmap_memory(stages.memory) };
        // SAFETY: the memory is live, and is not used afterwards.
        unsafe { self.device.free_memory(stages.memory, None) };
        Ok(())
    }
}

fn import(fd: i32, size: u64) -> Result<CUexternalMemory> {
    let info = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd },
        size,
        flags: 0,
        reserved: [0; 16],
    };
    let mut external = std::ptr::null_mut();
    // SAFETY: `external` and `info` are live, and the descriptor is of a memory of this size.
    unsafe { sys::cuImportExternalMemory(&raw mut external, &raw const info) }.result()?;
    Ok(external)
}

fn map(external: CUexternalMemory, size: u64) -> Result<CUdeviceptr> {
    let info = sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size, flags: 0, reserved: [0; 16] };
    let mut pointer = 0;
    // SAFETY: `pointer` and `info` are live, and so is the imported memory, of this size.
    unsafe { sys::cuExternalMemoryGetMappedBuffer(&raw mut pointer, external, &raw const info) }.result()?;
    Ok(pointer)
}

fn find(instance: &ash::Instance, uuid: [u8; 16]) -> Result<vk::PhysicalDevice> {
    // SAFETY: the instance is live.
    let all = unsafe { instance.enumerate_physical_devices() }?;
    let has_uuid = |&device: &vk::PhysicalDevice| {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        // SAFETY: the device is the instance's, which is of version 1.1.
        unsafe { instance.get_physical_device_properties2(device, &mut properties) };
        id.device_uuid == uuid
    };
    Ok(all.into_iter().find(has_uuid).ok_or("Vulkan does not know the GPU")?)
}

/// The memory type chosen by this crate for mapped memory.
fn mapped_type(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<u32> {
    use vk::MemoryPropertyFlags as Property;
    // SAFETY: the device is the instance's.
    let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
    let wanted = Property::DEVICE_LOCAL | Property::HOST_VISIBLE | Property::HOST_COHERENT;
    let found = (0..).zip(memory.memory_types_as_slice()).find(|(_, kind)| kind.property_flags.contains(wanted));
    Ok(found.ok_or("the GPU has no mapped memory")?.0)
}
