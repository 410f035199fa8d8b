//! The methods of `MemoryView` that Python calls.
#![expect(unsafe_code, reason = "uses descriptors and sockets that the caller owns")]

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};
use vkgdr::{AllocateOptions, DropPolicy, Memory, ipc};

use super::{Held, MemoryView};
use crate::allocation::Allocation;
use crate::error::{Failure, Result, Size};
use crate::event::{Event, make_room};
use crate::fallible_vec::{copied, zeroes};
use crate::handle::{self, Handle, MemoryType};
use crate::host_buffer::HostBuffer;
use crate::storage::Storage;

#[pymethods]
impl MemoryView {
    /// Allocates in the primary context of `owner`, a `Vkgdr`, or in the current context if it has none. If memory of the
    /// first kind is exhausted, tries once more after a garbage collection, before the other kinds.
    #[staticmethod]
    #[pyo3(signature = (owner, size, kinds, alignment, readonly, by_hand, dma_buf = false))]
    fn allocate(
        owner: &Bound<'_, PyAny>,
        size: Size,
        kinds: &Bound<'_, PyAny>,
        alignment: Size,
        readonly: bool,
        by_hand: bool,
        dma_buf: bool,
    ) -> Result<Self> {
        let (py, gpu) = (owner.py(), handle::gpu_of(owner)?);
        let ((kind, others), alignment) = (handle::kinds(kinds)?, alignment.0);
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Failure::Invalid(format!("alignment must be 0 or a power of two, not {alignment}")));
        }
        let with_dma_buf = |options: AllocateOptions| if dma_buf { options.with_dma_buf() } else { options };
        let first = with_dma_buf(AllocateOptions::new(kind));
        let options = first.fallback(others.iter().copied());
        let memory = match py.detach(|| Memory::allocate_with(&gpu, size.0, first)) {
            Err(error) if error.is_exhaustion() => {
                make_room(py)?;
                py.detach(|| Memory::allocate_with(&gpu, size.0, options))?
            }
            Err(_) if !others.is_empty() => py.detach(|| Memory::allocate_with(&gpu, size.0, options))?,
            other => other?,
        };
        let used = Allocation::of(memory, readonly);
        let allocation = used.allocation();
        let device = allocation.device_ptr()?;
        let misaligned = |address: u64| alignment > 1 && !address.is_multiple_of(alignment as u64);
        let host = allocation.host_ptr()?.unwrap_or(0);
        if misaligned(device) || misaligned(host as u64) {
            return Err(Failure::Invalid(format!(
                "no memory aligned to {alignment} bytes: device address is {device:#x}, host address is {host:#x}"
            )));
        }
        Ok(Self::whole(used, Some(owner.clone().unbind()), readonly, by_hand))
    }

    /// A view that is freed from the start.
    #[staticmethod]
    fn never() -> Self {
        let (held, freed) = (Mutex::new(None), AtomicBool::new(true));
        Self {
            allocation: Allocation::never(),
            held,
            freed,
            offset: 0,
            len: 0,
            readonly: false,
            root: false,
            by_hand: false,
        }
    }

    /// An empty view; allocates nothing.
    #[staticmethod]
    fn empty(owner: &Bound<'_, PyAny>, kind: &str) -> Result<Self> {
        let empty = Allocation::empty(handle::kind(kind)?, handle::gpu_of(owner)?.device());
        Ok(Self::whole(empty, Some(owner.clone().unbind()), false, false))
    }

    #[staticmethod]
    fn import_fd(owner: &Bound<'_, PyAny>, fd: i32, size: Size, kind: &str) -> Result<Self> {
        let (py, gpu, kind) = (owner.py(), handle::gpu_of(owner)?, handle::kind(kind)?);
        if fd < 0 {
            return Err(Failure::Invalid(format!("{fd} is not a file descriptor")));
        }
        let ours = duplicate(fd).map_err(|error| Failure::Invalid(format!("file descriptor {fd}: {error}")))?;
        // SAFETY: `Memory.import_fd` requires a descriptor from `export_fd` of memory of this size and kind.
        let memory = py.detach(|| unsafe { Memory::import_fd(&gpu, ours, size.0, kind) })?;
        Ok(Self::of(memory, owner.clone().unbind()))
    }

    fn export_fd(&self, py: Python<'_>) -> Result<i32> {
        Ok(self.with_whole(py, Memory::export_fd)?.into_raw_fd())
    }

    /// The descriptor of this range for network cards, with the range's offset in it.
    fn dma_buf(&self, py: Python<'_>) -> Result<(i32, u64, usize)> {
        let export = |storage: &Storage, range| Ok(storage.ours()?.slice(range)?.dma_buf()?);
        let dma_buf = self.with_range(py, (0, self.len), export)?;
        Ok((dma_buf.fd.into_raw_fd(), dma_buf.offset, dma_buf.len))
    }

    /// Sends the memory over a Unix socket.
    fn send(&self, connection: &Bound<'_, PyAny>) -> Result<()> {
        let (py, socket) = (connection.py(), descriptor_of(connection)?);
        let sent = self.with_whole(py, |memory| ipc::send(socket.as_fd(), memory));
        sent.map_err(|failure| failure.of_socket(py))
    }

    /// Receives memory from a Unix socket, of a process of this user, or of any.
    #[staticmethod]
    fn receive(owner: &Bound<'_, PyAny>, connection: &Bound<'_, PyAny>, any_user: bool) -> Result<Self> {
        let (py, gpu, socket) = (owner.py(), handle::gpu_of(owner)?, descriptor_of(connection)?);
        let receive = || {
            if any_user {
                // SAFETY: `vkgdr.ipc.recv` requires a trusted sender.
                unsafe { ipc::recv_from_any_user(socket.as_fd(), &gpu) }
            } else {
                ipc::recv(socket.as_fd(), &gpu)
            }
        };
        let memory = py.detach(receive).map_err(|error| Failure::from(error).of_socket(py))?;
        Ok(Self::of(memory, owner.clone().unbind()))
    }

    /// A view of a range of this one. `by_hand` as for `allocate`.
    fn part(&self, py: Python<'_>, offset: Size, size: Option<Size>, readonly: bool, by_hand: bool) -> Result<Self> {
        let (offset, len) = self.range(offset.0, size.map(|size| size.0))?;
        Ok(Self::ranged(self.hold(py)?, self.offset + offset, len, self.readonly || readonly, by_hand))
    }

    /// A view of the allocation's first `size` bytes.
    fn first(&self, py: Python<'_>, size: Size) -> Result<Self> {
        let (len, whole) = (size.0, self.live()?.len);
        if len > whole {
            return Err(vkgdr::Error::OutOfRange { offset: 0, len, size: whole }.into());
        }
        let mut first = Self::ranged(self.hold(py)?, 0, len, self.readonly, false);
        // It takes the place of the first view, whose use ends. Until then neither reports.
        first.root = self.root;
        Ok(first)
    }

    /// A further view of the same bytes that keeps another library's owner of them alive, as do all views that are made of it.
    pub(crate) fn keeping(&self, py: Python<'_>, object: Py<PyAny>) -> Result<Self> {
        let Held { used, owner } = self.hold(py)?;
        Ok(Self::ranged(Held { used: used.with(object), owner }, self.offset, self.len, self.readonly, false))
    }

    /// Frees this view: the memory is freed with its last view, with `force` at once. A second call does nothing.
    fn free(&self, py: Python<'_>, force: bool) -> Result<()> {
        self.freed.store(true, Ordering::Release);
        let held = self.held().take();
        match held {
            Some(Held { used, .. }) if force => used.force(py),
            Some(Held { used, .. }) => used.release(py),
            // The view was freed before, but views may still keep the memory.
            None if force && !self.allocation.is_freed() => self.allocation.force(py),
            None => Ok(()),
        }
    }

    /// Frees in stream order: the event is complete once the work submitted to the stream so far is done.
    fn free_async(&self, py: Python<'_>, stream: u64) -> Result<Event> {
        let queue = self.stream(stream)?;
        self.free(py, false)?;
        // After the event of the release itself: when this one is complete, the memory can be released.
        Event::on(py, &queue, Vec::new())
    }

    /// `free` for destructors: errors are logged.
    fn drop(&self) {
        self.freed.store(true, Ordering::Release);
        let held = self.held().take();
        drop(held);
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.len
    }

    #[getter]
    fn freed(&self) -> bool {
        self.live().is_err()
    }

    /// Identity of the bytes: allocation id, offset and length.
    #[getter]
    fn key(&self) -> (u64, usize, usize) {
        (self.allocation.exposed_id(), self.offset, self.len)
    }

    #[getter]
    fn offset(&self) -> Result<usize> {
        self.live()?;
        Ok(self.offset)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // Objects that other users keep alive as well must not be reported. What is reported once must be reported in the
        // collector's next pass, too, or it counts as garbage. So this waits for the locks, here and in `Allocation` and `Kept`. Their holders neither wait nor log, and neither run Python code nor
        // create Python objects, which could start a collection on the same thread. In a forked child a thread that does not
        // exist may hold a lock: there nothing is reported, and a cycle stays.
        if vkgdr::is_forked() {
            return Ok(());
        }
        if let Some(Held { owner, used }) = &*self.held() {
            if let Some(owner) = owner {
                visit.call(owner)?;
            }
            if let Some(beside) = used.beside().filter(|beside| Arc::strong_count(beside) == 1) {
                beside.traverse(&visit)?;
            }
        }
        if self.root && !self.freed.load(Ordering::Acquire) && self.allocation.users() == 1 {
            self.allocation.traverse(&visit)
        } else {
            Ok(())
        }
    }

    fn __clear__(&self) {
        // Memory that must be freed by hand is not freed by the collector either: see `Drop`.
        if !self.by_hand {
            self.drop();
        }
    }

    /// The number of other users of the allocation: arrays, regions, tensors.
    #[getter]
    fn pending_views(&self) -> usize {
        if self.allocation.is_freed() {
            return 0;
        }
        let own = usize::from(!self.freed.load(Ordering::Acquire));
        self.allocation.users().saturating_sub(own)
    }

    #[getter]
    fn is_foreign(&self) -> Result<bool> {
        self.live()?.briefly(|storage| Ok(matches!(storage, Storage::Foreign(_))))
    }

    /// The object `Vkgdr` that the memory was allocated from; None once freed, and if it is not known.
    #[getter]
    fn owner(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.held().as_ref().and_then(|held| Some(held.owner.as_ref()?.clone_ref(py)))
    }

    /// A new handle of the GPU that the memory was allocated from; None for memory of another library.
    fn handle(&self) -> Result<Option<Handle>> {
        self.live()?.briefly(|storage| Ok(storage.memory().map(|memory| Handle::of(memory.owner().clone()))))
    }

    #[getter]
    fn context(&self) -> Result<Option<usize>> {
        self.context_address()
    }

    #[getter]
    fn memory_type(&self) -> Result<MemoryType> {
        Ok(self.live()?.storage()?.ours()?.memory_type().into())
    }

    #[getter]
    fn drop_policy(&self) -> Result<&'static str> {
        Ok(match self.live()?.storage()?.ours()?.drop_policy() {
            DropPolicy::WaitForStream => "stream",
            DropPolicy::Immediate => "immediate",
            _ => "context",
        })
    }

    /// Keeps an object alive until the memory is freed.
    fn keep(&self, object: Py<PyAny>) -> Result<()> {
        self.live()?.keep(object);
        Ok(())
    }

    /// Copies host bytes into this view on the CPU. Does not flush.
    fn write(&self, py: Python<'_>, offset: Size, source: &HostBuffer) -> Result<()> {
        self.writable()?;
        let range = self.range(offset.0, Some(source.len()))?;
        // The source may be a view of this memory: copy it first where the ranges overlap.
        let saved = self.shares_bytes(range, source)?.then(|| copied(source.bytes())).transpose()?;
        let bytes = saved.as_deref().unwrap_or_else(|| source.bytes());
        self.with_range(py, range, |storage, range| Ok(storage.ours()?.write(range.start, bytes)?))
    }

    /// Copies from this view into host bytes on the CPU. Does not invalidate.
    fn read(&self, py: Python<'_>, offset: Size, size: Size, target: &HostBuffer) -> Result<()> {
        let range = self.range(offset.0, Some(size.0))?;
        let shared = self.shares_bytes(range, target)?;
        target.with_bytes_mut(size.0, |bytes| {
            if !shared {
                return self.with_range(py, range, |storage, range| Ok(storage.ours()?.read(range.start, bytes)?));
            }
            let mut saved = zeroes(bytes.len())?;
            self.with_range(py, range, |storage, range| Ok(storage.ours()?.read(range.start, &mut saved)?))?;
            bytes.copy_from_slice(&saved);
            Ok(())
        })
    }

    /// Fills a range with a repeated pattern on the CPU. Does not flush.
    fn fill(&self, py: Python<'_>, offset: Size, size: Size, pattern: &[u8]) -> Result<()> {
        self.writable()?;
        let range = self.range(offset.0, Some(size.0))?;
        self.with_range(py, range, |storage, range| Ok(storage.ours()?.fill_pattern(range, pattern)?))
    }
}

/// A duplicate of the descriptor with this number. To be called attached to the interpreter: detached, another thread may close
/// the descriptor, and the number be that of another file.
fn duplicate(number: i32) -> std::io::Result<OwnedFd> {
    if number < 0 {
        return Err(std::io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not negative; it is only duplicated, which fails unless the descriptor is open.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

/// A duplicate of a socket's descriptor, which stays that of the socket when another thread closes it.
fn descriptor_of(socket: &Bound<'_, PyAny>) -> Result<OwnedFd> {
    let number = socket.call_method0(intern!(socket.py(), "fileno"))?.extract()?;
    duplicate(number).map_err(|error| {
        let code = error.raw_os_error().unwrap_or(libc::EBADF);
        Failure::from(vkgdr::Error::System { operation: "fcntl", code }).of_socket(socket.py())
    })
}
