//! [`Buffer`]: a `VkBuffer` with its memory.
#![expect(unsafe_code, reason = "hands its live handle to the driver")]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ash::vk;
use bytemuck::Pod;
use cudarc::driver::{CudaStream, CudaViewMut, DeviceRepr};

use super::inner::AllocatorInner;
use crate::device::gpu::VulkanRef;
use crate::driver::vulkan::Requirements;
use crate::{Error, Memory, Result};

/// A `VkBuffer`. Destroyed when dropped.
#[derive(Debug)]
pub(super) struct OwnedBuffer {
    handle: vk::Buffer,
    gpu: VulkanRef,
}

impl OwnedBuffer {
    /// # Safety
    ///
    /// The contract of [`Allocator::buffer`](super::Allocator::buffer).
    pub(super) unsafe fn create(gpu: &VulkanRef, info: &vk::BufferCreateInfo<'_>) -> Result<Self> {
        // SAFETY: by this function's contract.
        let handle = unsafe { gpu.device().create_exported_buffer(info) }?;
        Ok(Self { handle, gpu: gpu.clone() })
    }

    pub(super) const fn handle(&self) -> vk::Buffer {
        self.handle
    }

    pub(super) fn requirements(&self) -> Requirements {
        // SAFETY: live as long as this value.
        unsafe { self.gpu.device().buffer_requirements(self.handle) }
    }

    /// Binds memory that was allocated by the requirements. The first call only.
    pub(super) fn bind(&self, memory: &Memory) -> Result<()> {
        let place = memory.vulkan_memory().ok_or(Error::NoExport { kind: memory.kind() })?;
        // SAFETY: live as long as this value, and without memory, which the requirements suit.
        unsafe { self.gpu.device().bind_buffer(self.handle, place.memory, place.offset) }
    }
}

impl Drop for OwnedBuffer {
    fn drop(&mut self) {
        // SAFETY: created with this value, which is its only owner.
        unsafe { self.gpu.device().destroy_buffer(self.handle) };
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
    buffer: OwnedBuffer,
    memory: Memory,
    allocator: Arc<AllocatorInner>,
}

impl Buffer {
    pub(super) const fn new(buffer: OwnedBuffer, memory: Memory, allocator: Arc<AllocatorInner>) -> Self {
        Self { buffer, memory, allocator }
    }

    /// Vulkan's handle, valid while this value lives.
    #[must_use]
    pub const fn handle(&self) -> vk::Buffer {
        self.buffer.handle
    }

    /// Gives the buffer a name in the allocator's [`report`](super::Allocator::report).
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn rename(&self, name: &str) -> Result<()> {
        self.allocator.rename(&self.memory, name)
    }

    /// [`Memory::view_mut`] of the buffer's memory.
    ///
    /// # Errors
    ///
    /// Those of [`Memory::view`].
    pub fn view_mut<T: DeviceRepr + Pod>(&mut self, stream: &Arc<CudaStream>) -> Result<CudaViewMut<'_, T>> {
        self.memory.view_mut(stream)
    }

    /// Frees the buffer as a drop does, but returns errors instead of logging them, see [`Memory::free`].
    ///
    /// # Errors
    ///
    /// Those of [`Memory::free`].
    pub fn free(self) -> Result<()> {
        let Self { buffer, memory, .. } = self;
        drop(buffer);
        memory.free()
    }
}

impl Deref for Buffer {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("handle", &self.buffer.handle)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}
