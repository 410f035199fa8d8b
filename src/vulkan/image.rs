//! [`Image`]: a `VkImage` with its memory.
#![expect(unsafe_code, reason = "hands its live handle to the driver")]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ash::vk;
use bytemuck::Pod;
use cudarc::driver::{CudaStream, CudaViewMut, DeviceRepr};

use super::inner::AllocatorInner;
use crate::device::gpu::VulkanRef;
use crate::driver::fork;
use crate::driver::vulkan::Requirements;
use crate::{Error, Memory, Result};

/// A `VkImage`. Destroyed when dropped.
#[derive(Debug)]
pub(super) struct OwnedImage {
    handle: vk::Image,
    format: vk::Format,
    tiling: vk::ImageTiling,
    mip_levels: u32,
    array_layers: u32,
    gpu: VulkanRef,
}

impl OwnedImage {
    /// # Safety
    ///
    /// The contract of [`Allocator::image`](super::Allocator::image), and the memory of such images must be shareable.
    pub(super) unsafe fn create(gpu: &VulkanRef, info: &vk::ImageCreateInfo<'_>) -> Result<Self> {
        // SAFETY: by this function's contract.
        let handle = unsafe { gpu.device().create_exported_image(info) }?;
        let vk::ImageCreateInfo { format, tiling, mip_levels, array_layers, .. } = *info;
        Ok(Self { handle, format, tiling, mip_levels, array_layers, gpu: gpu.clone() })
    }

    pub(super) const fn handle(&self) -> vk::Image {
        self.handle
    }

    pub(super) fn is_linear(&self) -> bool {
        self.tiling == vk::ImageTiling::LINEAR
    }

    pub(super) fn requirements(&self) -> Requirements {
        // SAFETY: live as long as this value.
        unsafe { self.gpu.device().image_requirements(self.handle) }
    }

    /// Binds memory that was allocated by the requirements. The first call only.
    pub(super) fn bind(&self, memory: &Memory) -> Result<()> {
        let place = memory.vulkan_memory().ok_or(Error::NoExport { kind: memory.kind() })?;
        // SAFETY: live as long as this value, and without memory, which the requirements suit.
        unsafe { self.gpu.device().bind_image(self.handle, place.memory, place.offset) }
    }
}

impl Drop for OwnedImage {
    fn drop(&mut self) {
        // SAFETY: created with this value, which is its only owner.
        unsafe { self.gpu.device().destroy_image(self.handle) };
    }
}

/// Whether it is one of Vulkan 1.0's formats of colours: others have depths and stencils, or several planes.
fn has_one_color_plane(format: vk::Format) -> bool {
    let is_of_first_version = format > vk::Format::UNDEFINED && format <= vk::Format::ASTC_12X12_SRGB_BLOCK;
    is_of_first_version && !(vk::Format::D16_UNORM..=vk::Format::D32_SFLOAT_S8_UINT).contains(&format)
}

/// A Vulkan image whose bytes CUDA and the CPU share. Made by [`Allocator::image`](super::Allocator::image).
///
/// It dereferences to [`Memory`]. With linear tiling this is rows of pixels, see [`layout`](Self::layout); with optimal
/// tiling the order of the bytes is the driver's. What [`Buffer`](super::Buffer) says of its lifetime holds here, too.
pub struct Image {
    // Destroyed before its memory is freed.
    image: OwnedImage,
    memory: Memory,
    allocator: Arc<AllocatorInner>,
}

impl Image {
    pub(super) const fn new(image: OwnedImage, memory: Memory, allocator: Arc<AllocatorInner>) -> Self {
        Self { image, memory, allocator }
    }

    /// Vulkan's handle, valid while this value lives.
    #[must_use]
    pub const fn handle(&self) -> vk::Image {
        self.image.handle
    }

    /// Where the pixels of a mipmap level and an array layer lie in the memory; `None` for optimal tiling, for formats other than
    /// those of colours in one plane, for levels and layers that the image does not have, and in a forked child.
    #[must_use]
    pub fn layout(&self, mip_level: u32, array_layer: u32) -> Option<vk::SubresourceLayout> {
        let image = &self.image;
        let has_layout = image.is_linear() && has_one_color_plane(image.format);
        if !has_layout || mip_level >= image.mip_levels || array_layer >= image.array_layers || fork::is_forked() {
            return None;
        }
        let of = vk::ImageSubresource { aspect_mask: vk::ImageAspectFlags::COLOR, mip_level, array_layer };
        // SAFETY: a live image with linear tiling, and one of its subresources.
        Some(unsafe { image.gpu.device().image_layout(image.handle, of) })
    }

    /// Gives the image a name in the allocator's [`report`](super::Allocator::report).
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn rename(&self, name: &str) -> Result<()> {
        self.allocator.rename(&self.memory, name)
    }

    /// [`Memory::view_mut`] of the image's memory.
    ///
    /// # Errors
    ///
    /// Those of [`Memory::view`].
    pub fn view_mut<T: DeviceRepr + Pod>(&mut self, stream: &Arc<CudaStream>) -> Result<CudaViewMut<'_, T>> {
        self.memory.view_mut(stream)
    }

    /// Frees the image as a drop does, but returns errors instead of logging them, see [`Memory::free`].
    ///
    /// # Errors
    ///
    /// Those of [`Memory::free`].
    pub fn free(self) -> Result<()> {
        let Self { image, memory, .. } = self;
        drop(image);
        memory.free()
    }
}

impl Deref for Image {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("handle", &self.image.handle)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Format;

    use super::has_one_color_plane;

    #[test]
    fn only_formats_of_colors_in_one_plane_have_a_layout() {
        let yes = [Format::R4G4_UNORM_PACK8, Format::R8G8B8A8_UNORM, Format::R64G64B64A64_SFLOAT];
        let packed = [Format::E5B9G9R9_UFLOAT_PACK32, Format::BC1_RGB_UNORM_BLOCK, Format::ASTC_12X12_SRGB_BLOCK];
        assert!(yes.into_iter().chain(packed).all(has_one_color_plane));
        let depths = [Format::D16_UNORM, Format::D32_SFLOAT, Format::S8_UINT, Format::D32_SFLOAT_S8_UINT];
        let others = [Format::UNDEFINED, Format::G8_B8_R8_3PLANE_420_UNORM, Format::G8_B8R8_2PLANE_420_UNORM];
        assert!(!depths.into_iter().chain(others).any(has_one_color_plane));
    }
}
