//! `MemoryView`: a range of an allocation, the native half of every memory object. And lookups, which make views.
#![expect(unsafe_code, reason = "uses streams, descriptors and sockets that the caller owns")]

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::slice;
use std::sync::{Arc, Mutex, Weak};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyType};
use pyo3::{PyTraverseError, PyVisit, intern};
use vkgdr::ash::vk::Handle as _;
use vkgdr::{AllocateOptions, CopyPolicy, Memory, StreamRef, in_bytes, ipc};

use crate::allocation::{self, Allocation, FREED};
use crate::base::HostBuffer;
use crate::device::{self, Vkgdr};
use crate::error::{Failure, INVALID_CONTEXT, Result, Size, number};
use crate::interpreter::lock;
use crate::stream::{Event, NULL_STREAM, PER_THREAD_STREAM, Stream, current_stream, raw_stream, with_room};

/// A range of an allocation.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct MemoryView {
    /// The allocation's, also once the view is freed.
    id: u64,
    allocation: Weak<Allocation>,
    /// `None` once the view is freed, which takes this first.
    held: Mutex<Option<Arc<Allocation>>>,
    /// Another library's owner of the bytes, such as a tensor, whose library may reuse them once it is gone.
    beside: Mutex<Option<Arc<Py<PyAny>>>>,
    pub(crate) offset: usize,
    #[pyo3(get, name = "nbytes")]
    pub(crate) len: usize,
    pub(crate) readonly: bool,
}

impl MemoryView {
    fn ranged(held: Arc<Allocation>, beside: Option<Arc<Py<PyAny>>>, range: Range<usize>, readonly: bool) -> Self {
        let (id, allocation, offset, len) = (held.id, Arc::downgrade(&held), range.start, range.len());
        Self { id, allocation, held: Mutex::new(Some(held)), beside: Mutex::new(beside), offset, len, readonly }
    }

    /// All of an allocation.
    pub(crate) fn whole(allocation: Arc<Allocation>) -> Self {
        let (len, readonly) = (allocation.len, allocation.readonly);
        Self::ranged(allocation, None, 0..len, readonly)
    }

    /// Device memory of another library, which `keep` keeps alive.
    pub(crate) fn foreign(device: i32, address: u64, len: usize, readonly: bool, keep: Py<PyAny>) -> Self {
        let allocation = Allocation::foreign(device, address, len, readonly);
        lock(&allocation.kept).owners.push(keep);
        Self::whole(allocation)
    }

    /// The allocation, unless it or this view was freed.
    pub(crate) fn live(&self) -> Result<Arc<Allocation>> {
        lock(&self.held).as_ref().filter(|held| !held.is_freed()).cloned().ok_or(FREED)
    }

    /// A further view of the same bytes.
    pub(crate) fn share(&self) -> Result<Self> {
        self.part(Size(0), None, false)
    }

    /// Whether the view keeps another library's owner of its bytes.
    pub(crate) fn keeps_an_owner(&self) -> bool {
        lock(&self.beside).is_some()
    }

    pub(crate) fn device_address(&self) -> Result<u64> {
        Ok(self.live()?.device_ptr()? + self.offset as u64)
    }

    /// The host address, or an error for memory without a host view.
    pub(crate) fn visible(&self) -> Result<usize> {
        let allocation = self.live()?;
        let start = allocation.host_ptr()?.ok_or(vkgdr::Error::NoHostView { kind: allocation.kind })?;
        Ok(start + self.offset)
    }

    /// Checks a range of this view, `None` to the end, and returns it in offsets of the allocation.
    pub(crate) fn range(&self, offset: usize, len: Option<usize>) -> Result<Range<usize>> {
        let size = self.len;
        let len = len.unwrap_or(size.saturating_sub(offset));
        if offset > size || len > size - offset {
            return Err(vkgdr::Error::OutOfRange { offset, len, size }.into());
        }
        Ok(self.offset + offset..self.offset + offset + len)
    }

