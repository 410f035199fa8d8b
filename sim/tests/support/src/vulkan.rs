//! Memory that Vulkan allocates and CUDA imports: the CPU and the device see it at different addresses.
#![expect(unsafe_code, reason = "calls Vulkan and the CUDA driver")]

use std::ffi::CStr;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use ash::khr::external_memory_fd;
use ash::vk::{self, ExternalMemoryHandleTypeFlags as HandleTypes, MemoryPropertyFlags as Properties};
use cudarc::driver::sys::{
    self, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdevice, CUdeviceptr, CUexternalMemory,
    CUexternalMemoryHandleType, CUuuid,
};

use crate::Result;
use crate::driver::{call, check, report};

const HANDLE_TYPE: HandleTypes = HandleTypes::OPAQUE_FD;
const EXTENSIONS: [&CStr; 1] = [external_memory_fd::NAME];

/// The Vulkan device of a CUDA device.
pub struct Vulkan {
    device: ash::Device,
    fds: external_memory_fd::Device,
    types: vk::PhysicalDeviceMemoryProperties,
    instance: ash::Instance,
    _entry: ash::Entry,
}

impl std::fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vulkan").field("device", &self.device.handle()).finish_non_exhaustive()
    }
}

impl Vulkan {
    /// Opens the device with the UUID of CUDA's device of this number.
    ///
    /// # Errors
    /// Those of Vulkan, also when it has no such device.
    ///
    /// # Panics
    /// When the CUDA driver refuses.
    pub fn open(ordinal: i32) -> Result<Self> {
        // SAFETY: loading the loader runs only its own initialisation.
        let entry = unsafe { ash::Entry::load() }.map_err(|error| format!("Vulkan cannot be loaded: {error}"))?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live during the call.
        let instance = named("vkCreateInstance", unsafe { entry.create_instance(&info, None) })?;
        match open_device(&instance, uuid(ordinal)) {
            Ok((device, types)) => {
                let fds = external_memory_fd::Device::new(&instance, &device);
                Ok(Self { device, fds, types, instance, _entry: entry })
            }
            Err(error) => {
                // SAFETY: the instance has no device.
                unsafe { instance.destroy_instance(None) };
                Err(error)
            }
        }
    }

    /// Allocates memory that the CPU sees, and imports it into the current context.
    ///
    /// # Errors
    /// Those of Vulkan.
    ///
    /// # Panics
    /// When the CUDA driver refuses.
    pub fn memory(&self, len: usize) -> Result<ImportedMemory<'_>> {
        let size = u64::try_from(len)?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE_TYPE);
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage).push_next(&mut external);
        // SAFETY: the structures live during the call.
        let buffer = unsafe { self.device.create_buffer(&info, None) }?;
        // The rest is released by its drop.
        let mut memory = ImportedMemory {
            vulkan: self,
            buffer,
            memory: vk::DeviceMemory::null(),
            view: NonNull::dangling(),
            len,
            external: null_mut(),
            address: 0,
        };
        // SAFETY: the buffer is live.
        let requirements = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(HANDLE_TYPE);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(requirements.size)
            .memory_type_index(self.mapped_type(requirements.memory_type_bits)?)
            .push_next(&mut export)
            .push_next(&mut dedicated);
        // SAFETY: the structures live during the call.
        memory.memory = unsafe { self.device.allocate_memory(&info, None) }?;
        // SAFETY: the memory was allocated for this buffer, which is not bound yet.
        unsafe { self.device.bind_buffer_memory(buffer, memory.memory, 0) }?;
        // SAFETY: memory of a host-visible type, not mapped yet.
        let view = unsafe { self.device.map_memory(memory.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }?;
        memory.view = NonNull::new(view).ok_or("mapped at null")?.cast();
        memory.import(requirements.size)?;
        Ok(memory)
    }

    /// The largest heap of a memory type with these properties: preferably one without the others, if there is one.
    #[must_use]
    pub fn largest_heap(&self, wanted: Properties, others: Properties) -> Option<vk::MemoryHeap> {
        let heaps = self.types.memory_heaps_as_slice();
        let fitting = self.types.memory_types_as_slice().iter().filter(|kind| kind.property_flags.contains(wanted));
        fitting
            .map(|kind| (!kind.property_flags.intersects(others), heaps[kind.heap_index as usize]))
            .max_by_key(|(preferred, heap)| (*preferred, heap.size))
            .map(|(_, heap)| heap)
    }

    /// A type that both sides see without flushes, in the device's memory if possible.
    fn mapped_type(&self, allowed: u32) -> Result<u32> {
        let coherent = Properties::HOST_VISIBLE | Properties::HOST_COHERENT;
        let find = |wanted| {
            let types = self.types.memory_types_as_slice().iter().zip(0..);
            let mut fitting =
                types.filter(|(kind, index)| allowed & 1 << index != 0 && kind.property_flags.contains(wanted));
            fitting.next().map(|(_, index)| index)
        };
        Ok(find(coherent | Properties::DEVICE_LOCAL).or_else(|| find(coherent)).ok_or("no coherent memory")?)
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // SAFETY: its memory borrows this value, and is gone.
        unsafe { self.device.destroy_device(None) };
        // SAFETY: its only device is gone.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// The error of a function that opens the device, with the function's name.
fn named<T>(function: &str, result: std::result::Result<T, vk::Result>) -> Result<T> {
    result.map_err(|code| format!("{function} failed (VK_{code:?})").into())
}

fn uuid(ordinal: i32) -> [u8; vk::UUID_SIZE] {
    let (mut device, mut uuid): (CUdevice, CUuuid) = (0, CUuuid { bytes: [0; vk::UUID_SIZE] });
    // SAFETY: `device` is a valid output.
    check("cuDeviceGet", unsafe { call::cuDeviceGet(&raw mut device, ordinal) });
    // SAFETY: `uuid` is a valid output.
    check("cuDeviceGetUuid_v2", unsafe { call::cuDeviceGetUuid_v2(&raw mut uuid, device) });
    // `c_char` is signed on some machines.
    uuid.bytes.map(|byte| byte.to_ne_bytes()[0])
}

fn open_device(
    instance: &ash::Instance,
    uuid: [u8; vk::UUID_SIZE],
) -> Result<(ash::Device, vk::PhysicalDeviceMemoryProperties)> {
    // SAFETY: the instance is live.
    let devices = named("vkEnumeratePhysicalDevices", unsafe { instance.enumerate_physical_devices() })?;
    let matching = devices.into_iter().find(|device| {
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
        // SAFETY: a live physical device; the structures live during the call.
        unsafe { instance.get_physical_device_properties2(*device, &mut properties) };
        ids.device_uuid == uuid
    });
    let physical = matching.ok_or("Vulkan does not have CUDA's device")?;
    // SAFETY: a live physical device.
    let types = unsafe { instance.get_physical_device_memory_properties(physical) };
    let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
    let extensions = EXTENSIONS.map(CStr::as_ptr);
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&extensions);
    // SAFETY: the structures live during the call.
    let device = named("vkCreateDevice", unsafe { instance.create_device(physical, &info, None) })?;
    Ok((device, types))
}

