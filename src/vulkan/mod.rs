//! Vulkan's side of this crate's memory: buffers, images, semaphores and devices.
//!
//! CUDA and the CPU see the bytes of the buffers and images; programs use the Vulkan device of this crate, or bring
//! one.
//!
//! * [`Allocator`] is [gpu-allocator](https://docs.rs/gpu-allocator) with blocks that CUDA imports. A [`Buffer`] or
//!   [`Image`] made by it has a host pointer, a CUDA pointer and a Vulkan handle of the same bytes.
//! * [`Vkgdr::vulkan_handles`] lends the Vulkan device on which this crate allocates.
//! * [`Vkgdr::open_on`] allocates on a Vulkan device that the program made.
//! * [`Memory::vulkan_memory`] gives the `VkDeviceMemory` of any memory that Vulkan allocated.
//! * [`Semaphore`] is a timeline semaphore that queues, streams and the CPU signal and wait for.
//!
//! Neither driver orders the work of the other. Between work of a Vulkan queue and work of a CUDA stream, wait for the first
//! on the CPU, or by a semaphore. The CPU's own accesses need the flush and invalidate of [`Memory`], as with CUDA.
//!
//! This module needs the crate's feature `vulkan`, which is on by default.
#![expect(unsafe_code, reason = "uses a device that the caller keeps alive")]

mod allocator;
mod resources;
mod semaphore;
mod suballocator;

use std::sync::{Arc, PoisonError};

use ash::vk;
use cudarc::driver::sys::CUdevice;

use crate::device::gpu::{Gpu, VulkanGpu};
use crate::driver::context::PrimaryContext;
use crate::driver::cuda::{cuda, started};
use crate::driver::fork;
use crate::driver::vulkan::Device;
use crate::{Error, Memory, OpenFlags, Result, Vkgdr, flags};

pub use allocator::{Allocator, AllocatorOptions};
pub use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme};
pub use gpu_allocator::{AllocationReport, AllocationSizes, AllocatorReport, MemoryBlockReport, MemoryLocation};
pub use resources::{Buffer, Image};
pub use semaphore::Semaphore;

pub use crate::driver::vulkan::device::Handles;

/// The bytes of a memory or slice in Vulkan's memory object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VulkanMemory {
    /// The memory object. It can be exported as an opaque file descriptor, unless it was imported. All of it is mapped if the
    /// CPU sees it.
    pub memory: vk::DeviceMemory,
    /// Where the bytes begin in it.
    pub offset: vk::DeviceSize,
}

impl Memory {
    /// The Vulkan memory object that has these bytes, and their place there. It is for buffers and images of the
    /// program's own, on the device of [`Vkgdr::vulkan_handles`]. `None` for memory that Vulkan did not allocate.
    ///
    /// The memory object is valid while the memory lives. Drops and pools wait for CUDA's work alone: work of Vulkan's queues must
    /// have finished before the memory is dropped. A buffer that is bound to it must be created for export as
    /// `VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT`. The program must check whether its requirements suit the memory's
    /// type and offset.
    #[must_use]
    pub fn vulkan_memory(&self) -> Option<VulkanMemory> {
        let memory = self.allocation().device_memory()?;
        Some(VulkanMemory { memory, offset: self.offset() as vk::DeviceSize })
    }
}

impl Vkgdr {
    /// The Vulkan device on which this handle allocates. The device and its instance stay alive until the process ends, unless
    /// the program made them.
    ///
    /// The device of this crate has Vulkan 1.1, the extension `VK_KHR_external_memory_fd`, and one queue, for which
    /// [`with_vulkan_queue`](Self::with_vulkan_queue) takes turns. Where the driver has them, it also has
    /// `VK_EXT_memory_budget`, `VK_KHR_timeline_semaphore` with the feature `timelineSemaphore`, and
    /// `VK_KHR_external_semaphore_fd`; no other feature is enabled. Destroy what is made of it, but not the device and the
    /// instance.
    ///
    /// # Errors
    ///
    /// On a handle without Vulkan the error that says what is missing; [`Error::Forked`].
    pub fn vulkan_handles(&self) -> Result<Handles> {
        fork::check()?;
        Ok(self.vulkan()?.device().handles())
    }

