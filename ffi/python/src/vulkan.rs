//! What is shared with other libraries: Vulkan's handles as numbers, `Semaphore`, and `Mapping`, the host view of their memory.
#![expect(unsafe_code, reason = "uses what the caller owns: values of semaphores, streams, memory")]

use std::os::fd::IntoRawFd;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use vkgdr::ash::vk::Handle as _;
use vkgdr::{MappingFlags, Memory, StreamRef, vulkan};

use crate::base::array_interface;
use crate::error::{Failure, Result, Size, in_bytes, number};
use crate::handle::{self, Handle};
use crate::interpreter::{self, Detached, duration, lock};
use crate::stream::raw_stream;

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

/// The native half of `vkgdr.vulkan.Semaphore`.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct Semaphore {
    /// None once closed. A call clones it, so that it lives until the call ends. Its drop waits for the context.
    open: Detached<Mutex<Option<Arc<vulkan::Semaphore>>>>,
}

impl Semaphore {
    fn live(&self) -> Result<Arc<vulkan::Semaphore>> {
        lock(&self.open).clone().ok_or(Failure::Gone("the semaphore was closed"))
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
        interpreter::wait(py, duration(seconds)?, wait, |reached| matches!(reached, Ok(false)))?
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
        let semaphore = lock(&self.open).take();
        py.detach(|| drop(semaphore));
    }
}

/// CUDA memory of another library, mapped for the CPU: NumPy's array interface, and both addresses.
#[pyclass(frozen, module = "vkgdr")]
pub(crate) struct Mapping {
    // The order of the fields unmaps the memory before its owner may free it.
    memory: Detached<Memory>,
    #[pyo3(get)]
    device_ptr: u64,
    #[pyo3(get)]
    host_ptr: usize,
    #[pyo3(get)]
    nbytes: usize,
    #[pyo3(get)]
    is_cached: bool,
    #[pyo3(get)]
    readonly: bool,
    /// An object that keeps the memory alive.
    keep: Option<Py<PyAny>>,
}

#[pymethods]
impl Mapping {
    #[new]
    #[pyo3(signature = (owner, device_ptr, size, *, keep = None, readonly = false, force_pcie = false))]
    fn new(
        owner: &Bound<'_, PyAny>,
        device_ptr: &Bound<'_, PyAny>,
        size: Size,
        keep: Option<Py<PyAny>>,
        readonly: bool,
        force_pcie: bool,
    ) -> Result<Self> {
        let (py, gpu) = (owner.py(), handle::gpu_of(owner)?);
        let address: u64 = number(device_ptr, "a device address")?;
        let flags = if force_pcie { MappingFlags::FORCE_PCIE } else { MappingFlags::empty() };
        // SAFETY: plain bytes to Python, whose memory `keep` or the caller keeps alive.
        let memory = py.detach(|| unsafe { Memory::map_existing_with(&gpu, address, size.0, flags) })?;
        Ok(Self {
            device_ptr: memory.device_ptr(),
            host_ptr: memory.host_ptr().map_or(0, |pointer| pointer.addr().get()),
            nbytes: memory.len(),
            is_cached: memory.is_cached(),
            memory: Detached::new(memory),
            readonly,
            keep,
        })
    }

    const fn __len__(&self) -> usize {
        self.nbytes
    }

    fn is_current(&self, py: Python<'_>) -> Result<bool> {
        Ok(py.detach(|| self.memory.is_current())?)
    }

    /// Orders the CPU's writes before its later stores, as the device sees them.
    fn flush(&self) -> Result<()> {
        Ok(self.memory.flush(..)?)
    }

    fn invalidate(&self) -> Result<()> {
        Ok(self.memory.invalidate(..)?)
    }

    /// The descriptor, the offset and the size for `ibv_reg_dmabuf_mr`.
    fn dma_buf(&self, py: Python<'_>) -> Result<(i32, u64, usize)> {
        let dma_buf = py.detach(|| self.memory.dma_buf())?;
        Ok((dma_buf.fd.into_raw_fd(), dma_buf.offset, dma_buf.len))
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        array_interface(py, self.nbytes, "|u1", self.host_ptr as u64, self.readonly)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.keep.as_ref().map_or(Ok(()), |keep| visit.call(keep))
    }

    fn __repr__(&self) -> String {
        let &Self { device_ptr, host_ptr, nbytes, .. } = self;
        format!("<vkgdr.Mapping: {} at {host_ptr:#x}, device address {device_ptr:#x}>", in_bytes(nbytes))
    }
}
