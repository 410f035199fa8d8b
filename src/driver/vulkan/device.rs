//! A logical device: its memory, the buffers and images of that memory, and timeline semaphores. All are exported as opaque file
//! descriptors. [`Handles`]: the Vulkan handles that this crate and a program exchange.
//!
//! Buffers and images are created for export, since the memory that they are bound to is
//! (VUID-vkBindBufferMemory-memory-02726).
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

use ash::{khr, vk};

use super::{Instance, Named, OPAQUE_FD, PhysicalDevice};
use crate::driver::fork;
use crate::driver::os::{self, DriverFd};
use crate::error::Call;
use crate::{Error, Result};

const SEMAPHORE_FD: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;

/// The memory requirements of a buffer or image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requirements {
    pub(crate) memory: vk::MemoryRequirements,
    /// Whether the driver requires or prefers a dedicated allocation.
    pub(crate) prefers_dedicated: bool,
}

/// The buffer or image that an allocation is dedicated to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DedicatedTo {
    Buffer(vk::Buffer),
    Image(vk::Image),
}

/// A logical device: one that all handles of a GPU share and that is never destroyed, or a program's. In a forked child
/// its functions fail, and those that release do nothing.
pub(crate) struct Device {
    pub(super) raw: ash::Device,
    external_fd: khr::external_memory_fd::Device,
    /// `None` where timeline semaphores cannot be shared.
    pub(super) timelines: Option<Timelines>,
    has_budget: bool,
    pub(crate) physical: PhysicalDevice,
    /// The family of its queue.
    pub(super) queue_family: u32,
    pub(crate) instance: Instance,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.physical.name)
    }
}

impl Device {
    pub(super) fn new(
        instance: Instance,
        raw: ash::Device,
        physical: PhysicalDevice,
        queue_family: u32,
        has_budget: bool,
    ) -> Self {
        let external_fd = khr::external_memory_fd::Device::new(&instance.raw, &raw);
        let timelines = Timelines::find(&instance.raw, &raw);
        Self { raw, external_fd, timelines, has_budget, physical, queue_family, instance }
    }

    /// The device's own handle.
    pub(crate) fn handle(&self) -> vk::Device {
        self.raw.handle()
    }

    /// The bytes of a heap that this process can still allocate, if the driver reports it (`VK_EXT_memory_budget`).
    pub(crate) fn heap_budget(&self, heap: u32) -> Option<u64> {
        if !self.has_budget {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the handle comes from this instance, and the device has the extension.
        unsafe { self.instance.raw.get_physical_device_memory_properties2(self.physical.handle, &mut properties) };
        let heap = heap as usize;
        Some(budget.heap_budget[heap].saturating_sub(budget.heap_usage[heap]))
    }

    /// Allocates memory, dedicated to a buffer or image if one is given. With `import`, an opaque file descriptor that stays the
    /// caller's, it is another memory object of the memory behind that. Otherwise it can be exported as such a descriptor. On
    /// NVIDIA's driver 580, an import that also requests export is new memory, with other bytes.
    ///
    /// # Safety
    ///
    /// `type_index` must be one of this device's memory types, `size` neither zero nor beyond its heap, and fewer allocations be
    /// live than `maxMemoryAllocationCount` (VUID-vkAllocateMemory-maxMemoryAllocationCount-04101). A buffer or image
    /// must require this type and size. The device must have the features that the flags need. A descriptor must have been
    /// exported from memory of this physical device with the same type and size.
    pub(crate) unsafe fn allocate_memory(
        &self,
        type_index: u32,
        size: u64,
        dedicated: Option<DedicatedTo>,
        flags: vk::MemoryAllocateFlags,
        import: Option<BorrowedFd<'_>>,
    ) -> Result<vk::DeviceMemory> {
        fork::check()?;
        let lent = import.map(DriverFd::new).transpose()?;
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(OPAQUE_FD);
        let mut to = vk::MemoryDedicatedAllocateInfo::default();
        let mut flags_info = vk::MemoryAllocateFlagsInfo::default().flags(flags);
        let mut exported = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE_FD);
        let mut info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(type_index);
        info = match &lent {
            Some(lent) => {
                import.fd = lent.raw();
                info.push_next(&mut import)
            }
            None => info.push_next(&mut exported),
        };
        if !flags.is_empty() {
            info = info.push_next(&mut flags_info);
        }
        if let Some(dedicated) = dedicated {
            to = match dedicated {
                DedicatedTo::Buffer(buffer) => to.buffer(buffer),
                DedicatedTo::Image(image) => to.image(image),
            };
            info = info.push_next(&mut to);
        }
        // SAFETY: by this method's contract; the driver may take ownership of the duplicate.
        let allocated = unsafe { self.raw.allocate_memory(&info, None) }.named(Call::AllocateMemory);
        allocated.inspect_err(|_| lent.into_iter().for_each(DriverFd::take_back))
    }