    /// Runs `work`, which shares all of a memory with another process, detached. An error for a part of an allocation.
    fn with_whole<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Memory) -> vkgdr::Result<T> + Send) -> Result<T> {
        let allocation = self.live()?;
        if (self.offset, self.len) != (0, allocation.len) {
            let (all, at) = (in_bytes(allocation.len), self.offset);
            return Err(Failure::Invalid(format!("a part of memory is not shared: share all {all} and offset {at}")));
        }
        allocation.run_ours(py, |memory| Ok(work(memory)?))
    }

    pub(crate) fn stream(&self, handle: u64) -> Result<StreamRef> {
        stream_of(self.live()?.memory()?.as_ref(), handle)
    }

    /// A stream of the memory's context or, if it belongs to another one, of the current context.
    pub(crate) fn stream_of_any_context(&self, handle: u64) -> Result<StreamRef> {
        match self.stream(handle) {
            Err(Failure::Driver(foreign @ vkgdr::Error::ForeignStream)) => Ok(current_stream(handle).or(Err(foreign))?),
            other => other,
        }
    }

    /// The streams that a handle of an array may mean. Each context has default streams of its own, and the protocols do not say
    /// whose is meant. It may be that of the memory's context, or of the current one, in which the other library calls.
    pub(crate) fn streams_named(&self, handle: u64) -> Result<Vec<StreamRef>> {
        let own = self.stream_of_any_context(handle)?;
        if handle > PER_THREAD_STREAM {
            return Ok(vec![own]);
        }
        match current_stream(handle) {
            Ok(current) if current.context() != own.context() => Ok(vec![own, current]),
            Err(error) if error.cuda_code() != Some(INVALID_CONTEXT) => Err(error.into()),
            // The memory's context, or none, is current.
            _ => Ok(vec![own]),
        }
    }

    /// Checks that the memory's context was not destroyed. That of another library's memory is not known.
    pub(crate) fn check_context(&self) -> Result<()> {
        // Making a stream reference enters the context.
        self.live()?.context()?.map_or(Ok(()), |_| self.stream(NULL_STREAM).map(drop))
    }

    /// Flushes or invalidates a range of this package's memory.
    pub(crate) fn synchronize(
        &self,
        py: Python<'_>,
        (offset, len): (usize, Option<usize>),
        work: impl FnOnce(&Memory, Range<usize>) -> vkgdr::Result<()> + Send,
    ) -> Result<()> {
        let range = self.range(offset, len)?;
        let work = |memory: Option<&Memory>| memory.map_or(Ok(()), |memory| Ok(work(memory, range)?));
        // On coherent memory it does not wait, so detaching from the interpreter would cost more than it gains.
        if let Some(held) = lock(&self.held).as_ref().filter(|held| matches!(held.is_coherent(), Ok(true))) {
            return held.with(work);
        }
        self.live()?.run(py, work)
    }

    /// Bytes to copy from or to instead of host bytes that overlap a range of the allocation, as many as the range has.
    fn spare(&self, range: &Range<usize>, host: &HostBuffer) -> Result<Option<Vec<u8>>> {
        let (first, len, mut spare) = (host.address().addr(), host.nbytes, Vec::new());
        let start = self.live()?.host_ptr()?;
        if !start.is_some_and(|start| first < start + range.end && start + range.start < first + len) {
            return Ok(None);
        }
        spare
            .try_reserve_exact(range.len())
            .map_err(|_| vkgdr::Error::System { operation: "malloc", code: libc::ENOMEM })?;
        spare.resize(range.len(), 0);
        Ok(Some(spare))
    }

    pub(crate) fn writable(&self) -> Result<()> {
        if self.readonly { Err(Failure::Invalid("the memory is read-only".into())) } else { Ok(()) }
    }

    /// The number of other users of the allocation, without this view; 0 once the memory is freed.
    pub(crate) fn others(&self) -> usize {
        let Some(allocation) = self.allocation.upgrade().filter(|allocation| !allocation.is_freed()) else { return 0 };
        // Without the one here.
        let users = Arc::strong_count(&allocation) - 1;
        users.saturating_sub(usize::from(lock(&self.held).is_some()))
    }
}

/// A stream of the memory's context, or of the current one if the memory is another library's.
pub(crate) fn stream_of(memory: Option<&Memory>, handle: u64) -> Result<StreamRef> {
    Ok(match memory {
        // SAFETY: as for `current_stream`.
        Some(memory) => unsafe { memory.stream(raw_stream(handle)) },
        None => current_stream(handle),
    }?)
}

pub(crate) fn parts_of<T>(
    view: &Bound<'_, MemoryView>,
    read: impl FnOnce(&MemoryView, &Allocation) -> Result<T>,
) -> Result<T> {
    read(view.get(), &*view.get().live()?)
}

