//! [`Buffer`] and [`Image`]: a `VkBuffer` or `VkImage` with its memory.
#![expect(unsafe_code, reason = "hands its live handle to the driver")]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ash::vk;
use bytemuck::Pod;
use cudarc::driver::{CudaStream, CudaViewMut, DeviceRepr};
use gpu_allocator::vulkan::AllocationScheme;

use super::allocator::AllocatorInner;
use crate::device::gpu::VulkanGpu;
use crate::driver::fork;
use crate::driver::vulkan::{DedicatedTo, Requirements};
use crate::{Error, Memory, Result};

/// A `VkBuffer` or `VkImage` whose memory can be exported. Destroyed when dropped.
pub(super) struct Resource {
    handle: DedicatedTo,
    /// Whether it is a buffer, or an image with linear tiling.
    pub(super) is_linear: bool,
    /// Whether only dedicated memory of it can be shared.
    pub(super) dedicated_only: bool,
    gpu: Arc<VulkanGpu>,
}

impl Resource {
    /// # Safety
    ///
    /// The contract of [`Allocator::buffer`](super::Allocator::buffer).
    pub(super) unsafe fn buffer(gpu: &Arc<VulkanGpu>, info: &vk::BufferCreateInfo<'_>) -> Result<Self> {
        // SAFETY: by this function's contract.
        let handle = DedicatedTo::Buffer(unsafe { gpu.device().create_exported_buffer(info) }?);
        Ok(Self { handle, is_linear: true, dedicated_only: false, gpu: gpu.clone() })
    }

    /// # Safety
    ///
    /// The contract of [`Allocator::image`](super::Allocator::image).
    pub(super) unsafe fn image(gpu: &Arc<VulkanGpu>, info: &vk::ImageCreateInfo<'_>) -> Result<Self> {
        // SAFETY: by this function's contract.
        let dedicated_only = unsafe { gpu.device().image_is_dedicated_only(info) }?;
        // SAFETY: as above, and the memory of such images can be shared.
        let handle = DedicatedTo::Image(unsafe { gpu.device().create_exported_image(info) }?);
        let is_linear = info.tiling == vk::ImageTiling::LINEAR;
        Ok(Self { handle, is_linear, dedicated_only, gpu: gpu.clone() })
    }

    /// Memory for this resource alone.
    pub(super) fn scheme(&self) -> AllocationScheme {
        match self.handle {
            DedicatedTo::Buffer(buffer) => AllocationScheme::DedicatedBuffer(buffer),
            DedicatedTo::Image(image) => AllocationScheme::DedicatedImage(image),
        }
    }

    pub(super) fn requirements(&self) -> Requirements {
        // SAFETY: live as long as this value.
        unsafe { self.gpu.device().requirements(self.handle) }
    }

    /// Binds memory that was allocated by the requirements. The first call only.
    pub(super) fn bind(&self, memory: &Memory) -> Result<()> {
        let place = memory.vulkan_memory().ok_or(Error::NoExport { kind: memory.kind() })?;
        // SAFETY: live as long as this value, and without memory, which the requirements suit.
        unsafe { self.gpu.device().bind(self.handle, place.memory, place.offset) }
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        // SAFETY: created with this value, which is its only owner.
        unsafe { self.gpu.device().destroy(self.handle) };
    }
}

/// A Vulkan buffer whose bytes CUDA and the CPU share. Made by [`Allocator::buffer`](super::Allocator::buffer).
///
/// It dereferences to [`Memory`]: [`host_ptr`](Memory::host_ptr), [`device_ptr`](Memory::device_ptr) and
/// [`handle`](Self::handle) are the same bytes. Clones and slices of the memory keep the bytes alive, not the
/// `VkBuffer`. Once the buffer and they are dropped, the memory is freed as its [`DropPolicy`](crate::DropPolicy) says.
/// No submitted work of a Vulkan queue may use the buffer then.
///
/// It cannot be exported as a descriptor ([`Error::Pooled`]), since it shares an allocation with other memory.
pub struct Buffer {
    // Destroyed before its memory is freed.
    resource: Resource,
    memory: Memory,
    allocator: Arc<AllocatorInner>,
}

