//! Handles of Vulkan devices that programs made: [`Vkgdr::open_on`], and [`Vkgdr::finish_deferred_frees`] before the device's end.
#![expect(unsafe_code, reason = "uses a device that the caller keeps alive")]

use std::sync::Arc;

use cudarc::driver::sys::CUdevice;

use super::Handles;
use crate::device::gpu::{Gpu, VulkanGpu};
use crate::driver::context::PrimaryContext;
use crate::driver::cuda::cuda;
use crate::driver::vulkan::Device;
use crate::{Error, OpenFlags, Result, Vkgdr};

impl Vkgdr {
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
    /// not know the GPU, [`Error::WrongDevice`] when the current context is another device's, and those of
    /// [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// The handles must be live and belong together, and the device must have been made with queue 0 of the family, without
    /// flags of its queues. The instance and the device must stay alive until everything that was
    /// allocated by this handle and its clones is freed, deferred frees included, for which
    /// [`finish_deferred_frees`](Self::finish_deferred_frees) waits. Afterwards the handle may only be dropped.
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
        let flags = flags.checked()?;
        let cuda = cuda()?;
        cuda.init()?;
        // SAFETY: by this function's contract.
        let program = unsafe { Device::adopt(handles) }?;
        let (uuid, number) = (program.physical.uuid, cuda_device(&program)?);
        let takes_current = flags.contains(OpenFlags::CURRENT_CONTEXT);
        if takes_current {
            let current = cuda.context_device()?;
            if current != number {
                return Err(Error::WrongDevice { current, expected: number });
            }
        }
        let gpu = Gpu::without_vulkan(number, uuid)?;
        let vulkan = Arc::new(VulkanGpu::new(program));
        let primary = if takes_current { None } else { Some(PrimaryContext::retain(number)?) };
        Self::with_vulkan(gpu, number, Ok(vulkan), flags, primary)
    }

    /// Waits for the device's work that holds up deferred frees of this GPU, and releases them. Call it before
    /// destroying a Vulkan device that the program made ([`open_on`](Self::open_on)). Two kinds of frees may remain, which
    /// [`deferred_frees`](Self::deferred_frees) counts: those deferred by a stream capture, until
    /// [`collect`](Self::collect) finds that it has ended, and those that another thread is waiting for.
    pub fn finish_deferred_frees(&self) {
        self.gpu().retired().drain(None);
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
