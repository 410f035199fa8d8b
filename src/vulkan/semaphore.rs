//! [`Semaphore`]: a timeline semaphore that Vulkan's queues, CUDA's streams and the CPU share.
#![expect(unsafe_code, reason = "hands its live handles to the drivers")]

use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use cudarc::driver::sys::CUexternalSemaphore;

use crate::device::gpu::VulkanGpu;
use crate::driver::Handle;
use crate::driver::context::Context;
use crate::driver::cuda::{Cuda, cuda};
use crate::driver::fork;
use crate::retire::Fence;
use crate::{Error, Result, StreamRef, Vkgdr};

/// A timeline semaphore: a number that only grows. Vulkan's queues, CUDA's streams and the CPU can each raise it and wait for
/// it. So the work of a queue and of a stream is ordered without the CPU.
///
/// It belongs to the handle's primary context if the handle retains that, otherwise to the context that was current when it was
/// made.
///
/// A drop waits for all work of that context, unless that is a primary one that was reset. Work of Vulkan's queues that uses the
/// semaphore must have finished then. Every value that a stream waits for must be signalled, or the drop waits without end. Drop
/// it before a context of `cuCtxCreate` is destroyed.
///
/// # Examples
///
/// ```no_run
/// use vkgdr::vulkan::Semaphore;
/// use vkgdr::{OpenFlags, StreamRef, Vkgdr};
///
/// # fn order(stream: &StreamRef) -> vkgdr::Result<()> {
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let semaphore = Semaphore::new(&gpu, 0)?;
/// // A queue signals 1, by `VkTimelineSemaphoreSubmitInfo` with `semaphore.handle()`; then the stream continues.
/// semaphore.wait_on(stream, 1)?;
/// // SAFETY: 2 is more than any value before.
/// unsafe { semaphore.signal_on(stream, 2) }?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Semaphore {
    // Released before Vulkan's.
    external: External,
    vulkan: Timeline,
}

/// Vulkan's side. Destroyed when dropped.
#[derive(Debug)]
struct Timeline {
    handle: vk::Semaphore,
    gpu: Arc<VulkanGpu>,
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: created with this value, which is its only owner.
        unsafe { self.gpu.device().destroy_semaphore(self.handle) };
    }
}

/// CUDA's side. Destroyed in its context when dropped, or retired if that cannot be waited for.
#[derive(Debug)]
struct External {
    handle: Handle<CUexternalSemaphore>,
    context: Context,
    /// May be what keeps the context alive.
    owner: Vkgdr,
}

impl External {
    /// Waits for the context, and destroys the semaphore. On an error nothing was destroyed.
    fn release(&mut self) -> Result<()> {
        let _guard = match self.context.enter() {
            // The semaphore went with it.
            Err(error) if error.context_is_gone() => return Ok(()),
            entered => entered?,
        };
        self.context.finish()?;
        // SAFETY: the handle is live, this value is its only owner, and the context, which is current, has finished its work.
        if let Err(error) = unsafe { cuda()?.semaphore_destroy(self.handle.0) } {
            log::warn!("releasing a semaphore: {error}");
        }
        Ok(())
    }
}

impl Drop for External {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        if let Err(error) = self.release() {
            let later = Self { owner: self.owner.clone(), ..*self };
            self.owner.gpu().retired().push(Fence::of_context(self.context), move || {
                drop(later);
                Ok(())
            });
            log::warn!("the release of a semaphore is deferred: {error}");
        }
    }
}

impl Vkgdr {
    /// Whether this GPU's drivers share timeline semaphores, as far as Vulkan says. Not in a forked child.
    #[must_use]
    pub fn supports_semaphores(&self) -> bool {
        !fork::is_forked() && self.vulkan().is_ok_and(|vulkan| vulkan.device().shares_semaphores())
    }
}