    pub(crate) unsafe fn free_memory(&self, memory: vk::DeviceMemory) {
        if !fork::is_forked() {
            // SAFETY: by this method's contract.
            unsafe { self.raw.free_memory(memory, None) };
        }
    }

    /// Maps all of `memory`, which must be host-visible and not mapped.
    pub(crate) unsafe fn map_memory(&self, memory: vk::DeviceMemory) -> Result<NonNull<u8>> {
        // SAFETY: by this method's contract.
        let pointer = unsafe { self.raw.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }
            .named("vkMapMemory")?;
        NonNull::new(pointer.cast()).ok_or_else(|| Error::vulkan("vkMapMemory", vk::Result::ERROR_MEMORY_MAP_FAILED))
    }

    /// A new descriptor of the memory, close-on-exec: the driver that gets it may keep it open for as long as the memory lives.
    ///
    /// # Safety
    ///
    /// `memory` must come from [`Self::allocate_memory`] without an import.
    pub(crate) unsafe fn export_memory(&self, memory: vk::DeviceMemory) -> Result<OwnedFd> {
        fork::check()?;
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(OPAQUE_FD);
        // SAFETY: by this method's contract.
        let fd = unsafe { self.external_fd.get_memory_fd(&info) }.named(Call::ExportMemory)?;
        // SAFETY: the call made a new descriptor, which belongs to the caller.
        unsafe { exported(fd, Call::ExportMemory) }
    }

    /// # Safety
    ///
    /// `range` must be whole atoms, or end with the memory, of mapped memory of this device.
    pub(crate) unsafe fn flush(&self, range: &vk::MappedMemoryRange<'_>) -> Result<()> {
        fork::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.raw.flush_mapped_memory_ranges(std::slice::from_ref(range)) }.named("vkFlushMappedMemoryRanges")
    }

    /// The contract of [`Self::flush`].
    pub(crate) unsafe fn invalidate(&self, range: &vk::MappedMemoryRange<'_>) -> Result<()> {
        fork::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.raw.invalidate_mapped_memory_ranges(std::slice::from_ref(range)) }
            .named("vkInvalidateMappedMemoryRanges")
    }
}