attributes! { MemoryView by parts_of:
    /// Whether the CPU caches the bytes.
    is_cached: bool = |_view, allocation| allocation.with(|memory| Ok(allocation.required(memory)?.is_cached()))?;
    is_foreign: bool = |_view, allocation| allocation.foreign.is_some();
    /// The `VkDeviceMemory` and the place of the first byte in it; None for memory that Vulkan did not allocate.
    vulkan_memory: Option<(u64, u64)> = |view, allocation| {
        let place = allocation.with(|memory| Ok(memory.and_then(Memory::vulkan_memory)))?;
        place.map(|place| (place.memory.as_raw(), place.offset + view.offset as u64))
    };
}

#[pymethods]
impl MemoryView {
    /// Allocates in the primary context of `owner`, or in the current context if it has none. If all kinds are exhausted, tries
    /// once more after a garbage collection, whose time grows with the program.
    #[staticmethod]
    fn allocate(
        owner: &Bound<'_, Vkgdr>,
        size: Size,
        kinds: &Bound<'_, PyAny>,
        options: (Size, bool, bool),
    ) -> Result<Self> {
        let (py, gpu) = (owner.py(), owner.get().gpu()?);
        let (kinds, (Size(alignment), readonly, dma_buf)) = (device::kinds(kinds)?, options);
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Failure::Invalid(format!("alignment must be 0 or a power of two, not {alignment}")));
        }
        let options = AllocateOptions::new(kinds[0]).fallback(kinds[1..].iter().copied());
        let options = if dma_buf { options.with_dma_buf() } else { options };
        let memory = with_room(py, || Ok(Memory::allocate_with(&gpu, size.0, options)?))?;
        let view = Self::whole(Allocation::of(memory, readonly, Some(owner.clone().unbind())));
        let (device, host) = (view.device_address()?, view.visible().unwrap_or(0));
        if alignment != 0 && !(device | host as u64).is_multiple_of(alignment as u64) {
            let found = format!("device address is {device:#x}, host address is {host:#x}");
            return Err(Failure::Invalid(format!("no memory aligned to {alignment} bytes: {found}")));
        }
        Ok(view)
    }

    /// An empty view; allocates nothing.
    #[staticmethod]
    fn empty(owner: &Bound<'_, Vkgdr>, kind: &str) -> Result<Self> {
        Ok(Self::whole(Allocation::empty(owner, device::kind(kind)?)?))
    }

    /// Memory of another library, mapped for the CPU, which `keep` or the caller keeps alive.
    #[staticmethod]
    fn map_existing(
        owner: &Bound<'_, Vkgdr>,
        device_ptr: &Bound<'_, PyAny>,
        size: Size,
        keep: Option<Py<PyAny>>,
        readonly: bool,
    ) -> Result<Self> {
        let (py, gpu) = (owner.py(), owner.get().gpu()?);
        let address: u64 = number(device_ptr, "a device address")?;
        // SAFETY: plain bytes to Python, which `Mapping` requires to live.
        let memory = py.detach(|| unsafe { Memory::map_existing(&gpu, address, size.0) })?;
        if let Some(ours) = find(address, Some(size.0), readonly)?.filter(|ours| ours.visible().is_ok()) {
            // The same memory with the same binding, and one object that keeps the stream.
            let Some(keep) = keep else { return Ok(ours) };
            return ours.keeping(keep);
        }
        // Not found by its address, which may be that of other memory once this is freed, or is that of ours without a host view.
        let allocation = Allocation::unlisted(memory, readonly, Some(owner.clone().unbind()));
        lock(&allocation.kept).owners.extend(keep);
        Ok(Self::whole(allocation))
    }

    /// Whether memory of another library is still the one that was mapped.
    fn is_current(&self, py: Python<'_>) -> Result<bool> {
        self.live()?.run_ours(py, |memory| Ok(memory.is_current()?))
    }

    #[staticmethod]
    fn import_fd(owner: &Bound<'_, Vkgdr>, fd: i32, size: Size, kind: &str) -> Result<Self> {
        let (py, gpu, kind) = (owner.py(), owner.get().gpu()?, device::kind(kind)?);
        let ours = duplicate(fd)?;
        // SAFETY: `Memory.import_fd` requires a descriptor from `export_fd` of memory of this size and kind.
        let memory = py.detach(|| unsafe { Memory::import_fd(&gpu, ours, size.0, kind) })?;
        Ok(Self::whole(Allocation::of(memory, false, Some(owner.clone().unbind()))))
    }

    fn export_fd(&self, py: Python<'_>) -> Result<i32> {
        Ok(self.with_whole(py, Memory::export_fd)?.into_raw_fd())
    }

    /// The descriptor of this range for network cards, with the range's offset in it.
    fn dma_buf(&self, py: Python<'_>) -> Result<(i32, u64, usize)> {
        let range = self.range(0, None)?;
        let dma_buf = self.live()?.run_ours(py, |memory| Ok(memory.slice(range)?.dma_buf()?))?;
        Ok((dma_buf.fd.into_raw_fd(), dma_buf.offset, dma_buf.len))
    }

    /// Sends the memory over a Unix socket, without a wait.
    fn send(&self, connection: &Bound<'_, PyAny>) -> Result<()> {
        let (py, socket) = (connection.py(), descriptor_of(connection)?);
        self.with_whole(py, |memory| ipc::try_send(socket.as_fd(), memory)).map_err(|failure| failure.of_socket(py))
    }

    /// Receives memory from a Unix socket, without a wait, of a process of any user.
    #[staticmethod]
    fn receive(owner: &Bound<'_, Vkgdr>, connection: &Bound<'_, PyAny>) -> Result<Self> {
        let (py, gpu, socket) = (owner.py(), owner.get().gpu()?, descriptor_of(connection)?);
        // SAFETY: `vkgdr.ipc.recv` has checked that the sender is of this user, or requires a trusted one.
        let received = py.detach(|| unsafe { ipc::try_recv_from_any_user(&socket, &gpu) });
        let memory = received.map_err(|error| Failure::from(error).of_socket(py))?;
        Ok(Self::whole(Allocation::of(memory, false, Some(owner.clone().unbind()))))
    }

    /// A view of a range of this one.
    fn part(&self, offset: Size, size: Option<Size>, readonly: bool) -> Result<Self> {
        let range = self.range(offset.0, size.map(|size| size.0))?;
        // Before the allocation: while there is that, a free has not taken this.
        let beside = lock(&self.beside).clone();
        Ok(Self::ranged(self.live()?, beside, range, self.readonly || readonly))
    }

    /// A view of the allocation's first `size` bytes.
    fn first(&self, size: Size) -> Result<Self> {
        Self::whole(self.live()?).part(Size(0), Some(size), false)
    }

    /// A further view of the same bytes that keeps another library's owner of them alive, as do all views that are made of it.
    pub(crate) fn keeping(&self, object: Py<PyAny>) -> Result<Self> {
        Ok(Self::ranged(self.live()?, Some(Arc::new(object)), self.range(0, None)?, self.readonly))
    }

    /// Frees this view: the memory is freed with its last view, with `force` at once. A second call does nothing.
    pub(crate) fn free(&self, force: bool) -> Result<()> {
        let held = lock(&self.held).take();
        // Not dropped under its lock.
        let _beside = lock(&self.beside).take();
        // With `force`, the view may have been freed before, while others keep the memory.
        match held.or_else(|| self.allocation.upgrade().filter(|_| force)) {
            Some(allocation) if force => Ok(allocation.free()?),
            Some(allocation) => Arc::into_inner(allocation).map_or(Ok(()), |last| Ok(last.free()?)),
            None => Ok(()),
        }
    }

    /// Frees in stream order: the event is complete once the work submitted to the stream so far is done.
    fn free_async(&self, py: Python<'_>, stream: Stream) -> Result<Event> {
        let queue = self.stream(stream.handle)?;
        self.free(false)?;
        // After the event of the release itself: when this one is complete, the memory can be released.
        Event::on(py, &queue, Vec::new())
    }

    /// Identity of the bytes: allocation id, offset and length.
    #[getter]
    pub(crate) const fn key(&self) -> (u64, usize, usize) {
        (self.id, self.offset, self.len)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // Objects that other users keep alive as well must not be reported. What is reported once must be reported in the
        // collector's next pass, too, or it counts as garbage. So this waits for the locks, here and of `kept`. Their holders
        // neither wait nor log, and neither run Python code nor create Python objects, which could start a collection on the same
        // thread. In a forked child a thread that does not exist may hold a lock: there nothing is reported, and a cycle stays.
        if vkgdr::is_forked() {
            return Ok(());
        }
        if let Some(beside) = lock(&self.beside).as_ref().filter(|beside| Arc::strong_count(beside) == 1) {
            visit.call(&**beside)?;
        }
        if let Some(allocation) = lock(&self.held).as_ref().filter(|allocation| Arc::strong_count(allocation) == 1) {
            visit.call(&allocation.owner)?;
            lock(&allocation.kept).traverse(&visit)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let held = lock(&self.held).take();
        // Neither is dropped under a lock.
        let beside = lock(&self.beside).take();
        drop((held, beside));
    }

    /// The bound stream's handle, a Python integer that keeps the stream's object alive.
    #[getter]
    pub(crate) fn bound_stream<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let Some(Stream { handle, object, .. }) = self.live()?.bound(py)? else { return Ok(None) };
        let Some(object) = object else { return Ok(Some(PyInt::new(py, handle).into_any())) };
        Ok(Some(CLASS.import(py, "vkgdr._interfaces", "StreamNumber")?.call1((handle, object))?))
    }

    /// Binds the allocation to a stream, and keeps its object while it is bound.
    fn bind_stream(&self, py: Python<'_>, stream: Stream) -> Result<()> {
        let allocation = self.live()?;
        allocation.run_ours(py, |memory| {
            let raw = raw_stream(stream.handle);
            lock(&allocation.kept).add_bound(stream);
            // SAFETY: its object was added to those that stay while the memory is bound; a bare handle is the caller's to keep.
            Ok(unsafe { memory.bind_raw_stream(raw) }?)
        })
    }

    /// Whether a stream belongs to the memory's context, or to the current one if the memory is another library's.
    fn has_stream(&self, py: Python<'_>, stream: Stream) -> Result<bool> {
        match py.detach(|| self.stream(stream.handle).map(drop)) {
            Err(Failure::Driver(vkgdr::Error::ForeignStream)) => Ok(false),
            found => found.map(|()| true),
        }
    }

    fn record_stream(&self, py: Python<'_>, stream: Stream) -> Result<()> {
        let allocation = self.live()?;
        allocation.run(py, |memory| {
            // Others release their memory without knowing of the use. Nothing is released with an empty range.
            if allocation.foreign.is_some() {
                allocation.required(memory)?;
            }
            allocation.record_use(memory, stream_of(memory, stream.handle)?, &stream)
        })
    }

    /// Waits for the bound stream, if there is one.
    pub(crate) fn wait_for_stream(&self, py: Python<'_>) -> Result<()> {
        self.live()?.run(py, |memory| memory.map_or(Ok(()), |memory| Ok(memory.wait_for_stream()?)))
    }

    /// Keeps the view, and so the memory, until it is freed by hand, as in vkgdr 0.1.
    fn leak(slf: Py<Self>) -> Result<()> {
        let allocation = slf.get().live()?;
        let mut kept = lock(&allocation.kept);
        // A freed view has nothing left whose drop may run Python code.
        kept.leaked.retain(|view| lock(&view.get().held).is_some());
        kept.leaked.push(slf);
        Ok(())
    }

    /// Keeps an object alive until the memory is freed.
    fn keep(&self, object: Py<PyAny>) -> Result<()> {
        self.live().map(|allocation| lock(&allocation.kept).owners.push(object))
    }

    /// Copies host bytes into this view. Does not flush.
    fn write(&self, py: Python<'_>, offset: Size, source: &HostBuffer) -> Result<()> {
        self.writable()?;
        let range = self.range(offset.0, Some(source.nbytes))?;
        let mut saved = self.spare(&range, source)?;
        saved.iter_mut().for_each(|saved| saved.copy_from_slice(source.bytes()));
        let source = saved.as_deref().unwrap_or_else(|| source.bytes());
        self.live()?.run_ours(py, |memory| Ok(memory.write_with(CopyPolicy::Auto, range.start, source)?))
    }

    /// Copies from this view into host bytes. Does not invalidate.
    fn read(&self, py: Python<'_>, offset: Size, size: Size, target: &HostBuffer) -> Result<()> {
        let range = self.range(offset.0, Some(size.0))?;
        assert!(!target.readonly && size.0 <= target.nbytes, "checked by `copy_to_host`");
        let mut saved = self.spare(&range, target)?;
        // SAFETY: the exporter keeps as many contiguous bytes there, and granted a writable buffer.
        let bytes = unsafe { slice::from_raw_parts_mut(target.address(), size.0) };
        let into = saved.as_mut().map_or(&mut *bytes, |saved| saved);
        self.live()?.run_ours(py, |memory| Ok(memory.read_with(CopyPolicy::Auto, range.start, into)?))?;
        saved.iter().for_each(|saved| bytes.copy_from_slice(saved));
        Ok(())
    }

    /// Fills a range with a repeated pattern on the CPU. Does not flush.
    fn fill(&self, py: Python<'_>, offset: Size, size: Size, pattern: &[u8]) -> Result<()> {
        self.writable()?;
        let range = self.range(offset.0, Some(size.0))?;
        self.live()?.run_ours(py, |memory| Ok(memory.fill_pattern(range, pattern)?))
    }
}

