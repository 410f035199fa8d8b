//! Vulkan's stages of an allocation: [`DeviceMemory`] with its host mapping, and the [`Exported`] descriptor.
#![expect(unsafe_code, reason = "each stage hands its live handle to the driver")]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use ash::vk;

use crate::Result;
use crate::device::MemoryType;
use crate::device::gpu::{CountedAllocation, VulkanGpu};
use crate::driver::vulkan::Device;
use crate::driver::{Handle, descriptor, memfd};

/// A descriptor of exported memory, with the caller's promise that it fits.
#[derive(Debug)]
pub(crate) struct Exported {
    fd: OwnedFd,
}

impl Exported {
    /// # Safety
    ///
    /// The descriptor must come from memory of the GPU, memory type and size that it is imported with.
    pub(crate) unsafe fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Whether it is of host memory that is registered pages, of this or another process.
    pub(super) fn is_registered_pages(&self) -> bool {
        memfd::is_ours(self.fd.as_fd())
    }

    /// The size of the file behind it in bytes.
    pub(super) fn size(&self) -> Result<u64> {
        memfd::size(self.fd.as_fd())
    }

    /// A descriptor of the same memory.
    pub(super) fn duplicate(&self) -> Result<OwnedFd> {
        descriptor::duplicate(self.fd.as_fd())
    }
}

/// Exportable device memory, and the host's mapping of all of it.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    /// Null once it has been released.
    handle: vk::DeviceMemory,
    /// Null while it is not mapped.
    host_ptr: Handle<*mut u8>,
    device: &'static Device,
    _counted: CountedAllocation,
}

impl DeviceMemory {
    /// Allocates `size` bytes, which must be more than 0 and at most the heap's size.
    pub(super) fn allocate(
        gpu: &'static VulkanGpu,
        counted: CountedAllocation,
        memory_type: &MemoryType,
        size: u64,
    ) -> Result<Self> {
        debug_assert!((1..=memory_type.info.heap_size).contains(&size));
        let device = gpu.device();
        // SAFETY: the type is this GPU's, `Allocation` has checked the size, and the allocation was counted.
        let handle = unsafe { device.allocate_memory(memory_type.info.index, size) }?;
        Ok(Self { handle, host_ptr: Handle(ptr::null_mut()), device, _counted: counted })
    }

    /// Imports exported memory as another memory object. `size` as for [`allocate`](Self::allocate).
    pub(super) fn import(
        gpu: &'static VulkanGpu,
        counted: CountedAllocation,
        memory_type: &MemoryType,
        size: u64,
        exported: &Exported,
    ) -> Result<Self> {
        debug_assert!((1..=memory_type.info.heap_size).contains(&size));
        let device = gpu.device();
        // SAFETY: as in `allocate`, and the descriptor fits by the contract of `Exported::new`.
        let handle = unsafe { device.import_memory(memory_type.info.index, size, exported.fd.as_fd()) }?;
        Ok(Self { handle, host_ptr: Handle(ptr::null_mut()), device, _counted: counted })
    }

    /// A new file descriptor of the memory.
    pub(super) fn export(&self) -> Result<OwnedFd> {
        // SAFETY: the handle is live until this value is dropped.
        unsafe { self.device.export_memory(self.handle) }
    }

    /// Maps host-visible memory, once, until it is freed.
    pub(super) fn map(&mut self) -> Result<()> {
        debug_assert!(self.host_ptr.0.is_null());
        // SAFETY: the memory is live and of a host-visible type, and `Allocation::acquire` maps it only once.
        self.host_ptr = Handle(unsafe { self.device.map_memory(self.handle) }?.as_ptr());
        Ok(())
    }

    /// The first byte for the CPU; none for memory that is not mapped.
    #[inline]
    pub(super) const fn host_ptr(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.host_ptr.0)
    }

    /// Flushes `(offset, size)`, which must be whole atoms within the memory. Does nothing where it is not mapped.
    pub(super) fn flush(&self, range: (u64, u64)) -> Result<()> {
        if self.host_ptr.0.is_null() {
            return Ok(());
        }
        // SAFETY: the memory is mapped until it is freed, and `Allocation` passes whole atoms.
        unsafe { self.device.flush(&self.range(range)) }
    }

    /// Invalidates `(offset, size)`, as [`flush`](Self::flush) flushes them.
    pub(super) fn invalidate(&self, range: (u64, u64)) -> Result<()> {
        if self.host_ptr.0.is_null() {
            return Ok(());
        }
        // SAFETY: as in `flush`.
        unsafe { self.device.invalidate(&self.range(range)) }
    }

    /// Frees the memory, which unmaps it (Vulkan specification, vkFreeMemory).
    #[inline]
    pub(super) fn release(&mut self) {
        let handle = std::mem::take(&mut self.handle);
        if handle != vk::DeviceMemory::null() {
            // SAFETY: the handle is live, and this value was its only owner.
            unsafe { self.device.free_memory(handle) };
        }
    }

    fn range(&self, (offset, size): (u64, u64)) -> vk::MappedMemoryRange<'static> {
        vk::MappedMemoryRange::default().memory(self.handle).offset(offset).size(size)
    }
}

impl Drop for DeviceMemory {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}
