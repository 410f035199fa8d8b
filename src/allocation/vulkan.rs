//! [`VulkanMemory`] with its host mapping, and the [`Exported`] descriptor.
#![expect(unsafe_code, reason = "each stage hands its live handle to the driver")]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;

use super::Request;
use crate::Result;
use crate::device::gpu::VulkanGpu;
use crate::driver::memory::CudaMemory;
use crate::driver::os;

/// A descriptor of exported memory, with the caller's promise that it fits.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(super) fd: OwnedFd,
}

impl Exported {
    /// # Safety
    ///
    /// The descriptor must come from memory of the GPU, memory type and size that it is imported with.
    pub(crate) unsafe fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Whether it belongs to registered pages, of this or another process.
    pub(super) fn is_registered_pages(&self) -> bool {
        os::is_memory_file(self.fd.as_fd())
    }
}

/// Exportable device memory, with the host's mapping of all of it.
#[derive(Debug)]
pub(super) struct VulkanMemory {
    handle: vk::DeviceMemory,
    size: u64,
    /// The descriptor of imported memory, which the driver does not export again.
    imported: Option<OwnedFd>,
    gpu: Arc<VulkanGpu>,
    _counted: Arc<()>,
}

impl VulkanMemory {
    /// Allocates or imports the memory that is asked for, maps it where the CPU has a view, and shares it with CUDA. Returns it,
    /// CUDA's side, and the first byte of the view.
    pub(super) fn share(
        gpu: &Arc<VulkanGpu>,
        request: &Request<'_>,
    ) -> Result<(Self, CudaMemory, Option<NonNull<u8>>)> {
        let Request { memory_type, size, .. } = *request;
        let (device, index) = (gpu.device(), memory_type.info.index);
        debug_assert!((1..=memory_type.info.heap_size).contains(&size));
        let (to, flags) = request.resources.map(|block| (block.dedicated_to, block.flags)).unwrap_or_default();
        let imported = request.import.map(|exported| os::duplicate(&exported.fd)).transpose()?;
        // SAFETY: the type is this GPU's, `Request` has a checked size, and a buffer or image requires this type and size.
        // NVIDIA's drivers allow 2^32 - 1 allocations (tests/gpu/reports), more than a process has descriptors or addresses for.
        // `AllocatorOptions::buffer_device_address` promises the flags' feature. A descriptor fits by `Exported::new`.
        let handle = unsafe { device.allocate_memory(index, size, to, flags, imported.as_ref().map(AsFd::as_fd)) }?;
        let memory = Self { handle, size, imported, gpu: gpu.clone(), _counted: gpu.count_allocation() };
        // SAFETY: the memory is live, of a host-visible type, and mapped only here, until it is freed.
        let map = || unsafe { device.map_memory(handle) };
        let host_ptr = memory_type.kind.has_host_view().then(map).transpose()?;
        let cuda = match host_ptr {
            // SAFETY: the pages are mapped until the memory is freed, before which the registration ends.
            Some(host_ptr) if memory_type.is_system_memory() => unsafe {
                CudaMemory::register(host_ptr, request.bytes())
            },
            // SAFETY: the descriptor is of this memory object.
            _ => unsafe { CudaMemory::import(memory.export()?, size, to.is_some()) },
        }?;
        Ok((memory, cuda, host_ptr))
    }

    /// The driver's handle.
    pub(super) const fn handle(&self) -> vk::DeviceMemory {
        self.handle
    }

    /// A new file descriptor of the memory.
    pub(super) fn export(&self) -> Result<OwnedFd> {
        match &self.imported {
            Some(fd) => os::duplicate(fd),
            // SAFETY: the handle is live until this value is dropped, and can be exported.
            None => unsafe { self.gpu.device().export_memory(self.handle) },
        }
    }

    /// Flushes `(offset, size)`, whole atoms that begin within the memory.
    pub(super) fn flush(&self, range: (u64, u64)) -> Result<()> {
        // SAFETY: the memory is mapped until it is freed, since memory without a host view is coherent: nobody flushes it.
        // `Allocation` passes whole atoms.
        unsafe { self.gpu.device().flush(&self.range(range)) }
    }

    /// Invalidates `(offset, size)`, as [`flush`](Self::flush) flushes them.
    pub(super) fn invalidate(&self, range: (u64, u64)) -> Result<()> {
        // SAFETY: as in `flush`.
        unsafe { self.gpu.device().invalidate(&self.range(range)) }
    }

    /// A range of whole atoms. The last may be cut off by the end of memory dedicated to a program's buffer or image,
    /// which is allowed (VUID-VkMappedMemoryRange-size-01390).
    fn range(&self, (offset, size): (u64, u64)) -> vk::MappedMemoryRange<'static> {
        vk::MappedMemoryRange::default().memory(self.handle).offset(offset).size(size.min(self.size - offset))
    }
}

impl Drop for VulkanMemory {
    /// Frees the memory, which unmaps it (Vulkan specification, vkFreeMemory).
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the handle is live, and this value was its only owner.
        unsafe { self.gpu.device().free_memory(self.handle) };
    }
}
