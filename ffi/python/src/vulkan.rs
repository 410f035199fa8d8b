//! What is shared with Vulkan: its handles as numbers, and `Semaphore`.
#![expect(unsafe_code, reason = "uses what the caller owns: values of semaphores, streams")]

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use vkgdr::ash::vk::{Handle as _, Queue};
use vkgdr::vulkan;

use crate::device::{self, Vkgdr};
use crate::error::{Failure, Result};
use crate::interpreter::{self, Detached, lock};
use crate::stream::{Stream, current_stream};

#[pymethods]
impl Vkgdr {
    /// The Vulkan device that allocates, as numbers, for other libraries; an error if Vulkan is missing.
    #[getter]
    fn vulkan_handles(slf: &Bound<'_, Self>) -> Result<Py<PyAny>> {
        let (py, handles) = (slf.py(), slf.get().gpu()?.vulkan_handles()?);
        let (instance, device) = (handles.instance.handle(), handles.device.handle());
        let numbers = (instance.as_raw(), handles.physical_device.as_raw(), device.as_raw(), handles.queue_family);
        device::made(py, ("vkgdr.typing", "Handles"), numbers)
    }

    /// Return ``work(queue)``, called with the ``VkQueue`` of `vulkan_handles` while no other thread has it.
    ///
    /// A call within `work` would never return. This package itself submits nothing to the queue.
    fn with_vulkan_queue(&self, py: Python<'_>, work: Py<PyAny>) -> Result<Py<PyAny>> {
        // Detached, since it waits for its turn, and so may the end of the handle, if it is the last one then.
        let call = |queue: Queue| Python::attach(|py| work.call1(py, (queue.as_raw(),)));
        Ok(self.run(py, |gpu| gpu.with_vulkan_queue(call))???)
    }
}

/// The native base class of `vkgdr.vulkan.Semaphore`.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct Semaphore {
    /// None once closed. A call clones it, so that it lives until the call ends. Its drop waits for the context.
    open: Detached<Mutex<Option<Arc<vulkan::Semaphore>>>>,
}

impl Semaphore {
    /// To be dropped detached from the interpreter, since the last reference's drop waits for the context.
    fn live(&self) -> Result<Arc<vulkan::Semaphore>> {
        lock(&self.open).clone().ok_or(Failure::Gone("the semaphore was closed"))
    }
}

#[pymethods]
impl Semaphore {
    #[new]
    fn new(owner: &Bound<'_, Vkgdr>, value: u64) -> Result<Self> {
        let (py, gpu) = (owner.py(), owner.get().gpu()?);
        let semaphore = py.detach(|| vulkan::Semaphore::new(&gpu, value))?;
        let open = Mutex::new(Some(Arc::new(semaphore)));
        Ok(Self { open: Detached::in_context(open, gpu.retains_context()) })
    }

    /// The ``VkSemaphore``, for a queue; valid until `close`.
    #[getter]
    fn handle(&self) -> Result<u64> {
        Ok(self.live()?.handle().as_raw())
    }

    /// The present value.
    #[getter]
    fn value(&self, py: Python<'_>) -> Result<u64> {
        let semaphore = self.live()?;
        Ok(py.detach(move || semaphore.value())?)
    }

    /// Raise the value by the CPU, to more than the present one and less than what a queue or stream will signal.
    fn signal(&self, py: Python<'_>, value: u64) -> Result<()> {
        let semaphore = self.live()?;
        // SAFETY: `vkgdr.vulkan.Semaphore.signal` requires a value that grows.
        Ok(py.detach(move || unsafe { semaphore.signal(value) })?)
    }

    /// Wait on this thread for a value or more; return False if `timeout`, in seconds, is over.
    #[pyo3(signature = (value, timeout = None))]
    fn wait(&self, py: Python<'_>, value: u64, timeout: Option<f64>) -> Result<bool> {
        // Looked up in each slice: a close on another thread ends the wait.
        let wait = |time| -> Result<bool> { Ok(self.live()?.wait(value, time)?) };
        interpreter::wait(py, timeout, wait, |reached| matches!(reached, Ok(false)))?
    }

    /// Raises the value after the earlier work of a stream of the current context.
    fn signal_on(&self, py: Python<'_>, stream: Stream, value: u64) -> Result<()> {
        let semaphore = self.live()?;
        // SAFETY: `vkgdr.vulkan.Semaphore.signal_on` requires a value that grows.
        Ok(py.detach(move || unsafe { semaphore.signal_on(&current_stream(stream.handle)?, value) })?)
    }

    /// Lets the later work of a stream of the current context wait for a value.
    fn wait_on(&self, py: Python<'_>, stream: Stream, value: u64) -> Result<()> {
        let semaphore = self.live()?;
        Ok(py.detach(move || semaphore.wait_on(&current_stream(stream.handle)?, value))?)
    }

    /// Wait for all work of the context, and destroy the semaphore. A second call does nothing.
    ///
    /// Vulkan's work that uses it must have finished. A stream that still waits for a value makes this wait for ever.
    fn close(&self, py: Python<'_>) {
        let semaphore = lock(&self.open).take();
        py.detach(|| drop(semaphore));
    }
}
