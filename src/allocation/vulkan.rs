//! Vulkan's stages of an allocation: [`DeviceMemory`] with its host mapping, and the [`Exported`] descriptor.
#![expect(unsafe_code, reason = "each stage hands its live handle to the driver")]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use ash::vk;

use crate::device::MemoryType;
use crate::device::gpu::{CountedAllocation, VulkanRef};
use crate::driver::vulkan::{BufferRequirements, DedicatedTo};
use crate::driver::{Handle, descriptor, memfd};
use crate::report::report;
use crate::{Error, Result};

/// A descriptor of exported memory, with the caller's promise that it fits.
#[derive(Debug)]
pub(crate) struct Exported {
    fd: OwnedFd,
    layout: Option<Layout>,
}

/// How exported memory was allocated: an import has to repeat it (VUID-VkMemoryAllocateInfo-allocationSize-01742).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// The size of the memory object in bytes.
    pub(crate) size: u64,
    /// Whether it is dedicated to a buffer.
    pub(crate) dedicated: bool,
}

impl Exported {
    /// # Safety
    ///
    /// The descriptor must come from memory of the GPU, memory type and size that it is imported with.
    pub(crate) unsafe fn new(fd: OwnedFd) -> Self {
        Self { fd, layout: None }
    }

    /// Says how the exporter allocated the memory. Otherwise it counts as allocated the way this process would.
    pub(crate) fn with_layout(self, layout: Layout) -> Self {
        Self { layout: Some(layout), ..self }
    }

    pub(super) fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// Whether it belongs to registered pages, of this or another process.
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

/// The memory to allocate from a device.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) gpu: &'a VulkanRef,
    pub(super) memory_type: &'a MemoryType,
    /// In bytes: more than 0 and at most the heap's size.
    pub(super) size: u64,
    pub(super) dedication: Dedication,
    pub(super) flags: vk::MemoryAllocateFlags,
}

/// The buffer or image that an allocation is dedicated to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dedication {
    None,
    /// A buffer that is made for it.
    Own,
    /// The caller's buffer or image, which requires the size of the request.
    To(DedicatedTo),
}

/// Exportable device memory, and the host's mapping of all of it.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    /// Null once it has been released.
    handle: vk::DeviceMemory,
    /// Null while it is not mapped.
    host_ptr: Handle<*mut u8>,
    size: u64,
    /// The buffer that was made for the memory. Destroyed after the memory.
    buffer: Option<DedicatedBuffer>,
    /// The descriptor of imported memory that the driver does not export.
    imported: Option<OwnedFd>,
    gpu: VulkanRef,
    _counted: CountedAllocation,
}

impl DeviceMemory {
    /// Allocates memory.
    pub(super) fn allocate(counted: CountedAllocation, request: Request<'_>) -> Result<Self> {
        Self::acquire(counted, request, |size, dedicated| {
            let (device, index) = (request.gpu.device(), request.memory_type.info.index);
            // SAFETY: the type is this GPU's, `Allocation` has checked the size, the allocation was counted, and a buffer
            // or image requires this type and size; `AllocatorOptions::buffer_device_address` promises the flags' feature.
            let handle = unsafe { device.allocate_memory(index, size, dedicated, request.flags) }?;
            Ok((handle, None))
        })
    }