/// Buffers and images.
impl Device {
    /// Creates a buffer that memory of this crate can be bound to.
    ///
    /// # Safety
    ///
    /// `info` must have no `VkExternalMemoryBufferCreateInfo` in its chain.
    pub(crate) unsafe fn create_exported_buffer(&self, info: &vk::BufferCreateInfo<'_>) -> Result<vk::Buffer> {
        fork::check()?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE_FD);
        external.p_next = info.p_next;
        let mut info = *info;
        info.p_next = (&raw const external).cast();
        // SAFETY: by this method's contract; the chain lives until the call returns.
        unsafe { self.raw.create_buffer(&info, None) }.named("vkCreateBuffer")
    }

    pub(crate) unsafe fn requirements(&self, of: DedicatedTo) -> Requirements {
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut found = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        match of {
            DedicatedTo::Buffer(buffer) => {
                let info = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
                // SAFETY: by this method's contract.
                unsafe { self.raw.get_buffer_memory_requirements2(&info, &mut found) };
            }
            DedicatedTo::Image(image) => {
                let info = vk::ImageMemoryRequirementsInfo2::default().image(image);
                // SAFETY: by this method's contract.
                unsafe { self.raw.get_image_memory_requirements2(&info, &mut found) };
            }
        }
        let memory = found.memory_requirements;
        let wishes = dedicated.prefers_dedicated_allocation | dedicated.requires_dedicated_allocation;
        Requirements { memory, prefers_dedicated: wishes == vk::TRUE }
    }

    /// The buffer or image must have no memory, and `memory` at `offset` suit it.
    pub(crate) unsafe fn bind(&self, to: DedicatedTo, memory: vk::DeviceMemory, offset: u64) -> Result<()> {
        match to {
            DedicatedTo::Buffer(buffer) => {
                // SAFETY: by this method's contract.
                unsafe { self.raw.bind_buffer_memory(buffer, memory, offset) }.named("vkBindBufferMemory")
            }
            DedicatedTo::Image(image) => {
                // SAFETY: by this method's contract.
                unsafe { self.raw.bind_image_memory(image, memory, offset) }.named("vkBindImageMemory")
            }
        }
    }

    pub(crate) unsafe fn destroy(&self, what: DedicatedTo) {
        match what {
            _ if fork::is_forked() => {}
            // SAFETY: by this method's contract.
            DedicatedTo::Buffer(buffer) => unsafe { self.raw.destroy_buffer(buffer, None) },
            // SAFETY: by this method's contract.
            DedicatedTo::Image(image) => unsafe { self.raw.destroy_image(image, None) },
        }
    }

    /// Whether the memory of such images can be shared only if it is dedicated; `VK_ERROR_FORMAT_NOT_SUPPORTED` where it cannot
    /// be shared at all.
    pub(crate) unsafe fn image_is_dedicated_only(&self, info: &vk::ImageCreateInfo<'_>) -> Result<bool> {
        const OPERATION: &str = "vkGetPhysicalDeviceImageFormatProperties2";
        fork::check()?;
        let mut external = vk::PhysicalDeviceExternalImageFormatInfo::default().handle_type(OPAQUE_FD);
        let asked = vk::PhysicalDeviceImageFormatInfo2::default()
            .format(info.format)
            .ty(info.image_type)
            .tiling(info.tiling)
            .usage(info.usage)
            .flags(info.flags)
            .push_next(&mut external);
        let mut shared = vk::ExternalImageFormatProperties::default();
        let mut found = vk::ImageFormatProperties2::default().push_next(&mut shared);
        let (instance, physical) = (&self.instance.raw, self.physical.handle);
        // SAFETY: the handle comes from this instance, whose version has the function.
        unsafe { instance.get_physical_device_image_format_properties2(physical, &asked, &mut found) }
            .named(OPERATION)?;
        // Of images that can be shared: those may be smaller than the others.
        let limits = found.image_format_properties;
        let features = shared.external_memory_properties.external_memory_features;
        let within = |asked: vk::Extent3D, most: vk::Extent3D| {
            asked.width <= most.width && asked.height <= most.height && asked.depth <= most.depth
        };
        let allowed = within(info.extent, limits.max_extent)
            && info.mip_levels <= limits.max_mip_levels
            && info.array_layers <= limits.max_array_layers
            && limits.sample_counts.contains(info.samples);
        if !allowed || !features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE) {
            return Err(Error::vulkan(OPERATION, vk::Result::ERROR_FORMAT_NOT_SUPPORTED));
        }
        Ok(features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY))
    }

    /// Creates an image that memory of this crate can be bound to.
    ///
    /// # Safety
    ///
    /// `info` must have no `VkExternalMemoryImageCreateInfo` in its chain, and
    /// [`image_is_dedicated_only`](Self::image_is_dedicated_only) allow it.
    pub(crate) unsafe fn create_exported_image(&self, info: &vk::ImageCreateInfo<'_>) -> Result<vk::Image> {
        fork::check()?;
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(OPAQUE_FD);
        external.p_next = info.p_next;
        let mut info = *info;
        info.p_next = (&raw const external).cast();
        // SAFETY: by this method's contract; the chain lives until the call returns.
        unsafe { self.raw.create_image(&info, None) }.named("vkCreateImage")
    }

    /// The image must have linear tiling and the subresource.
    pub(crate) unsafe fn image_layout(&self, image: vk::Image, of: vk::ImageSubresource) -> vk::SubresourceLayout {
        // SAFETY: by this method's contract.
        unsafe { self.raw.get_image_subresource_layout(image, of) }
    }
}

