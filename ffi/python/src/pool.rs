//! `Pool`: the native base of the Python class `vkgdr.pool.Pool`, which lends chunks of large blocks.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit, intern};
use vkgdr::{Error, PoolOptions};

use crate::allocation::Allocation;
use crate::device::{self, Vkgdr};
use crate::error::{Failure, Result, Size};
use crate::interpreter::{Detached, lock};
use crate::memory_view::MemoryView;
use crate::stream::{Stream, raw_stream, with_room};

/// The native base class of pools. Opened by `__init__` of the Python class.
#[pyclass(frozen, subclass, module = "vkgdr._vkgdr")]
pub(crate) struct Pool {
    open: OnceLock<Open>,
}

struct Open {
    pool: Detached<vkgdr::Pool>,
    owner: Py<Vkgdr>,
    /// The stream that memory is bound to.
    stream: Option<Stream>,
    /// The constructor of allocated memory, without `__init__`, and its argument, the class.
    new: Py<PyAny>,
    class: Py<PyTuple>,
}

impl Open {
    /// Allocates a view of `size` bytes, bound to the pool's stream if it has one.
    fn take(&self, py: Python<'_>, size: usize) -> Result<MemoryView> {
        let memory = match &self.stream {
            Some(stream) => with_room(py, || {
                // SAFETY: the view keeps the stream's object alive; for a bare handle that is the caller's obligation.
                Ok(unsafe { self.pool.allocate_on_raw(size, raw_stream(stream.handle)) }?)
            })?,
            // Detaching costs more than taking a chunk that is at hand.
            None => match self.pool.try_allocate(size) {
                Some(memory) => memory,
                None => with_room(py, || Ok(self.pool.allocate(size)?))?,
            },
        };
        let view = MemoryView::whole(Allocation::of(memory, false, Some(self.owner.clone_ref(py))));
        if let Some(stream) = &self.stream {
            lock(&view.live()?.kept).add_bound(stream.clone_ref(py));
        }
        Ok(view)
    }
}

impl Pool {
    fn open(&self) -> Result<&Open> {
        self.open.get().ok_or(Failure::Gone("the pool was never created"))
    }
}

fn pool<T>(slf: &Bound<'_, Pool>, read: impl FnOnce(&vkgdr::Pool) -> Result<T>) -> Result<T> {
    read(&slf.get().open()?.pool)
}

attributes! { Pool by pool:
    /// The number of free chunks, including pending ones that wait for the device.
    held_blocks: usize = |pool| pool.free_chunks();
    /// The number of chunks in use.
    active_blocks: usize = |pool| pool.used_chunks();
    /// The bytes that the pool has allocated from the drivers.
    managed_bytes: usize = |pool| pool.managed_bytes();
    /// The bytes in use, as requested.
    active_bytes: usize = |pool| pool.active_bytes();
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self { open: OnceLock::new() }
    }

    /// Creates the pool in the primary context of `owner`, or in the current context if it has none.
    fn _open(
        &self,
        owner: &Bound<'_, Vkgdr>,
        options: (String, Size, Size, u32, Size),
        stream: Option<Stream>,
        class_: &Bound<'_, PyType>,
    ) -> Result<()> {
        let (py, gpu) = (owner.py(), owner.get().gpu()?);
        let (kind, block_size, largest_chunk, leading_bits, alignment) = options;
        let value = leading_bits as usize;
        let out_of_range = Error::PoolOption { option: "leading_bits_in_bin_id", value, allowed: "0 to 6" };
        let classes = 1_u32.checked_shl(leading_bits).filter(|&classes| classes <= 64).ok_or(out_of_range)?;
        let options = PoolOptions::new(device::kind(&kind)?)
            .block_len(block_size.0)
            .largest_chunk(largest_chunk.0)
            .classes_per_doubling(classes)
            .alignment(alignment.0);
        let mut pool = py.detach(|| vkgdr::Pool::new(&gpu, options));
        if let Err(Error::PoolOption { option: option @ "block_len", .. }) = &mut pool {
            *option = "block_size";
        }
        let open = Open {
            pool: Detached::in_context(pool?, gpu.retains_context()),
            owner: owner.clone().unbind(),
            stream,
            new: class_.getattr("__new__")?.unbind(),
            class: PyTuple::new(py, [class_])?.unbind(),
        };
        self.open.set(open).map_err(|_| Failure::Invalid("the pool was created already".into()))
    }

    /// Allocates a chunk as the native half of a memory object of another class.
    fn _take(&self, py: Python<'_>, size: Size) -> Result<MemoryView> {
        self.open()?.take(py, size.0)
    }

    /// Allocate `size` bytes, at least 1, with undefined contents.
    ///
    /// `AllocationError` if memory is exhausted, even after unused blocks were freed.
    fn allocate<'py>(&self, py: Python<'py>, size: Size) -> Result<Bound<'py, PyAny>> {
        let open = self.open()?;
        let view = open.take(py, size.0)?;
        // As `Memory._over`, without a frame of Python.
        let memory = open.new.bind(py).call1(open.class.bind(py).clone())?;
        memory.setattr(intern!(py, "_view"), view)?;
        Ok(memory)
    }

    /// Return unused blocks to the drivers until at most `keep` bytes are managed; return the number of bytes.
    ///
    /// Memory that the device may still use is kept. The driver may wait for running kernels.
    #[pyo3(signature = (keep = Size(0)), text_signature = "($self, keep=0)")]
    fn trim(&self, py: Python<'_>, keep: Size) -> Result<usize> {
        self.open().map(|open| py.detach(|| open.pool.trim(keep.0)))
    }

    /// Wait until the device has finished with free memory, and return all unused blocks to the drivers.
    fn free_held(&self, py: Python<'_>) -> Result<()> {
        self.open().map(|open| py.detach(|| open.pool.release_unused()))
    }

    /// Return all unused blocks, and from now on return each block once it is unused.
    fn stop_holding(&self, py: Python<'_>) -> Result<()> {
        self.open().map(|open| py.detach(|| open.pool.disable_caching()))
    }

    /// The bytes that a chunk of a size occupies; None for 0, and for sizes that are dedicated allocations.
    fn _piece_size(&self, size: Size) -> Result<Option<usize>> {
        Ok(self.open()?.pool.chunk_len(size.0))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        let Some(open) = self.open.get() else { return Ok(()) };
        visit.call(&open.owner)?;
        open.stream.iter().try_for_each(|stream| visit.call(&stream.object))?;
        visit.call(&open.class)
    }
}
