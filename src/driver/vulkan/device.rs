//! A logical device: its memory, and buffers and images whose memory is exported as opaque file descriptors.
//!
//! They are created for export, since the memory that they are bound to is (VUID-vkBindBufferMemory-memory-02726).
#![expect(unsafe_code, reason = "foreign function calls")]

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use ash::{khr, vk};

use super::{Instance, Named, OPAQUE_FD, PhysicalDevice, Sharing, Timelines, USAGE};
use crate::driver::fork;
use crate::driver::os::{self, DriverFd};
use crate::error::Call;
use crate::{Error, Result};

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
    sharing: OnceLock<Sharing>,
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
        Self { raw, external_fd, timelines, has_budget, sharing: OnceLock::new(), physical, queue_family, instance }
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

    /// How the device shares memory. Asked at the first call, which vkgdr 0.1 never makes.
    pub(crate) fn sharing(&self) -> Sharing {
        *self.sharing.get_or_init(|| {
            let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(USAGE).handle_type(OPAQUE_FD);
            let mut properties = vk::ExternalBufferProperties::default();
            let (instance, physical) = (&self.instance.raw, self.physical.handle);
            // SAFETY: the handle comes from this instance, whose version has the function, as the device's has.
            unsafe { instance.get_physical_device_external_buffer_properties(physical, &info, &mut properties) };
            let found = properties.external_memory_properties;
            Sharing {
                dedicated_only: found.external_memory_features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY),
                exports_imports: found.export_from_imported_handle_types.contains(OPAQUE_FD),
            }
        })
    }

    /// Allocates memory, dedicated to a buffer or image if one is given. With `import`, an opaque file descriptor that stays the
    /// caller's, it is another memory object of the memory behind that. If `export` is true it can be exported as such a
    /// descriptor, which not every driver allows of imported memory.
    ///
    /// # Safety
    ///
    /// `type_index` must be one of this device's memory types, `size` neither zero nor beyond its heap, and fewer
    /// than `max_allocations` allocations be live. A buffer or image must require this type and size. The device must have the
    /// features that the flags need. A descriptor must have been exported from memory of this physical device with the same
    /// type and size.
    pub(crate) unsafe fn allocate_memory(
        &self,
        type_index: u32,
        size: u64,
        dedicated: Option<DedicatedTo>,
        flags: vk::MemoryAllocateFlags,
        import: Option<BorrowedFd<'_>>,
        export: bool,
    ) -> Result<vk::DeviceMemory> {
        fork::check()?;
        let lent = import.map(DriverFd::new).transpose()?;
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(OPAQUE_FD);
        let mut to = vk::MemoryDedicatedAllocateInfo::default();
        let mut flags_info = vk::MemoryAllocateFlagsInfo::default().flags(flags);
        let mut exported = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE_FD);
        let mut info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(type_index);
        if let Some(lent) = &lent {
            import.fd = lent.raw();
            info = info.push_next(&mut import);
        }
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
        if export {
            info = info.push_next(&mut exported);
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
    /// `memory` must come from [`Self::allocate_memory`] with `export`.
    pub(crate) unsafe fn export_memory(&self, memory: vk::DeviceMemory) -> Result<OwnedFd> {
        fork::check()?;
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(OPAQUE_FD);
        // SAFETY: by this method's contract.
        let fd = unsafe { self.external_fd.get_memory_fd(&info) }.named(Call::ExportMemory)?;
        if fd < 0 {
            // A driver was seen to return success without a descriptor for memory that it could not export.
            return Err(Error::vulkan(Call::ExportMemory, vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
        }
        // SAFETY: the call made a new descriptor, which belongs to the caller.
        unsafe { os::take(fd) }
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
    /// Creates a buffer of at least `size` bytes to dedicate shared memory to, and its requirements. The caller destroys it.
    pub(crate) fn create_buffer(&self, size: u64) -> Result<(vk::Buffer, vk::MemoryRequirements)> {
        // SAFETY: a valid description.
        let buffer = unsafe { self.create_exported_buffer(&vk::BufferCreateInfo::default().size(size).usage(USAGE)) }?;
        // SAFETY: the buffer was just created.
        Ok((buffer, unsafe { self.raw.get_buffer_memory_requirements(buffer) }))
    }

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

    pub(crate) unsafe fn buffer_requirements(&self, buffer: vk::Buffer) -> Requirements {
        let info = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut found = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        // SAFETY: by this method's contract.
        unsafe { self.raw.get_buffer_memory_requirements2(&info, &mut found) };
        Requirements { memory: found.memory_requirements, prefers_dedicated: prefers_dedicated(&dedicated) }
    }

    /// The buffer must have no memory, and `memory` at `offset` suit it.
    pub(crate) unsafe fn bind_buffer(&self, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64) -> Result<()> {
        // SAFETY: by this method's contract.
        unsafe { self.raw.bind_buffer_memory(buffer, memory, offset) }.named("vkBindBufferMemory")
    }

    pub(crate) unsafe fn destroy_buffer(&self, buffer: vk::Buffer) {
        if !fork::is_forked() {
            // SAFETY: by this method's contract.
            unsafe { self.raw.destroy_buffer(buffer, None) };
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

    pub(crate) unsafe fn image_requirements(&self, image: vk::Image) -> Requirements {
        let info = vk::ImageMemoryRequirementsInfo2::default().image(image);
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut found = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        // SAFETY: by this method's contract.
        unsafe { self.raw.get_image_memory_requirements2(&info, &mut found) };
        Requirements { memory: found.memory_requirements, prefers_dedicated: prefers_dedicated(&dedicated) }
    }

    /// The image must have no memory, and `memory` at `offset` suit it.
    pub(crate) unsafe fn bind_image(&self, image: vk::Image, memory: vk::DeviceMemory, offset: u64) -> Result<()> {
        // SAFETY: by this method's contract.
        unsafe { self.raw.bind_image_memory(image, memory, offset) }.named("vkBindImageMemory")
    }

    /// The image must have linear tiling and the subresource.
    pub(crate) unsafe fn image_layout(&self, image: vk::Image, of: vk::ImageSubresource) -> vk::SubresourceLayout {
        // SAFETY: by this method's contract.
        unsafe { self.raw.get_image_subresource_layout(image, of) }
    }

    pub(crate) unsafe fn destroy_image(&self, image: vk::Image) {
        if !fork::is_forked() {
            // SAFETY: by this method's contract.
            unsafe { self.raw.destroy_image(image, None) };
        }
    }
}

fn prefers_dedicated(found: &vk::MemoryDedicatedRequirements<'_>) -> bool {
    (found.prefers_dedicated_allocation | found.requires_dedicated_allocation) == vk::TRUE
}