/// Timeline semaphores.
impl Device {
    /// Whether timeline semaphores of the device can be shared.
    pub(crate) fn shares_semaphores(&self) -> bool {
        let mut of_type = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::PhysicalDeviceExternalSemaphoreInfo::default().handle_type(SEMAPHORE_FD).push_next(&mut of_type);
        let mut found = vk::ExternalSemaphoreProperties::default();
        let (instance, physical) = (&self.instance.raw, self.physical.handle);
        // SAFETY: the handle comes from this instance, whose version has the function.
        unsafe { instance.get_physical_device_external_semaphore_properties(physical, &info, &mut found) };
        let features = found.external_semaphore_features;
        self.timelines.is_some() && features.contains(vk::ExternalSemaphoreFeatureFlags::EXPORTABLE)
    }

    fn timelines(&self) -> Result<&Timelines> {
        fork::check()?;
        Ok(self.timelines.as_ref().expect("`shares_semaphores` was asked before the semaphore was made"))
    }

    /// Creates a timeline semaphore that can be exported.
    pub(crate) fn create_timeline(&self, value: u64) -> Result<vk::Semaphore> {
        self.timelines()?;
        let mut of_type =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE).initial_value(value);
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(SEMAPHORE_FD);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut of_type).push_next(&mut export);
        // SAFETY: the structures live until the call returns; the device has the feature.
        unsafe { self.raw.create_semaphore(&info, None) }.named(Call::CreateSemaphore)
    }

    /// A new descriptor of a semaphore from [`Self::create_timeline`], close-on-exec.
    pub(crate) unsafe fn export_semaphore(&self, semaphore: vk::Semaphore) -> Result<OwnedFd> {
        let get_fd = self.timelines()?.fds.get_semaphore_fd_khr;
        let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(semaphore).handle_type(SEMAPHORE_FD);
        let mut fd = -1;
        // SAFETY: by this method's contract.
        unsafe { get_fd(self.raw.handle(), &raw const info, &raw mut fd) }.result().named(Call::ExportSemaphore)?;
        // SAFETY: the call made a new descriptor, which belongs to the caller.
        unsafe { exported(fd, Call::ExportSemaphore) }
    }

    /// The value of a semaphore.
    pub(crate) unsafe fn semaphore_value(&self, semaphore: vk::Semaphore) -> Result<u64> {
        let get_value = self.timelines()?.values.get_semaphore_counter_value_khr;
        let mut value = 0;
        // SAFETY: by this method's contract.
        unsafe { get_value(self.raw.handle(), semaphore, &raw mut value) }
            .result()
            .named("vkGetSemaphoreCounterValueKHR")?;
        Ok(value)
    }

    /// Sets the value of a semaphore.
    ///
    /// # Safety
    ///
    /// The value must be greater than the semaphore's, and less than the values of submitted signals.
    pub(crate) unsafe fn signal_semaphore(&self, semaphore: vk::Semaphore, value: u64) -> Result<()> {
        let signal = self.timelines()?.values.signal_semaphore_khr;
        let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(value);
        // SAFETY: by this method's contract.
        unsafe { signal(self.raw.handle(), &raw const info) }.result().named("vkSignalSemaphoreKHR")
    }

    /// Waits until a semaphore has at least a value. Returns false if it has not after `timeout`.
    pub(crate) unsafe fn wait_semaphore(
        &self,
        semaphore: vk::Semaphore,
        value: u64,
        timeout: Duration,
    ) -> Result<bool> {
        let wait = self.timelines()?.values.wait_semaphores_khr;
        let (semaphores, values) = ([semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: by this method's contract.
        match unsafe { wait(self.raw.handle(), &raw const info, nanoseconds) } {
            vk::Result::TIMEOUT => Ok(false),
            result => result.result().named("vkWaitSemaphoresKHR").map(|()| true),
        }
    }

    pub(crate) unsafe fn destroy_semaphore(&self, semaphore: vk::Semaphore) {
        if !fork::is_forked() {
            // SAFETY: by this method's contract.
            unsafe { self.raw.destroy_semaphore(semaphore, None) };
        }
    }
}

/// The functions of a device on timeline semaphores, which are optional.
pub(super) struct Timelines {
    values: khr::timeline_semaphore::DeviceFn,
    fds: khr::external_semaphore_fd::DeviceFn,
}

impl Timelines {
    /// The extensions of semaphores that are shared.
    pub(super) const EXTENSIONS: [&CStr; 2] = [khr::timeline_semaphore::NAME, khr::external_semaphore_fd::NAME];

    /// `None` for a device that was made without them.
    pub(super) fn find(instance: &ash::Instance, device: &ash::Device) -> Option<Self> {
        let of_device = instance.fp_v1_0().get_device_proc_addr;
        let find = |name: &CStr| {
            // SAFETY: a live device, and a terminated name.
            unsafe { of_device(device.handle(), name.as_ptr()) }.map_or(ptr::null(), |found| found as *const c_void)
        };
        // A part of Vulkan 1.2 under names without the suffix.
        let find_either = |name: &CStr| {
            let plain = name.to_bytes().strip_suffix(b"KHR").and_then(|plain| CString::new(plain).ok());
            let extension = find(name);
            if extension.is_null() { plain.map_or(ptr::null(), |plain| find(&plain)) } else { extension }
        };
        let needed = [c"vkGetSemaphoreFdKHR", c"vkWaitSemaphoresKHR", c"vkSignalSemaphoreKHR"];
        if needed.into_iter().any(|name| find_either(name).is_null()) {
            return None;
        }
        let values = khr::timeline_semaphore::DeviceFn::load(find_either);
        Some(Self { values, fds: khr::external_semaphore_fd::DeviceFn::load(find) })
    }
}

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

    /// Queue 0 of the device's family.
    pub(crate) fn queue(&self) -> vk::Queue {
        // SAFETY: the device was made with this queue: by this crate, or by the contract of `Vkgdr::open_on`.
        unsafe { self.raw.get_device_queue(self.queue_family, 0) }
    }

    /// The handles of the device.
    pub(crate) fn handles(&self) -> Handles {
        let (entry, instance) = (self.instance.entry.clone(), self.instance.raw.clone());
        Handles::new(entry, instance, self.physical.handle, self.raw.clone(), self.queue_family)
    }
}

/// The descriptor that a call has exported.
///
/// # Safety
///
/// It must be new and belong to the caller, unless it is negative.
unsafe fn exported(fd: RawFd, call: Call) -> Result<OwnedFd> {
    if fd < 0 {
        // A driver was seen to return success without a descriptor for memory that it could not export.
        return Err(Error::vulkan(call, vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
    }
    // SAFETY: by this function's contract.
    unsafe { os::take(fd) }
}