/// A duplicate of a descriptor. To be called attached: else another thread may close it, and the number be another file's.
fn duplicate(number: i32) -> vkgdr::Result<OwnedFd> {
    if number < 0 {
        return Err(vkgdr::Error::System { operation: "dup", code: libc::EBADF });
    }
    // SAFETY: not negative; it is only duplicated, which fails unless the descriptor is open.
    vkgdr::duplicate(unsafe { BorrowedFd::borrow_raw(number) })
}

/// A duplicate of a socket's descriptor, which stays that of the socket when another thread closes it.
fn descriptor_of(socket: &Bound<'_, PyAny>) -> Result<OwnedFd> {
    let number = socket.call_method0(intern!(socket.py(), "fileno"))?.extract()?;
    duplicate(number).map_err(|error| Failure::from(error).of_socket(socket.py()))
}

/// Fails unless the process at the other end of a Unix socket is of this user.
#[pyfunction]
pub(crate) fn check_user(connection: &Bound<'_, PyAny>) -> Result<()> {
    ipc::check_user(descriptor_of(connection)?).map_err(|error| Failure::from(error).of_socket(connection.py()))
}

/// A view of `size` bytes at an address of the device or of the host, by default to the end of their allocation. None if the first
/// does not lie in memory of vkgdr; an error if only a part of them does.
#[pyfunction]
#[pyo3(signature = (address, size = None, readonly = false))]
pub(crate) fn find(address: u64, size: Option<usize>, readonly: bool) -> Result<Option<MemoryView>> {
    // One past the end is outside: it may be the first byte of the next allocation. An empty range may end there.
    let before = address.checked_sub(1).filter(|_| size == Some(0));
    let last = || before.and_then(|last| Allocation::at(last).ok()?).map(|(one, at)| (one, at + 1));
    let found = Allocation::at(address)?.or_else(last).map(|(found, offset)| (MemoryView::whole(found), offset));
    // The address may have been reused since the context was destroyed.
    let found = found.filter(|(whole, _)| whole.check_context().is_ok());
    found.map(|(whole, offset)| whole.part(Size(offset), size.map(Size), readonly)).transpose()
}

/// A view of the whole allocation with this id.
#[pyfunction]
pub(crate) fn find_id(id: &Bound<'_, PyAny>) -> Result<Option<MemoryView>> {
    let id: u64 = number(id, "a memory handle")?;
    let found = allocation::all()?.into_iter().find(|allocation| allocation.id == id);
    Ok(found.map(MemoryView::whole).filter(|whole| whole.check_context().is_ok()))
}

/// A view of device memory that another library allocated and that `keep` keeps alive. None for an address that is unknown to
/// CUDA, or of the host. CUDA is asked in the context of `within`, or in the current context.
#[pyfunction]
#[pyo3(signature = (device_ptr, size, readonly, keep, within = None))]
pub(crate) fn foreign(
    device_ptr: u64,
    size: usize,
    readonly: bool,
    keep: Py<PyAny>,
    within: Option<&MemoryView>,
) -> Result<Option<MemoryView>> {
    let device = match within {
        _ if size == 0 => Some(0),
        Some(view) => view.stream(NULL_STREAM)?.pointer_device(device_ptr)?,
        None => vkgdr::pointer_device(device_ptr)?,
    };
    Ok(device.map(|device| MemoryView::foreign(device, device_ptr, size, readonly, keep)))
}
