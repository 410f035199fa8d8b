//! `Ring`: messages to a running kernel, and answers from it.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use pyo3::{PyTraverseError, PyVisit};
use vkgdr::{Error, in_bytes};

use crate::base::HostBuffer;
use crate::device::Vkgdr;
use crate::error::{Failure, Result, Size};
use crate::interpreter::{self, Detached, lock};
use crate::stream::{Stream, raw_stream};

/// Messages to a kernel that keeps running, and its answers.
///
/// A timeout is in seconds, after which `TimeoutError` is raised; None waits for ever. `EOFError` means that the ring was
/// aborted, in pushes also that it is closed, in pops that the kernel has closed it. Messages beyond `max_message` are an
/// `InvalidArgumentError`.
#[pyclass(frozen, module = "vkgdr.ring")]
pub(crate) struct Ring {
    // The order of the fields: the ring waits for its stream, whose object lives longer.
    ring: Detached<vkgdr::ring::Ring>,
    stream: Mutex<Option<Stream>>,
    /// Held over a bind, so that the stream that is kept is the bound one.
    binding: Mutex<()>,
    /// The kernel's argument.
    #[pyo3(get)]
    device_ptr: u64,
    /// The kind of memory that the messages are in.
    #[pyo3(get)]
    kind: String,
    /// The bytes of the longest message.
    #[pyo3(get)]
    max_message: usize,
}

/// Repeats a wait of the ring until it ends, or the time is over.
fn wait<T: Send>(py: Python<'_>, limit: Option<f64>, work: impl Fn(Duration) -> vkgdr::Result<T> + Sync) -> Result<T> {
    Ok(interpreter::wait(py, limit, work, |result| matches!(result, Err(Error::RingTimeout { .. })))??)
}

#[pymethods]
impl Ring {
    #[new]
    fn new(owner: &Bound<'_, Vkgdr>, messages: Size, answers: Size) -> Result<Self> {
        let (py, gpu) = (owner.py(), owner.get().gpu()?);
        let ring = py.detach(|| vkgdr::ring::Ring::new(&gpu, messages.0, answers.0))?;
        Ok(Self {
            device_ptr: ring.device_ptr(),
            kind: ring.kind().to_string(),
            max_message: ring.max_message(),
            ring: Detached::in_context(ring, gpu.retains_context()),
            stream: Mutex::default(),
            binding: Mutex::default(),
        })
    }

    /// Binds the ring to its kernel's stream, of any library, and keeps the stream's object alive. Then the end of the
    /// context's only ring waits for no other kernel.
    fn bind_stream(&self, py: Python<'_>, stream: Stream) -> Result<()> {
        let _before = py.detach(|| {
            let _turn = lock(&self.binding);
            // SAFETY: the caller has its object, which is kept then; a bare handle is the caller's to keep.
            unsafe { self.ring.bind_raw_stream(raw_stream(stream.handle)) }?;
            Ok::<_, Failure>(lock(&self.stream).replace(stream))
        })?;
        Ok(())
    }

    /// Push the bytes of an object with the buffer protocol. Return whether there was room.
    fn try_push(&self, message: &Bound<'_, PyAny>) -> Result<bool> {
        let buffer = HostBuffer::new(message, false, false)?;
        Ok(message.py().detach(|| self.ring.try_push(buffer.bytes()))?)
    }

    /// Push a sequence of such objects while there is room. Return how many were pushed.
    fn push_all(&self, py: Python<'_>, messages: Vec<Bound<'_, PyAny>>) -> Result<usize> {
        let buffers: Vec<_> =
            messages.iter().map(|message| HostBuffer::new(message, false, false)).collect::<Result<_>>()?;
        let bytes: Vec<_> = buffers.iter().map(HostBuffer::bytes).collect();
        Ok(py.detach(|| self.ring.try_push_all(&bytes))?)
    }

    /// Push the bytes of an object with the buffer protocol. Wait for room.
    #[pyo3(signature = (message, timeout = None))]
    fn push(&self, message: &Bound<'_, PyAny>, timeout: Option<f64>) -> Result<()> {
        let buffer = HostBuffer::new(message, false, false)?;
        wait(message.py(), timeout, |time| self.ring.push(buffer.bytes(), time))
    }

    /// Return the next answer; None if no answer has arrived yet.
    fn try_pop(&self, py: Python<'_>) -> Result<Option<Vec<u8>>> {
        let mut answer = Vec::new();
        Ok(py.detach(|| self.ring.try_pop(&mut answer))?.then_some(answer))
    }

    /// Return the next answer. Wait for it.
    #[pyo3(signature = (timeout = None))]
    fn pop(&self, py: Python<'_>, timeout: Option<f64>) -> Result<Vec<u8>> {
        wait(py, timeout, |time| {
            let mut answer = Vec::new();
            self.ring.pop(&mut answer, time)?;
            Ok(answer)
        })
    }

    /// Ends the messages.
    fn close(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.ring.close())?)
    }

    /// Ends the kernel, and all pushes and pops.
    fn abort(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.ring.abort())?)
    }

    /// What has passed through the ring, by name.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let stats = self.ring.stats()?;
        let all = [
            ("pushed", stats.pushed),
            ("pushed_bytes", stats.pushed_bytes),
            ("publications", stats.publications),
            ("full", stats.full),
            ("unread_bytes", stats.unread_bytes),
            ("popped", stats.popped),
            ("popped_bytes", stats.popped_bytes),
            ("returns", stats.returns),
            ("empty", stats.empty),
        ];
        Ok(all.into_py_dict(py)?)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Aborts the kernel, which is the parent's in a forked child.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> Result<()> {
        if vkgdr::is_forked() { Ok(()) } else { self.abort(py) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // As for `MemoryView`.
        if vkgdr::is_forked() {
            Ok(())
        } else {
            lock(&self.stream).iter().try_for_each(|stream| stream.traverse(&visit))
        }
    }

    fn __repr__(&self) -> String {
        format!("<vkgdr.ring.Ring: messages of up to {}, {:#x}>", in_bytes(self.max_message), self.device_ptr)
    }
}