    /// Runs `work` with the first queue of the family in [`vulkan_handles`](Self::vulkan_handles), while no other thread is in
    /// this method for the same device. A call within `work`, or by the logger of a line that `work` causes, would never
    /// return.
    ///
    /// # Errors
    ///
    /// Those of [`vulkan_handles`](Self::vulkan_handles).
    pub fn with_vulkan_queue<T>(&self, work: impl FnOnce(vk::Queue) -> T) -> Result<T> {
        let vulkan = self.vulkan()?;
        fork::check()?;
        // No `Lock`: the program's code may do everything meanwhile, also what logs.
        let _turn = vulkan.queue.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(work(vulkan.device().queue()))
    }

    /// Opens a GPU on a Vulkan device that the program made, instead of the one that this crate shares in the process.
    /// All memory of Vulkan is allocated on that device. So the program can bind it to its own buffers and images, and
    /// bring extensions and features of its choice.
    ///
    /// The CUDA device is the one with the same UUID. Allocations are made in its primary context, which the handle retains;
    /// with [`OpenFlags::CURRENT_CONTEXT`] in the current context, which must belong to that device.
    ///
    /// The instance must be for Vulkan 1.1 or later, and `VK_KHR_external_memory_fd` enabled on the device.
    ///
    /// # Errors
    ///
    /// [`Error::UnsuitableDevice`] when the instance or the device lacks one of these, [`Error::NoCudaDevice`] when CUDA does
    /// not know the GPU. [`Error::WrongDevice`] when the current context is another device's, and the errors of
    /// [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// The handles must be live and belong together. The device must have been made with queue 0 of the family, without flags of
    /// its queues. For a [`Semaphore`], the device's feature `timelineSemaphore` must be enabled. The instance and the device
    /// must stay alive until everything that was allocated by this handle and its clones is freed. That includes deferred
    /// frees, for which [`finish_deferred_frees`](Self::finish_deferred_frees) waits. Afterwards the handle may only be
    /// dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use vkgdr::vulkan::Handles;
    /// use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};
    /// # fn share(
    /// #     entry: vkgdr::ash::Entry,
    /// #     instance: vkgdr::ash::Instance,
    /// #     physical_device: vkgdr::ash::vk::PhysicalDevice,
    /// #     device: vkgdr::ash::Device,
    /// # ) -> vkgdr::Result<()> {
    ///
    /// let handles = Handles::new(entry, instance, physical_device, device, 0);
    /// // SAFETY: the device is destroyed after the memory was freed.
    /// let gpu = unsafe { Vkgdr::open_on(&handles, OpenFlags::empty()) }?;
    /// let memory = Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    /// println!("{:?}", memory.vulkan_memory());
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn open_on(handles: &Handles, flags: OpenFlags) -> Result<Self> {
        let flags = flags::checked(flags)?;
        let cuda = started()?;
        // SAFETY: by this function's contract.
        let program = unsafe { Device::adopt(handles) }?;
        let (uuid, number) = (program.physical.uuid, cuda_device(&program)?);
        let takes_current = flags.contains(OpenFlags::CURRENT_CONTEXT);
        let current = if takes_current { cuda.context_device()? } else { number };
        if current != number {
            return Err(Error::WrongDevice { current, expected: number });
        }
        let gpu = Gpu::without_vulkan(number, uuid)?;
        let vulkan = Arc::new(VulkanGpu::new(program));
        let primary = if takes_current { None } else { Some(PrimaryContext::retain(number)?) };
        Self::with_vulkan(gpu, number, Ok(vulkan), flags, primary)
    }
}

/// The CUDA device with the UUID of a Vulkan device.
fn cuda_device(device: &Device) -> Result<CUdevice> {
    let cuda = cuda()?;
    let (uuid, devices) = (device.physical.uuid, cuda.device_count()?);
    for number in 0..devices {
        // A driver that does not report a UUID leaves zeroes, which must not match each other.
        if uuid != [0; 16] && cuda.device_uuid(number)? == uuid {
            return Ok(number);
        }
    }
    Err(Error::NoCudaDevice { device: device.physical.name.clone(), uuid, devices })
}
