#![expect(unsafe_code, reason = "calls Vulkan")]
//! The Vulkan device underneath the simulated GPU: the first CPU-type device, normally lavapipe. Under a profile
//! without Vulkan no device lies underneath, and Vulkan is not loaded.
//!
//! The instance's application name is `simcuda`, by which the test layers recognise and ignore it. Instance and device
//! live until the process ends.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::OnceLock;

use ash::vk;

use crate::code::{Code, INVALID_HANDLE, MAP_FAILED, NOT_SUPPORTED, OPERATING_SYSTEM, OUT_OF_MEMORY, UNKNOWN};
use crate::pages::Mirror;
use crate::profile::profile;

const APPLICATION: &CStr = c"simcuda";

/// The device's identity without Vulkan.
const NAME: &str = "without Vulkan";
const UUID: [u8; vk::UUID_SIZE] = *b"vkgdr's simcuda\0";

/// The CPU device underneath.
pub(crate) struct CpuDevice {
    vulkan: Option<Vulkan>,
    pub(crate) name: String,
    pub(crate) uuid: [u8; vk::UUID_SIZE],
}

/// Its Vulkan part, and the logical device that imports memory, created on first use.
struct Vulkan {
    // Keeps the Vulkan library loaded.
    _entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    importer: OnceLock<Result<Importer, Code>>,
}

struct Importer {
    device: ash::Device,
    memory_type: u32,
}

/// The first Vulkan device of type CPU; `None` without a Vulkan loader, driver or such a device. The reason is printed
/// on stderr once, since CUDA's code only says that there is no device.
pub(crate) fn cpu_device() -> Option<&'static CpuDevice> {
    static DEVICE: OnceLock<Option<CpuDevice>> = OnceLock::new();
    let said = |why: &String| simcommon::say!("simcuda: no Vulkan device to simulate a GPU on: {why}");
    DEVICE
        .get_or_init(|| {
            if !profile().has_vulkan {
                return Some(CpuDevice { vulkan: None, name: NAME.to_owned(), uuid: UUID });
            }
            find().inspect_err(said).ok()
        })
        .as_ref()
}

fn find() -> Result<CpuDevice, String> {
    // SAFETY: loading the system's Vulkan loader runs only its own initialisation.
    let entry = unsafe { ash::Entry::load() }.map_err(|error| error.to_string())?;
    let application = vk::ApplicationInfo::default().application_name(APPLICATION).api_version(vk::API_VERSION_1_1);
    let info = vk::InstanceCreateInfo::default().application_info(&application);
    // SAFETY: `info` and what it points to live through the call.
    let instance =
        unsafe { entry.create_instance(&info, None) }.map_err(|code| format!("vkCreateInstance: {code:?}"))?;
    // SAFETY: the instance is live, and never destroyed.
    let all = unsafe { instance.enumerate_physical_devices() };
    let all = all.map_err(|code| format!("vkEnumeratePhysicalDevices: {code:?}"))?;
    let (physical, name, uuid) = all
        .into_iter()
        .find_map(|physical| describe(&instance, physical))
        .ok_or("Vulkan lists none of type CPU, as Mesa's lavapipe is")?;
    let vulkan = Vulkan { _entry: entry, instance, physical, importer: OnceLock::new() };
    Ok(CpuDevice { vulkan: Some(vulkan), name, uuid })
}

// The device with its name and UUID, if it is a CPU.
fn describe(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
) -> Option<(vk::PhysicalDevice, String, [u8; vk::UUID_SIZE])> {
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
    // SAFETY: the handle comes from this instance, which is of version 1.1.
    unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
    let properties = properties.properties;
    if properties.device_type != vk::PhysicalDeviceType::CPU || properties.api_version < vk::API_VERSION_1_1 {
        return None;
    }
    let name = properties.device_name_as_c_str().unwrap_or(c"").to_string_lossy().into_owned();
    Some((physical, name, id.device_uuid))
}

impl Vulkan {
    fn importer(&self) -> Result<&Importer, Code> {
        self.importer.get_or_init(|| self.make_importer()).as_ref().map_err(|&code| code)
    }

    fn make_importer(&self) -> Result<Importer, Code> {
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
        let extensions = [ash::khr::external_memory_fd::NAME.as_ptr()];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&extensions);
        // SAFETY: the physical device is this instance's, `info` and what it points to live through the call.
        let device = unsafe { self.instance.create_device(self.physical, &info, None) }.map_err(cuda_code)?;
        let memory_type = self.host_visible_type().ok_or(NOT_SUPPORTED)?;
        Ok(Importer { device, memory_type })
    }

    fn host_visible_type(&self) -> Option<u32> {
        // SAFETY: the physical device is this instance's.
        let memory = unsafe { self.instance.get_physical_device_memory_properties(self.physical) };
        let visible = |flags: vk::MemoryPropertyFlags| flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
        (0..).zip(memory.memory_types_as_slice()).find(|(_, kind)| visible(kind.property_flags)).map(|(index, _)| index)
    }
}

/// Memory imported from a file descriptor, and its mapping. Dropping it releases both.
pub(crate) struct Import {
    device: &'static ash::Device,
    memory: vk::DeviceMemory,
    mapping: OnceLock<Result<(usize, Option<Mirror>), Code>>,
    pub(crate) size: usize,
}

/// Imports `size` bytes from a descriptor, which stays the caller's.
pub(crate) fn import(fd: BorrowedFd<'_>, size: usize) -> Result<Import, Code> {
    let importer = cpu_device().and_then(|device| device.vulkan.as_ref()).ok_or(NOT_SUPPORTED)?.importer()?;
    let fd = fd.try_clone_to_owned().map_err(|_| OPERATING_SYSTEM)?;
    let mut handle = vk::ImportMemoryFdInfoKHR::default()
        .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
        // Not closed after a failure: lavapipe consumes the descriptor even then, and a second close could close
        // another thread's new descriptor.
        .fd(fd.into_raw_fd());
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(size as u64)
        .memory_type_index(importer.memory_type)
        .push_next(&mut handle);
    // SAFETY: the device has the extension enabled, and the descriptor is ours to give away.
    let memory = unsafe { importer.device.allocate_memory(&info, None) }.map_err(cuda_code)?;
    Ok(Import { device: &importer.device, memory, mapping: OnceLock::new(), size })
}

impl Import {
    /// The device's address of the memory, mapped on the first call.
    pub(crate) fn map(&self) -> Result<usize, Code> {
        let mapping = self.mapping.get_or_init(|| {
            // SAFETY: the memory is host visible and mapped here only, once.
            let mapped = unsafe { self.device.map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) };
            let address = mapped.map_err(|_| MAP_FAILED)?.expose_provenance();
            Ok((address, Mirror::of(address, self.size)))
        });
        match mapping {
            Ok((_, Some(mirror))) => Ok(mirror.start),
            Ok((address, None)) => Ok(*address),
            Err(code) => Err(*code),
        }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // SAFETY: the memory is this object's own; everything that uses the mapping keeps the object alive.
        unsafe { self.device.free_memory(self.memory, None) }
    }
}

fn cuda_code(result: vk::Result) -> Code {
    match result {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => OUT_OF_MEMORY,
        vk::Result::ERROR_INVALID_EXTERNAL_HANDLE => INVALID_HANDLE,
        vk::Result::ERROR_EXTENSION_NOT_PRESENT => NOT_SUPPORTED,
        _ => UNKNOWN,
    }
}
