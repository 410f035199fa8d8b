//! Vulkan's stages of an allocation: [`DeviceMemory`], its [`HostMapping`], and the [`Exported`] descriptor.
#![expect(unsafe_code, reason = "each stage hands its live handle to the driver")]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use ash::vk;

use crate::Result;
use crate::device::MemoryType;
use crate::device::gpu::{CountedAllocation, Gpu};
use crate::driver::vulkan::Device;
use crate::driver::{Handle, descriptor};

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

    /// A descriptor of the same memory.
    pub(super) fn duplicate(&self) -> Result<OwnedFd> {
        descriptor::duplicate(self.fd.as_fd())
    }
}

/// Exportable device memory.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    handle: vk::DeviceMemory,
    gpu: &'static Gpu,
    _counted: CountedAllocation,
}

impl DeviceMemory {
    /// Allocates `size` bytes, which must be more than 0 and at most the heap's size.
    pub(super) fn allocate(counted: CountedAllocation, memory_type: &MemoryType, size: u64) -> Result<Self> {
        debug_assert!((1..=memory_type.info.heap_size).contains(&size));
        let gpu = counted.gpu();
        // SAFETY: the type is this GPU's, `Allocation` has checked the size, and the allocation was counted.
        let handle = unsafe { gpu.vulkan().allocate_memory(memory_type.info.index, size) }?;
        Ok(Self { handle, gpu, _counted: counted })
    }

    /// Imports exported memory as another memory object. `size` as for [`allocate`](Self::allocate).
    pub(super) fn import(
        counted: CountedAllocation,
        memory_type: &MemoryType,
        size: u64,
        exported: &Exported,
    ) -> Result<Self> {
        debug_assert!((1..=memory_type.info.heap_size).contains(&size));
        let gpu = counted.gpu();
        // SAFETY: as in `allocate`, and the descriptor fits by the contract of `Exported::new`.
        let handle = unsafe { gpu.vulkan().import_memory(memory_type.info.index, size, exported.fd.as_fd()) }?;
        Ok(Self { handle, gpu, _counted: counted })
    }

    /// A new file descriptor of the memory.
    pub(super) fn export(&self) -> Result<OwnedFd> {
        // SAFETY: the handle is live until this value is dropped.
        unsafe { self.device().export_memory(self.handle) }
    }

    fn device(&self) -> &'static Device {
        self.gpu.vulkan()
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and this value is its only owner.
        unsafe { self.device().free_memory(self.handle) };
    }
}

/// The host mapping of a whole [`DeviceMemory`]. It must be dropped first: an owner of both declares it before the memory.
#[derive(Debug)]
pub(super) struct HostMapping {
    pointer: Handle<*mut u8>,
    memory: vk::DeviceMemory,
    gpu: &'static Gpu,
}

impl HostMapping {
    /// Maps host-visible memory, once.
    pub(super) fn map(memory: &DeviceMemory) -> Result<Self> {
        // SAFETY: the memory is live and of a host-visible type, and `Allocation::acquire` maps it only once.
        let pointer = unsafe { memory.device().map_memory(memory.handle) }?;
        Ok(Self { pointer: Handle(pointer.as_ptr()), memory: memory.handle, gpu: memory.gpu })
    }

    #[inline]
    pub(super) fn pointer(&self) -> NonNull<u8> {
        // SAFETY: made from a `NonNull` in `map`.
        unsafe { NonNull::new_unchecked(self.pointer.0) }
    }

    /// Flushes `(offset, size)`, which must be whole atoms within the memory.
    pub(super) fn flush(&self, range: (u64, u64)) -> Result<()> {
        // SAFETY: the memory is mapped for as long as this value lives, and `Allocation` passes whole atoms.
        unsafe { self.gpu.vulkan().flush(&self.range(range)) }
    }

    /// Invalidates `(offset, size)`, which must be whole atoms within the memory.
    pub(super) fn invalidate(&self, range: (u64, u64)) -> Result<()> {
        // SAFETY: as in `flush`.
        unsafe { self.gpu.vulkan().invalidate(&self.range(range)) }
    }

    fn range(&self, (offset, size): (u64, u64)) -> vk::MappedMemoryRange<'static> {
        vk::MappedMemoryRange::default().memory(self.memory).offset(offset).size(size)
    }
}

impl Drop for HostMapping {
    fn drop(&mut self) {
        // SAFETY: the memory is mapped, and this value is the mapping's only owner.
        unsafe { self.gpu.vulkan().unmap_memory(self.memory) };
    }
}
