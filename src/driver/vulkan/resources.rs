//! The calls for buffers and images whose memory is exported as opaque file descriptors.
//!
//! They are created for export, since the memory that they are bound to is (VUID-vkBindBufferMemory-memory-02726).
#![expect(unsafe_code, reason = "foreign function calls")]

use ash::vk;

use super::{Device, Named, OPAQUE_FD};
use crate::driver::fork;
use crate::{Error, Result};

/// The memory requirements of a buffer or image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requirements {
    pub(crate) memory: vk::MemoryRequirements,
    /// Whether the driver requires or prefers a dedicated allocation.
    pub(crate) prefers_dedicated: bool,
}

/// How an image's exported memory can be shared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageSharing {
    /// Whether only dedicated allocations can be shared.
    pub(crate) dedicated_only: bool,
}

impl Device {
    /// Creates a buffer that memory of this crate can be bound to.
    ///
    /// # Safety
    ///
    /// `info` must be valid for `vkCreateBuffer` on this device, without a `VkExternalMemoryBufferCreateInfo` in its chain.
    pub(crate) unsafe fn create_exported_buffer(&self, info: &vk::BufferCreateInfo<'_>) -> Result<vk::Buffer> {
        fork::check()?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE_FD);
        external.p_next = info.p_next;
        let mut info = *info;
        info.p_next = (&raw const external).cast();
        // SAFETY: by this method's contract; the chain lives until the call returns.
        unsafe { self.raw.create_buffer(&info, None) }.named("vkCreateBuffer")
    }

    /// # Safety
    ///
    /// `buffer` must be a live buffer of this device.
    pub(crate) unsafe fn buffer_requirements(&self, buffer: vk::Buffer) -> Requirements {
        let info = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut found = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        // SAFETY: by this method's contract.
        unsafe { self.raw.get_buffer_memory_requirements2(&info, &mut found) };
        Requirements { memory: found.memory_requirements, prefers_dedicated: prefers_dedicated(&dedicated) }
    }

    /// # Safety
    ///
    /// `buffer` must be a live buffer of this device without memory, which `memory` at `offset` suits.
    pub(crate) unsafe fn bind_buffer(&self, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64) -> Result<()> {
        fork::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.raw.bind_buffer_memory(buffer, memory, offset) }.named("vkBindBufferMemory")
    }

    /// How the memory of such images is shared; `VK_ERROR_FORMAT_NOT_SUPPORTED` where it cannot be.
    ///
    /// # Safety
    ///
    /// `info` must be valid for `vkCreateImage` on this device.
    pub(crate) unsafe fn image_sharing(&self, info: &vk::ImageCreateInfo<'_>) -> Result<ImageSharing> {
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
        Ok(ImageSharing { dedicated_only: features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY) })
    }

    /// Creates an image that memory of this crate can be bound to.
    ///
    /// # Safety
    ///
    /// `info` must be valid for `vkCreateImage` on this device, without a `VkExternalMemoryImageCreateInfo` in its chain, and
    /// [`image_sharing`](Self::image_sharing) allow it.
    pub(crate) unsafe fn create_exported_image(&self, info: &vk::ImageCreateInfo<'_>) -> Result<vk::Image> {
        fork::check()?;
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(OPAQUE_FD);
        external.p_next = info.p_next;
        let mut info = *info;
        info.p_next = (&raw const external).cast();
        // SAFETY: by this method's contract; the chain lives until the call returns.
        unsafe { self.raw.create_image(&info, None) }.named("vkCreateImage")
    }

    /// # Safety
    ///
    /// `image` must be a live image of this device.
    pub(crate) unsafe fn image_requirements(&self, image: vk::Image) -> Requirements {
        let info = vk::ImageMemoryRequirementsInfo2::default().image(image);
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut found = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        // SAFETY: by this method's contract.
        unsafe { self.raw.get_image_memory_requirements2(&info, &mut found) };
        Requirements { memory: found.memory_requirements, prefers_dedicated: prefers_dedicated(&dedicated) }
    }

    /// # Safety
    ///
    /// `image` must be a live image of this device without memory, which `memory` at `offset` suits.
    pub(crate) unsafe fn bind_image(&self, image: vk::Image, memory: vk::DeviceMemory, offset: u64) -> Result<()> {
        fork::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.raw.bind_image_memory(image, memory, offset) }.named("vkBindImageMemory")
    }

    /// # Safety
    ///
    /// `image` must be a live image of this device with linear tiling, and have the subresource.
    pub(crate) unsafe fn image_layout(&self, image: vk::Image, of: vk::ImageSubresource) -> vk::SubresourceLayout {
        // SAFETY: by this method's contract.
        unsafe { self.raw.get_image_subresource_layout(image, of) }
    }

    /// # Safety
    ///
    /// `image` must come from [`Self::create_exported_image`] and not be used afterwards.
    pub(crate) unsafe fn destroy_image(&self, image: vk::Image) {
        if fork::is_forked() {
            return;
        }
        // SAFETY: by this method's contract.
        unsafe { self.raw.destroy_image(image, None) };
    }
}

fn prefers_dedicated(found: &vk::MemoryDedicatedRequirements<'_>) -> bool {
    (found.prefers_dedicated_allocation | found.requires_dedicated_allocation) == vk::TRUE
}