/// A Vulkan image whose bytes CUDA and the CPU share. Made by [`Allocator::image`](super::Allocator::image).
///
/// It dereferences to [`Memory`]. With linear tiling this is rows of pixels, see [`layout`](Self::layout); with optimal
/// tiling the order of the bytes is the driver's. What [`Buffer`](super::Buffer) says of its lifetime holds here, too.
pub struct Image {
    // Destroyed before its memory is freed.
    resource: Resource,
    /// Mipmap levels and array layers; 0 where Vulkan defines no layout of the pixels.
    extent: (u32, u32),
    memory: Memory,
    allocator: Arc<AllocatorInner>,
}

/// What buffers and images have in common.
macro_rules! with_memory {
    ($type:ident, $handle:ty) => {
        impl $type {
            /// Vulkan's handle, valid while this value lives.
            #[must_use]
            pub const fn handle(&self) -> $handle {
                let DedicatedTo::$type(handle) = self.resource.handle else { unreachable!() };
                handle
            }

            /// Gives it a name in the allocator's [`report`](super::Allocator::report).
            ///
            /// # Errors
            ///
            /// [`Error::Forked`].
            pub fn rename(&self, name: &str) -> Result<()> {
                self.allocator.rename(&self.memory, name)
            }

            /// [`Memory::view_mut`] of its memory.
            ///
            /// # Errors
            ///
            /// Those of [`Memory::view`].
            pub fn view_mut<T: DeviceRepr + Pod>(&mut self, stream: &Arc<CudaStream>) -> Result<CudaViewMut<'_, T>> {
                self.memory.view_mut(stream)
            }

            /// Frees it as a drop does, but returns errors instead of logging them, see [`Memory::free`].
            ///
            /// # Errors
            ///
            /// Those of [`Memory::free`].
            pub fn free(self) -> Result<()> {
                drop(self.resource);
                self.memory.free()
            }
        }

        impl Deref for $type {
            type Target = Memory;

            fn deref(&self) -> &Memory {
                &self.memory
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($type))
                    .field("handle", &self.handle())
                    .field("memory", &self.memory)
                    .finish_non_exhaustive()
            }
        }
    };
}

with_memory!(Buffer, vk::Buffer);
with_memory!(Image, vk::Image);

impl Buffer {
    pub(super) fn new(resource: Resource, memory: Memory, allocator: Arc<AllocatorInner>) -> Self {
        Self { resource, memory, allocator }
    }
}

impl Image {
    pub(super) fn new(
        resource: Resource,
        info: &vk::ImageCreateInfo<'_>,
        memory: Memory,
        allocator: Arc<AllocatorInner>,
    ) -> Self {
        let has_layout = resource.is_linear && has_one_color_plane(info.format);
        let extent = if has_layout { (info.mip_levels, info.array_layers) } else { (0, 0) };
        Self { resource, extent, memory, allocator }
    }

    /// Where the pixels of a mipmap level and an array layer lie in the memory. `None` for optimal tiling, formats other than
    /// those of colours in one plane, levels and layers that the image lacks, and in a forked child.
    #[must_use]
    pub fn layout(&self, mip_level: u32, array_layer: u32) -> Option<vk::SubresourceLayout> {
        let (levels, layers) = self.extent;
        if mip_level >= levels || array_layer >= layers || fork::is_forked() {
            return None;
        }
        let of = vk::ImageSubresource { aspect_mask: vk::ImageAspectFlags::COLOR, mip_level, array_layer };
        // SAFETY: a live image with linear tiling, and one of its subresources.
        Some(unsafe { self.resource.gpu.device().image_layout(self.handle(), of) })
    }
}

/// Whether it is one of Vulkan 1.0's formats of colours: others have depths and stencils, or several planes.
fn has_one_color_plane(format: vk::Format) -> bool {
    let is_of_first_version = format > vk::Format::UNDEFINED && format <= vk::Format::ASTC_12X12_SRGB_BLOCK;
    is_of_first_version && !(vk::Format::D16_UNORM..=vk::Format::D32_SFLOAT_S8_UINT).contains(&format)
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