impl Semaphore {
    /// A semaphore with a value.
    ///
    /// The Vulkan device must have `VK_KHR_external_semaphore_fd` and the feature `timelineSemaphore`
    /// ([`Vkgdr::supports_semaphores`]). On one that the program made, both must be enabled: see [`Vkgdr::open_on`].
    ///
    /// # Errors
    ///
    /// [`Error::Extension`] when the device lacks the extension; on a handle without Vulkan, the error that says what is
    /// missing. `CUDA_ERROR_INVALID_CONTEXT` when a context must be current and none is, [`Error::WrongDevice`] when it is
    /// another device's. [`Error::Forked`], and the errors of `vkCreateSemaphore`, `vkGetSemaphoreFdKHR` and
    /// `cuImportExternalSemaphore`.
    pub fn new(owner: &Vkgdr, value: u64) -> Result<Self> {
        fork::check()?;
        let gpu = owner.vulkan()?.clone();
        if !gpu.device().shares_semaphores() {
            let device = gpu.device().physical.name.clone();
            return Err(Error::Extension { device, extension: "VK_KHR_external_semaphore_fd for timeline semaphores" });
        }
        let context = owner.allocation_context()?;
        let handle = gpu.device().create_timeline(value)?;
        let vulkan = Timeline { handle, gpu };
        // SAFETY: just created for export.
        let fd = unsafe { vulkan.gpu.device().export_semaphore(handle) }?;
        let owner = owner.clone();
        let external = context.run(move || {
            // SAFETY: a descriptor of a timeline semaphore.
            let handle = Handle(unsafe { cuda()?.semaphore_import(fd.as_raw_fd()) }?);
            // After success the driver owns the descriptor (CUDA driver API, cuImportExternalSemaphore).
            let _ = fd.into_raw_fd();
            Ok(External { handle, context, owner })
        })?;
        Ok(Self { external, vulkan })
    }

    /// Vulkan's handle, valid while this value lives.
    #[must_use]
    pub const fn handle(&self) -> vk::Semaphore {
        self.vulkan.handle
    }

    /// The current value.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and those of `vkGetSemaphoreCounterValueKHR`.
    pub fn value(&self) -> Result<u64> {
        // SAFETY: live as long as this value.
        unsafe { self.vulkan.gpu.device().semaphore_value(self.vulkan.handle) }
    }

    /// Raises the value by the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and those of `vkSignalSemaphoreKHR`.
    ///
    /// # Safety
    ///
    /// The value must be more than the current one, and less than those of signals submitted to a queue or stream
    /// (VUID-VkSemaphoreSignalInfo-value-03258 to 03260).
    pub unsafe fn signal(&self, value: u64) -> Result<()> {
        // SAFETY: live as long as this value, and by this method's contract.
        unsafe { self.vulkan.gpu.device().signal_semaphore(self.vulkan.handle, value) }
    }

    /// Waits on the CPU until the value is at least `value`. Returns false if that takes longer than `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and those of `vkWaitSemaphoresKHR`.
    pub fn wait(&self, value: u64, timeout: Duration) -> Result<bool> {
        // SAFETY: live as long as this value.
        unsafe { self.vulkan.gpu.device().wait_semaphore(self.vulkan.handle, value, timeout) }
    }

    /// Raises the value once a stream has finished the work that was submitted to it before. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context, [`Error::Forked`], and those of
    /// `cuSignalExternalSemaphoresAsync`.
    ///
    /// # Safety
    ///
    /// The value must be more than any that the semaphore has by then. The stream must be alive.
    pub unsafe fn signal_on(&self, stream: &StreamRef, value: u64) -> Result<()> {
        // SAFETY: both live in the entered context, and by this method's contract.
        self.within(stream, |cuda| unsafe { cuda.semaphore_signal(self.external.handle.0, value, stream.raw()) })
    }

    /// Makes the later work of a stream wait until the value is at least `value`. Does not wait itself.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context, [`Error::Forked`], and those of
    /// `cuWaitExternalSemaphoresAsync`.
    pub fn wait_on(&self, stream: &StreamRef, value: u64) -> Result<()> {
        // SAFETY: both live in the entered context, the stream by the contract of `StreamRef`.
        self.within(stream, |cuda| unsafe { cuda.semaphore_wait(self.external.handle.0, value, stream.raw()) })
    }

    fn within(&self, stream: &StreamRef, work: impl FnOnce(&Cuda) -> Result<()>) -> Result<()> {
        fork::check()?;
        let context = self.external.context;
        StreamRef::checked(stream.raw(), stream.context(), context)?;
        context.run(|| work(cuda()?))
    }
}
