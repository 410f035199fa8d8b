//! [`VulkanMemory`], and the program's access to the Vulkan device and its queue.
#![expect(unsafe_code, reason = "asks the device for its queue")]

use std::sync::PoisonError;

use ash::vk;

use super::Handles;
use crate::driver::fork;
use crate::{Memory, Result, Vkgdr};

/// The bytes of a memory or slice in Vulkan's memory object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VulkanMemory {
    /// The memory object. It can be exported as an opaque file descriptor, unless it was imported and the driver exports no
    /// imports. All of it is mapped if the CPU sees it.
    pub memory: vk::DeviceMemory,
    /// Where the bytes begin in it.
    pub offset: vk::DeviceSize,
}

impl Memory {
    /// The Vulkan memory object that has these bytes, and their place there. It is for buffers and images of the
    /// program's own, on the device of [`Vkgdr::vulkan_handles`]. `None` for memory that Vulkan did not allocate.
    ///
    /// The memory object is valid while the memory lives. A buffer that is bound to it must be created for export as
    /// `VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT`; whether its requirements suit the memory's type and offset is the
    /// program's to check. On a driver that shares only dedicated allocations, the memory is dedicated to a buffer of this
    /// crate, and no other can be bound: use an [`Allocator`](super::Allocator).
    #[must_use]
    pub fn vulkan_memory(&self) -> Option<VulkanMemory> {
        let memory = self.block().allocation().device_memory()?;
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
    /// On a handle without Vulkan the error that says what is missing; [`Error::Forked`](crate::Error::Forked).
    pub fn vulkan_handles(&self) -> Result<Handles> {
        fork::check()?;
        Ok(self.vulkan()?.device().handles())
    }

    /// Runs `work` with the first queue of the family in [`vulkan_handles`](Self::vulkan_handles), while no other thread is in
    /// a call of this method for the same device. A call within `work`, or by the logger of a line that `work` causes, would
    /// never return.
    ///
    /// # Errors
    ///
    /// Those of [`vulkan_handles`](Self::vulkan_handles).
    pub fn with_vulkan_queue<T>(&self, work: impl FnOnce(vk::Queue) -> T) -> Result<T> {
        let vulkan = self.vulkan()?;
        let Handles { device, queue_family, .. } = self.vulkan_handles()?;
        // No `Lock`: the program's code may do everything meanwhile, also what logs.
        let _turn = vulkan.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the device was made with queue 0 of this family: by this crate, or by the contract of `open_on`.
        let queue = unsafe { device.get_device_queue(queue_family, 0) };
        Ok(work(queue))
    }
}