/// Memory of [`Vulkan::memory`], released on drop, even under a kernel that uses it.
#[derive(Debug)]
pub struct ImportedMemory<'a> {
    vulkan: &'a Vulkan,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    view: NonNull<AtomicU32>,
    len: usize,
    external: CUexternalMemory,
    address: CUdeviceptr,
}

impl ImportedMemory<'_> {
    fn import(&mut self, size: u64) -> Result {
        let info = vk::MemoryGetFdInfoKHR::default().memory(self.memory).handle_type(HANDLE_TYPE);
        // SAFETY: the memory was allocated for export.
        let fd = unsafe { self.vulkan.fds.get_memory_fd(&info) }?;
        let description = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 { fd },
            size,
            flags: sys::CUDA_EXTERNAL_MEMORY_DEDICATED,
            reserved: [0; 16],
        };
        // SAFETY: the descriptor is of a dedicated allocation of this size; the driver takes it.
        let code = unsafe { call::cuImportExternalMemory(&raw mut self.external, &raw const description) };
        check("cuImportExternalMemory", code);
        let range = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size, flags: 0, reserved: [0; 16] };
        // SAFETY: the memory was imported with this size.
        let code =
            unsafe { call::cuExternalMemoryGetMappedBuffer(&raw mut self.address, self.external, &raw const range) };
        check("cuExternalMemoryGetMappedBuffer", code);
        Ok(())
    }

    /// The device address of the first byte.
    #[must_use]
    pub const fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// The whole words, as the CPU sees them.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: the view has `len` bytes, is page-aligned, and stays mapped as long as `self`.
        unsafe { std::slice::from_raw_parts(self.view.as_ptr(), self.len / 4) }
    }

    /// The value of each word.
    #[must_use]
    pub fn read(&self) -> Vec<u32> {
        self.words().iter().map(|word| word.load(Ordering::Acquire)).collect()
    }

    /// Sets all words, by the CPU.
    pub fn fill(&self, value: u32) {
        self.words().iter().for_each(|word| word.store(value, Ordering::Release));
    }
}

impl Drop for ImportedMemory<'_> {
    fn drop(&mut self) {
        if self.address != 0 {
            // SAFETY: mapped by `import`, and freed once.
            report("cuMemFree_v2", unsafe { call::cuMemFree_v2(self.address) });
        }
        if !self.external.is_null() {
            // SAFETY: imported by `import`, and its only mapping is gone.
            report("cuDestroyExternalMemory", unsafe { call::cuDestroyExternalMemory(self.external) });
        }
        // SAFETY: no work of Vulkan's uses the buffer.
        unsafe { self.vulkan.device.destroy_buffer(self.buffer, None) };
        // SAFETY: null, or memory of which CUDA's reference is gone; `words` borrows `self`.
        unsafe { self.vulkan.device.free_memory(self.memory, None) };
    }
}
