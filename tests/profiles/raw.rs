//! Vulkan and CUDA without the library, to test the simulator itself and to break Vulkan's rules.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use support::Result;
use vkgdr::ash::{self, khr::external_memory_fd, vk};
use vkgdr::cudarc::driver::sys::{self, CUresult};

const OPAQUE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// An instance and a device, which last for the process.
pub(crate) struct Raw {
    _entry: ash::Entry,
    device: ash::Device,
    fds: external_memory_fd::Device,
}

impl Raw {
    /// The GPU with this number in Vulkan's list.
    pub(crate) fn open(number: usize) -> Result<Self> {
        // SAFETY: loads the system's Vulkan loader.
        let entry = unsafe { ash::Entry::load() }?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: valid for the call.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        // SAFETY: a live instance.
        let physical = unsafe { instance.enumerate_physical_devices() }?[number];
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
        let extensions = [external_memory_fd::NAME.as_ptr()];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&extensions);
        // SAFETY: valid for the call.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        let fds = external_memory_fd::Device::new(&instance, &device);
        Ok(Self { _entry: entry, device, fds })
    }

    /// Allocates memory of a type.
    pub(crate) fn allocate(&self, memory_type: u32, size: u64) -> Result<vk::DeviceMemory> {
        let info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(memory_type);
        // SAFETY: a live device, and valid for the call.
        Ok(unsafe { self.device.allocate_memory(&info, None) }?)
    }

    /// Allocates memory that can be exported, dedicated to a buffer if there is one.
    pub(crate) fn allocate_to_export(
        &self,
        memory_type: u32,
        size: u64,
        buffer: vk::Buffer,
    ) -> Result<vk::DeviceMemory> {
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        let info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(memory_type);
        let mut info = info.push_next(&mut export);
        if buffer != vk::Buffer::null() {
            info = info.push_next(&mut dedicated);
        }
        // SAFETY: a live device, and valid for the call.
        Ok(unsafe { self.device.allocate_memory(&info, None) }?)
    }

    /// Imports memory, so that it can be exported again if `exportable`.
    pub(crate) fn import(
        &self,
        fd: OwnedFd,
        memory_type: u32,
        size: u64,
        exportable: bool,
    ) -> ash::prelude::VkResult<vk::DeviceMemory> {
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE);
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(OPAQUE).fd(fd.as_raw_fd());
        let info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(memory_type);
        let mut info = info.push_next(&mut import);
        if exportable {
            info = info.push_next(&mut export);
        }
        // SAFETY: a live device, and valid for the call.
        let memory = unsafe { self.device.allocate_memory(&info, None) }?;
        // Now it is Vulkan's.
        let _ = fd.into_raw_fd();
        Ok(memory)
    }

    /// A new descriptor of the memory.
    pub(crate) fn export(&self, memory: vk::DeviceMemory) -> Result<OwnedFd> {
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(OPAQUE);
        // SAFETY: live memory of this device.
        let fd = unsafe { self.fds.get_memory_fd(&info) }?;
        // SAFETY: Vulkan gave it away.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A buffer that can lie in shared memory, and the size of memory that it requires.
    pub(crate) fn shared_buffer(&self, size: u64) -> Result<(vk::Buffer, u64)> {
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE);
        let info = vk::BufferCreateInfo::default().size(size).usage(vk::BufferUsageFlags::TRANSFER_SRC);
        let info = info.push_next(&mut external);
        // SAFETY: a live device, and valid for the call.
        let buffer = unsafe { self.device.create_buffer(&info, None) }?;
        // SAFETY: the buffer was just created.
        Ok((buffer, unsafe { self.device.get_buffer_memory_requirements(buffer) }.size))
    }

    /// Maps a range of memory.
    pub(crate) fn map(&self, memory: vk::DeviceMemory, offset: u64, size: u64) -> Result<*mut u8> {
        // SAFETY: live memory of this device, which the tests do not map twice.
        let pointer = unsafe { self.device.map_memory(memory, offset, size, vk::MemoryMapFlags::empty()) }?;
        Ok(pointer.cast())
    }

    pub(crate) fn flush(&self, memory: vk::DeviceMemory, offset: u64, size: u64) -> Result {
        let range = vk::MappedMemoryRange::default().memory(memory).offset(offset).size(size);
        // SAFETY: live memory of this device. The range may be invalid: the layer checks it.
        Ok(unsafe { self.device.flush_mapped_memory_ranges(&[range]) }?)
    }
}

/// The answer of CUDA's current context to an import, which is ended at once.
pub(crate) fn import_into_cuda(fd: OwnedFd, size: u64) -> CUresult {
    let of = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd: fd.as_raw_fd() },
        size,
        flags: 0,
        reserved: [0; 16],
    };
    let mut handle = std::ptr::null_mut();
    // SAFETY: valid for the call.
    let answer = unsafe { sys::cuImportExternalMemory(&raw mut handle, &raw const of) };
    if answer == CUresult::CUDA_SUCCESS {
        // Now it is CUDA's.
        let _ = fd.into_raw_fd();
        // SAFETY: just imported.
        assert_eq!(unsafe { sys::cuDestroyExternalMemory(handle) }, CUresult::CUDA_SUCCESS);
    }
    answer
}