    /// Imports exported memory as another memory object, which can be exported again. Where the driver cannot export it
    /// again, a duplicate of the descriptor is kept.
    pub(super) fn import(counted: CountedAllocation, request: Request<'_>, exported: &Exported) -> Result<Self> {
        Self::acquire(counted, request, |size, dedicated| {
            let (device, index) = (request.gpu.device(), request.memory_type.info.index);
            if exported.layout.is_some_and(|layout| layout.size != size) {
                // A buffer of this length requires another size here than in the exporter: not the same driver.
                return Err(Error::vulkan("vkAllocateMemory", vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
            }
            let fd = exported.fd.as_fd();
            // SAFETY: as in `allocate`, and the descriptor fits by the contract of `Exported::new`.
            let import = |export| unsafe { device.import_memory(index, size, fd, dedicated, export) };
            if device.sharing().exports_imports {
                match import(true) {
                    // Not to be exported again, or the descriptor is wrong, which the next import tells.
                    Err(error @ Error::Vulkan { code: vk::Result::ERROR_INVALID_EXTERNAL_HANDLE, .. }) => {
                        report!(Debug, "imported memory to export: {error}");
                    }
                    result => return Ok((result?, None)),
                }
            }
            let kept = exported.duplicate()?;
            Ok((import(false)?, Some(kept)))
        })
    }

    fn acquire(
        counted: CountedAllocation,
        Request { gpu, memory_type, size, dedication, .. }: Request<'_>,
        acquire: impl FnOnce(u64, Option<DedicatedTo>) -> Result<(vk::DeviceMemory, Option<OwnedFd>)>,
    ) -> Result<Self> {
        debug_assert!((1..=memory_type.info.heap_size).contains(&size));
        let buffer = match dedication {
            Dedication::Own => Some(DedicatedBuffer::create(gpu, memory_type.info.index, size)?),
            Dedication::None | Dedication::To(_) => None,
        };
        let size = buffer.as_ref().map_or(size, |buffer| buffer.size);
        let dedicated = match (dedication, &buffer) {
            (Dedication::To(resource), _) => Some(resource),
            (_, buffer) => buffer.as_ref().map(|buffer| DedicatedTo::Buffer(buffer.handle)),
        };
        let (handle, imported) = acquire(size, dedicated)?;
        let host_ptr = Handle(ptr::null_mut());
        Ok(Self { handle, host_ptr, size, buffer, imported, gpu: gpu.clone(), _counted: counted })
    }

    /// The driver's handle.
    pub(super) const fn handle(&self) -> vk::DeviceMemory {
        self.handle
    }

    /// The size of the memory object in bytes: the requested size, or more if it is dedicated.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is dedicated to a buffer of its own.
    pub(super) const fn is_dedicated(&self) -> bool {
        self.buffer.is_some()
    }

    /// A new file descriptor of the memory.
    pub(super) fn export(&self) -> Result<OwnedFd> {
        match &self.imported {
            Some(fd) => descriptor::duplicate(fd.as_fd()),
            // SAFETY: the handle is live until this value is dropped, and can be exported.
            None => unsafe { self.gpu.device().export_memory(self.handle) },
        }
    }

    /// Maps host-visible memory, once, until it is freed.
    pub(super) fn map(&mut self) -> Result<()> {
        debug_assert!(self.host_ptr.0.is_null());
        // SAFETY: the memory is live and of a host-visible type, and `Allocation::acquire` maps it only once.
        self.host_ptr = Handle(unsafe { self.gpu.device().map_memory(self.handle) }?.as_ptr());
        Ok(())
    }

    /// The first byte for the CPU; `None` for memory that is not mapped.
    #[inline]
    pub(super) const fn host_ptr(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.host_ptr.0)
    }

    /// Flushes `(offset, size)`, whole atoms that begin within the memory. Does nothing where it is not mapped.
    pub(super) fn flush(&self, range: (u64, u64)) -> Result<()> {
        if self.host_ptr.0.is_null() {
            return Ok(());
        }
        // SAFETY: the memory is mapped until it is freed, and `Allocation` passes whole atoms.
        unsafe { self.gpu.device().flush(&self.range(range)) }
    }

    /// Invalidates `(offset, size)`, as [`flush`](Self::flush) flushes them.
    pub(super) fn invalidate(&self, range: (u64, u64)) -> Result<()> {
        if self.host_ptr.0.is_null() {
            return Ok(());
        }
        // SAFETY: as in `flush`.
        unsafe { self.gpu.device().invalidate(&self.range(range)) }
    }

    /// Frees the memory, which unmaps it (Vulkan specification, vkFreeMemory).
    #[inline]
    pub(super) fn release(&mut self) {
        let handle = std::mem::take(&mut self.handle);
        if handle != vk::DeviceMemory::null() {
            // SAFETY: the handle is live, and this value was its only owner.
            unsafe { self.gpu.device().free_memory(handle) };
            self.buffer = None;
        }
    }

    /// A range of whole atoms; the last may be cut off by the end of memory that is dedicated to a buffer or image of a
    /// program, which is allowed (VUID-VkMappedMemoryRange-size-01390).
    fn range(&self, (offset, size): (u64, u64)) -> vk::MappedMemoryRange<'static> {
        vk::MappedMemoryRange::default().memory(self.handle).offset(offset).size(size.min(self.size - offset))
    }
}

impl Drop for DeviceMemory {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

/// A buffer that one allocation is dedicated to. It is never bound: the drivers only need to know of it.
#[derive(Debug)]
struct DedicatedBuffer {
    handle: vk::Buffer,
    /// The size of the allocation in bytes.
    size: u64,
    gpu: VulkanRef,
}

impl DedicatedBuffer {
    fn create(gpu: &VulkanRef, type_index: u32, size: u64) -> Result<Self> {
        let BufferRequirements { buffer, size, memory_types } = gpu.device().create_buffer(size)?;
        let created = Self { handle: buffer, size, gpu: gpu.clone() };
        if memory_types & (1 << type_index) == 0 {
            return Err(Error::vulkan("vkGetBufferMemoryRequirements", vk::Result::ERROR_FEATURE_NOT_PRESENT));
        }
        Ok(created)
    }
}

impl Drop for DedicatedBuffer {
    fn drop(&mut self) {
        // SAFETY: created with this value, which is its only owner, and the memory that is dedicated to it was freed.
        unsafe { self.gpu.device().destroy_buffer(self.handle) };
    }
}
