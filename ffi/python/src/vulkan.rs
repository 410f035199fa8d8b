//! Vulkan's handles as numbers, for other libraries, and `Semaphore`.
#![expect(unsafe_code, reason = "raises semaphores to the caller's values, and uses streams that the caller owns")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use vkgdr::ash::vk::Handle as _;
use vkgdr::{StreamRef, vulkan};

use crate::detached::Detached;
use crate::error::{Failure, Result};
use crate::handle::{self, Handle};
use crate::interruptible::{self, duration};
use crate::memory_view::MemoryView;
use crate::raw_stream::raw_stream;

#[pymethods]
impl Handle {
    /// The instance, the physical device, the device, and the family of its queue.
    fn vulkan_handles(&self) -> Result<(u64, u64, u64, u32)> {
        let handles = self.gpu()?.vulkan_handles()?;
        let (instance, device) = (handles.instance.handle(), handles.device.handle());
        Ok((instance.as_raw(), handles.physical_device.as_raw(), device.as_raw(), handles.queue_family))
    }

    /// Calls `work` with the queue, while no other thread is in this method.
    fn with_vulkan_queue(&self, py: Python<'_>, work: Py<PyAny>) -> Result<Py<PyAny>> {
        let gpu = self.gpu()?;
        // Detached, since it waits for its turn, and so may the end of the handle, if it is the last one then.
        let result =
            py.detach(move || gpu.with_vulkan_queue(|queue| Python::attach(|py| work.call1(py, (queue.as_raw(),)))));
        Ok(result??)
    }

    fn supports_semaphores(&self) -> Result<bool> {
        Ok(self.gpu()?.supports_semaphores())
    }
}

#[pymethods]
impl MemoryView {
    /// The `VkDeviceMemory` and the place of the first byte in it; None for memory that Vulkan did not allocate.
    #[getter]
    fn vulkan_memory(&self) -> Result<Option<(u64, u64)>> {
        let (start, len) = (self.start(), self.len());
        self.live()?.briefly(|storage| {
            let Some(memory) = storage.memory() else { return Ok(None) };
            let place = memory.slice(start..start + len)?.vulkan_memory();
            Ok(place.map(|place| (place.memory.as_raw(), place.offset)))
        })
    }
}

/// The native half of `vkgdr.vulkan.Semaphore`.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct Semaphore {
    /// None once closed. A call clones it, so that it lives until the call ends. Its drop waits for the context.
    open: Detached<Mutex<Option<Arc<vulkan::Semaphore>>>>,
}

impl Semaphore {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<vulkan::Semaphore>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Result<Arc<vulkan::Semaphore>> {
        self.slot().clone().ok_or(Failure::Gone("the semaphore was closed"))
    }

    /// Runs `work` detached from the interpreter, which the last reference's drop needs: it waits for the context.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&vulkan::Semaphore) -> vkgdr::Result<T> + Send,
    ) -> Result<T> {
        let semaphore = self.live()?;
        py.detach(move || Ok(work(&semaphore)?))
    }
}

#[pymethods]
impl Semaphore {
    #[new]
    fn new(owner: &Bound<'_, PyAny>, value: u64) -> Result<Self> {
        let (py, gpu) = (owner.py(), handle::gpu_of(owner)?);
        let semaphore = py.detach(|| vulkan::Semaphore::new(&gpu, value))?;
        let open = Mutex::new(Some(Arc::new(semaphore)));
        Ok(Self { open: Detached::in_context(open, gpu.retains_context()) })
    }

    /// The `VkSemaphore`.
    #[getter]
    fn handle(&self) -> Result<u64> {
        Ok(self.live()?.handle().as_raw())
    }

    #[getter]
    fn value(&self, py: Python<'_>) -> Result<u64> {
        self.with(py, vulkan::Semaphore::value)
    }

    fn signal(&self, py: Python<'_>, value: u64) -> Result<()> {
        // SAFETY: `vkgdr.vulkan.Semaphore.signal` requires a value that grows.
        self.with(py, |semaphore| unsafe { semaphore.signal(value) })
    }

    /// Waits for a value, at most `seconds`, or without a limit if they are None. Returns whether the value was reached.
    fn wait(&self, py: Python<'_>, value: u64, seconds: Option<f64>) -> Result<bool> {
        // Looked up in each slice: a close on another thread ends the wait.
        let wait = |time| -> Result<bool> { Ok(self.live()?.wait(value, time)?) };
        interruptible::wait(py, duration(seconds)?, wait, |reached| matches!(reached, Ok(false)))?
    }

    /// Raises the value after the earlier work of a stream of the current context.
    fn signal_on(&self, py: Python<'_>, stream: u64, value: u64) -> Result<()> {
        self.with(py, |semaphore| {
            // SAFETY: every Python function that takes a stream requires its caller to keep the stream alive.
            let stream = unsafe { StreamRef::in_current_context(raw_stream(stream)) }?;
            // SAFETY: `vkgdr.vulkan.Semaphore.signal_on` requires a value that grows.
            unsafe { semaphore.signal_on(&stream, value) }
        })
    }

    /// Lets the later work of a stream of the current context wait for a value.
    fn wait_on(&self, py: Python<'_>, stream: u64, value: u64) -> Result<()> {
        self.with(py, |semaphore| {
            // SAFETY: as for `signal_on`.
            let stream = unsafe { StreamRef::in_current_context(raw_stream(stream)) }?;
            semaphore.wait_on(&stream, value)
        })
    }

    /// Waits for the context's work, and destroys the semaphore. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        let semaphore = self.slot().take();
        py.detach(|| drop(semaphore));
    }
}
