//! A logical device: its memory, and the buffers that memory is dedicated to.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::fmt;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use ash::{khr, vk};

use super::timelines::Timelines;
use super::{HeapBudget, Instance, Named, OPAQUE_FD, PhysicalDevice, Sharing, USAGE};
use crate::driver::descriptor::{self, DriverFd};
use crate::driver::fork;
use crate::error::Call;
use crate::{Error, Result};

/// A `VkBuffer` that an allocation is dedicated to, and its requirements.
pub(crate) struct BufferRequirements {
    pub(crate) buffer: vk::Buffer,
    pub(crate) size: u64,
    /// One bit for each memory type that the allocation may have.
    pub(crate) memory_types: u32,
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
    pub(super) external_fd: khr::external_memory_fd::Device,
    /// `None` where timeline semaphores cannot be shared.
    pub(super) timelines: Option<Timelines>,
    pub(super) has_budget: bool,
    pub(super) sharing: OnceLock<Sharing>,
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
    /// The device's own handle.
    pub(crate) fn handle(&self) -> vk::Device {
        self.raw.handle()
    }

    /// The remaining budget of a heap, if the driver reports it.
    pub(crate) fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        self.has_budget.then(|| self.instance.heap_budget(&self.physical, heap))
    }

    /// How the device shares memory. Asked at the first call, which vkgdr 0.1 never makes.
    pub(crate) fn sharing(&self) -> Sharing {
        *self.sharing.get_or_init(|| self.instance.sharing(&self.physical))
    }

    /// Allocates memory that can be exported as an opaque file descriptor, dedicated to a buffer or image if one is given.
    ///
    /// # Safety
    ///
    /// `type_index` must be one of this device's memory types, `size` neither zero nor beyond its heap, and fewer
    /// than `max_allocations` allocations be live. A buffer or image must be live, and require this type and size. The
    /// device must have the features that the flags need.
    pub(crate) unsafe fn allocate_memory(
        &self,
        type_index: u32,
        size: u64,
        dedicated: Option<DedicatedTo>,
        flags: vk::MemoryAllocateFlags,
    ) -> Result<vk::DeviceMemory> {
        let mut flags_info = vk::MemoryAllocateFlagsInfo::default().flags(flags);
        let mut info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(type_index);
        if !flags.is_empty() {
            info = info.push_next(&mut flags_info);
        }
        // SAFETY: by this method's contract.
        unsafe { self.allocate(info, dedicated, true) }
    }

    /// Imports the memory behind an opaque file descriptor, which stays the caller's, as another memory object. It can be
    /// exported again if `export` is true, which not every driver allows.
    ///
    /// # Safety
    ///
    /// The contract of [`Self::allocate_memory`], and the descriptor must have been exported from memory of this
    /// physical device with the same type and size.
    pub(crate) unsafe fn import_memory(
        &self,
        type_index: u32,
        size: u64,
        fd: BorrowedFd<'_>,
        dedicated: Option<DedicatedTo>,
        export: bool,
    ) -> Result<vk::DeviceMemory> {
        let lent = DriverFd::new(fd)?;
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(OPAQUE_FD).fd(lent.raw());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(type_index)
            .push_next(&mut import);
        // SAFETY: by this method's contract; the driver may take ownership of the duplicate.
        unsafe { self.allocate(info, dedicated, export) }.inspect_err(|_| lent.take_back())
    }

    /// # Safety
    ///
    /// The valid usage of `vkAllocateMemory`.
    unsafe fn allocate(
        &self,
        info: vk::MemoryAllocateInfo<'_>,
        dedicated: Option<DedicatedTo>,
        export: bool,
    ) -> Result<vk::DeviceMemory> {
        fork::check()?;
        let to = vk::MemoryDedicatedAllocateInfo::default();
        let mut to = match dedicated {
            None => to,
            Some(DedicatedTo::Buffer(buffer)) => to.buffer(buffer),
            Some(DedicatedTo::Image(image)) => to.image(image),
        };
        let mut exported = vk::ExportMemoryAllocateInfo::default().handle_types(OPAQUE_FD);
        let mut info = info;
        if dedicated.is_some() {
            info = info.push_next(&mut to);
        }
        if export {
            info = info.push_next(&mut exported);
        }
        // SAFETY: by this method's contract.
        unsafe { self.raw.allocate_memory(&info, None) }.named(Call::AllocateMemory)
    }

    /// Creates a buffer of at least `size` bytes to dedicate shared memory to. The caller destroys it.
    pub(crate) fn create_buffer(&self, size: u64) -> Result<BufferRequirements> {
        fork::check()?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE_FD);
        let info = vk::BufferCreateInfo::default().size(size).usage(USAGE).push_next(&mut external);
        // SAFETY: `info` and what it points at live until the call returns.
        let buffer = unsafe { self.raw.create_buffer(&info, None) }.named("vkCreateBuffer")?;
        // SAFETY: the buffer was just created.
        let requirements = unsafe { self.raw.get_buffer_memory_requirements(buffer) };
        Ok(BufferRequirements { buffer, size: requirements.size, memory_types: requirements.memory_type_bits })
    }

    /// # Safety
    ///
    /// `buffer` must be a live buffer of this device and not be used afterwards.
    pub(crate) unsafe fn destroy_buffer(&self, buffer: vk::Buffer) {
        if fork::is_forked() {
            return;
        }
        // SAFETY: by this method's contract.
        unsafe { self.raw.destroy_buffer(buffer, None) };
    }

    /// # Safety
    ///
    /// `memory` must be live memory of this device that is not used afterwards, nor its mapping.
    pub(crate) unsafe fn free_memory(&self, memory: vk::DeviceMemory) {
        if fork::is_forked() {
            return;
        }
        // SAFETY: by this method's contract.
        unsafe { self.raw.free_memory(memory, None) };
    }

    /// Maps all of `memory`.
    ///
    /// # Safety
    ///
    /// `memory` must be live, host-visible memory of this device that is not mapped.
    pub(crate) unsafe fn map_memory(&self, memory: vk::DeviceMemory) -> Result<NonNull<u8>> {
        fork::check()?;
        // SAFETY: by this method's contract.
        let pointer = unsafe { self.raw.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }
            .named("vkMapMemory")?;
        NonNull::new(pointer.cast()).ok_or_else(|| Error::vulkan("vkMapMemory", vk::Result::ERROR_MEMORY_MAP_FAILED))
    }

    /// A new descriptor of the memory, close-on-exec.
    ///
    /// # Safety
    ///
    /// `memory` must be live memory of this device from [`Self::allocate_memory`], or from [`Self::import_memory`] with
    /// `export`.
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
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // The driver that gets it may keep it open for as long as the memory lives.
        descriptor::close_on_exec(&fd)?;
        Ok(fd)
    }

    /// # Safety
    ///
    /// `range` must be whole atoms, or end with the memory, of mapped memory of this device.
    pub(crate) unsafe fn flush(&self, range: &vk::MappedMemoryRange<'_>) -> Result<()> {
        fork::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.raw.flush_mapped_memory_ranges(std::slice::from_ref(range)) }.named("vkFlushMappedMemoryRanges")
    }

    /// # Safety
    ///
    /// The contract of [`Self::flush`].
    pub(crate) unsafe fn invalidate(&self, range: &vk::MappedMemoryRange<'_>) -> Result<()> {
        fork::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.raw.invalidate_mapped_memory_ranges(std::slice::from_ref(range)) }
            .named("vkInvalidateMappedMemoryRanges")
    }
}
