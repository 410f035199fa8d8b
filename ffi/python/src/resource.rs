//! `Resource`: memory by its device address, for libraries that allocate and free by address.
//!
//! Memory is allocated in the primary context of its device, which is that of numba, PyTorch, CuPy, RMM, Warp and
//! cuda.core. Views find it by its address and keep it alive. PyTorch calls C functions, at the end.
#![expect(unsafe_code, reason = "uses streams that the caller owns, and exports C functions")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, LazyLock, Mutex};

use pyo3::prelude::*;
use vkgdr::{AllocateOptions, DropPolicy, Error, Memory, MemoryKind, OpenFlags, Pool, PoolOptions};

use crate::allocation::{self, Allocation, release_retired};
use crate::device::{self, Vkgdr};
use crate::error::{Failure, INVALID_CONTEXT, Result, Size};
use crate::interpreter::{WITHOUT_PYTHON, detached, lock};
use crate::memory_view::stream_of;
use crate::stream::{NULL_STREAM, PER_THREAD_STREAM, Stream, as_address, raw_stream, with_room};

/// Retired memory of more allocations or bytes than this is released by the next allocation.
const MAX_RETIRED: (usize, usize) = (64, 32 << 20);

/// The alignment of addresses, that of `cuMemAlloc` (CUDA C++ Programming Guide, "Device Memory Accesses").
const ALIGNMENT: usize = 256;

/// The number of a device; by default that of the current context's, or 0.
fn number_of(device: Option<i32>) -> Result<i32> {
    match device.map_or_else(vkgdr::current_device, Ok) {
        Err(error) if error.cuda_code() == Some(INVALID_CONTEXT) => Ok(0),
        found => Ok(found?),
    }
}

/// Allocates memory of one kind, or of the first of several that is available, and frees it by its address.
#[pyclass(frozen, weakref, module = "vkgdr._vkgdr")]
pub(crate) struct Resource {
    /// First choice first.
    kinds: Vec<MemoryKind>,
    pooled: bool,
    /// By device number, with the pool of each kind. Dropping a pool or the handle of a primary context may wait.
    gpus: Mutex<BTreeMap<i32, (vkgdr::Vkgdr, Vec<Pool>)>>,
    /// Memory in use, by its device address and its id, oldest first. A driver gives an address out again after the reset of a
    /// context. The owner of the old memory will free it still, and that free must not be taken for one of the new memory.
    held: Mutex<BTreeMap<(u64, u64), Arc<Allocation>>>,
}

impl Resource {
    /// A GPU, opened on its first use, and again, without pools, after its context was reset. No driver is called under the lock.
    fn gpu(&self, device: i32) -> Result<vkgdr::Vkgdr> {
        let known = lock(&self.gpus).get(&device).map(|(gpu, _)| gpu.clone());
        if let Some(gpu) = known.filter(|gpu| !gpu.context_is_destroyed()) {
            return Ok(gpu);
        }
        let gpu = vkgdr::Vkgdr::open_primary_context(device, OpenFlags::empty())?;
        // That of a destroyed context, or of another thread, whose memory keeps what it needs.
        let _before = lock(&self.gpus).insert(device, (gpu.clone(), Vec::new()));
        Ok(gpu)
    }

    /// The pool of a kind.
    fn pool(&self, gpu: &vkgdr::Vkgdr, kind: MemoryKind) -> vkgdr::Result<Pool> {
        // In a primary context this calls no driver.
        let new = |owner| Pool::new(owner, PoolOptions::new(kind).alignment(ALIGNMENT));
        let mut gpus = lock(&self.gpus);
        // Another thread may have closed it.
        let Some((owner, pools)) = gpus.get_mut(&gpu.device()) else { return new(gpu) };
        if let Some(pool) = pools.iter().find(|pool| pool.kind() == kind) {
            return Ok(pool.clone());
        }
        pools.push(new(owner)?);
        Ok(pools.last().expect("just made").clone())
    }

    /// Memory of a pool of one kind, for a stream if one is named.
    fn lend(&self, gpu: &vkgdr::Vkgdr, kind: MemoryKind, len: usize, stream: Option<u64>) -> vkgdr::Result<Memory> {
        let pool = self.pool(gpu, kind)?;
        let Some(stream) = stream.filter(|&stream| stream != PER_THREAD_STREAM) else { return pool.allocate(len) };
        // SAFETY: the caller keeps the stream alive until the memory is freed, which ends the binding.
        match unsafe { pool.allocate_on_raw(len, raw_stream(stream)) } {
            // A stream of another context: nothing can be reused on it.
            Err(Error::ForeignStream) => pool.allocate(len),
            other => other,
        }
    }

    /// Memory of the first kind that is available.
    fn first(&self, device: i32, kinds: &[MemoryKind], len: usize, stream: Option<u64>) -> Result<Memory> {
        let gpu = self.gpu(device)?;
        if !self.pooled {
            let options = AllocateOptions::new(kinds[0]).fallback(kinds[1..].iter().copied());
            return Ok(Memory::allocate_with(&gpu, len, options)?);
        }
        Ok(gpu.first_kind(kinds.iter().copied(), |kind| self.lend(&gpu, kind, len, stream))?)
    }

    /// Allocates `len` bytes and returns their device address; 0 for 0 bytes. `device` is that of the current context by
    /// default, or 0. A pool may lend memory that earlier work of `stream` still uses; without one, `stream` is ignored.
    fn allocate_at(&self, kinds: &[MemoryKind], len: usize, device: Option<i32>, stream: Option<u64>) -> Result<u64> {
        if len == 0 {
            return Ok(0);
        }
        let device = number_of(device)?;
        release_retired(MAX_RETIRED);
        let allocation = Allocation::of(self.first(device, kinds, len, stream)?, false, None);
        let address = allocation.device_ptr()?;
        assert!(address.is_multiple_of(ALIGNMENT as u64), "drivers align at least as `cuMemAlloc`, pools as asked");
        lock(&self.held).insert((address, allocation.id), allocation);
        Ok(address)
    }

    /// Frees the memory at an address with its last view, after the earlier work of a stream, or without one of the context. The
    /// stream is not used after this call. Does nothing for address 0, and in a forked child.
    fn free_at(&self, address: u64, stream: Option<u64>) -> Result<()> {
        let Some(allocation) = self.oldest(address, true)? else { return Ok(()) };
        let Ok(Some(memory)) = allocation.memory() else { return Ok(()) };
        let last = Arc::into_inner(allocation);
        let stream = stream.filter(|_| last.is_some());
        // SAFETY: live during this call, which records the event that the release waits for.
        let follows = stream.is_some_and(|stream| unsafe { memory.bind_raw_stream(raw_stream(stream)) }.is_ok());
        if !follows && memory.bound_stream().is_some() {
            // Views, and a later release, must name no stream, since the bound one may be destroyed.
            // SAFETY: waits for all that the release may have to wait for.
            unsafe { memory.set_drop_policy(DropPolicy::WaitForContext) };
            // SAFETY: the legacy default stream lives as long as its context.
            let _ = unsafe { memory.bind_raw_stream(raw_stream(NULL_STREAM)) };
        }
        drop(memory);
        last.map_or(Ok(()), |last| Ok(last.free()?))
    }

    /// Gives up handles and pools, which may wait.
    fn give_up(&self) {
        let _gpus = take(&mut *lock(&self.gpus));
        release_retired((0, 0));
    }

    /// The oldest memory at an address, taken out if `take` says so. `None` for address 0, and in a forked child.
    fn oldest(&self, address: u64, take: bool) -> Result<Option<Arc<Allocation>>> {
        if address == 0 || vkgdr::is_forked() {
            return Ok(None);
        }
        let mut held = lock(&self.held);
        let Some((&key, found)) = held.range((address, 0)..=(address, u64::MAX)).next() else {
            let text = "no memory was allocated here with the device address";
            return Err(Failure::Invalid(format!("{text} {address:#x}, or it was freed")));
        };
        Ok(if take { held.remove(&key) } else { Some(found.clone()) })
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        if !vkgdr::is_forked() {
            detached(|| self.give_up());
        }
    }
}

#[pymethods]
impl Resource {
    #[new]
    #[pyo3(signature = (kind = None, *, pool = false))]
    fn new(kind: Option<&Bound<'_, PyAny>>, pool: bool) -> Result<Self> {
        let kinds = kind.map_or_else(|| Ok(vec![MemoryKind::Mapped]), device::kinds)?;
        Ok(Self { kinds, pooled: pool, gpus: Mutex::default(), held: Mutex::default() })
    }

    /// Allocate memory and return its device address.
    #[pyo3(signature = (size, device = None, stream = None))]
    fn allocate(&self, py: Python<'_>, size: Size, device: Option<i32>, stream: Option<Stream>) -> Result<u64> {
        let stream = stream.map(|stream| stream.handle);
        with_room(py, || self.allocate_at(&self.kinds, size.0, device, stream))
    }

    /// Free memory by its device address, on any thread. Views keep it until the last one is dropped.
    #[pyo3(signature = (address, stream = None))]
    fn free(&self, py: Python<'_>, address: u64, stream: Option<Stream>) -> Result<()> {
        let stream = stream.map(|stream| stream.handle);
        py.detach(|| self.free_at(address, stream))
    }

    /// Frees the memory at an address without calling a driver, so also during a stream capture. No driver tells of one, and a
    /// wait would end it. A later allocation of this package releases it after all work of the context. That is a resource's when
    /// there is much of it, any when there is no other memory. Does nothing for address 0, and in a forked child.
    fn retire(&self, address: u64) -> Result<()> {
        self.oldest(address, true).map(|found| found.into_iter().for_each(allocation::retire))
    }

    /// Records that a stream, which the caller keeps alive, uses the memory at an address: its release waits for that use.
    fn record_stream(&self, address: u64, stream: u64) -> Result<()> {
        let Some(allocation) = self.oldest(address, false)? else { return Ok(()) };
        let memory = allocation.required(allocation.memory()?)?;
        Ok(memory.record_use(stream_of(Some(&memory), stream)?)?)
    }

    /// Return a new handle of a device, of its primary context.
    fn handle(&self, py: Python<'_>, device: i32) -> Result<Vkgdr> {
        Ok(Vkgdr::of(py.detach(|| self.gpu(device))?))
    }

    /// Return the free and the total memory of the first kind that the current context's device has, or device 0.
    fn memory_info(&self, py: Python<'_>) -> Result<(u64, u64)> {
        py.detach(|| {
            let gpu = self.gpu(number_of(None)?)?;
            let of_others = || self.kinds[1..].iter().find_map(|&kind| gpu.memory_info(kind).ok());
            let info = gpu.memory_info(self.kinds[0]).or_else(|error| of_others().ok_or(error))?;
            Ok((info.available, info.total))
        })
    }

    /// Give up handles and pools. Memory in use stays valid, and the next allocation opens the device anew.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.give_up());
    }

    /// The number of live allocations.
    fn __len__(&self) -> usize {
        lock(&self.held).len()
    }
}

// The C functions of PyTorch's `CUDAPluggableAllocator`, for `vkgdr.torch`. They never wait for the interpreter's lock: PyTorch calls
// them under a lock of its own, which a thread that has the interpreter's may be waiting for.

static RESOURCE: LazyLock<Resource> = LazyLock::new(|| Resource::new(None, false).expect("the default kind"));

/// Runs `work` without Python. Errors other than a shortage of memory are written to the error output.
fn quietly<T: Default>(operation: &str, work: impl FnOnce() -> Result<T>) -> T {
    let before = WITHOUT_PYTHON.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    match &result {
        Ok(Ok(_)) => {}
        Ok(Err(Failure::Driver(error))) if error.is_out_of_memory() => {}
        Ok(Err(error)) => log::warn!("{operation} for PyTorch: {error}"),
        Err(_) => log::error!("{operation} for PyTorch: a panic"),
    }
    WITHOUT_PYTHON.set(before);
    result.ok().and_then(Result::ok).unwrap_or_default()
}

/// Functions that allocate memory of a kind; null if that fails.
macro_rules! allocators {
    ($($name:ident: $kind:ident),*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name(size: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
            let address = quietly("allocating", || {
                let len = usize::try_from(size).map_err(|_| Failure::Invalid(format!("{size} is not a number of bytes")))?;
                RESOURCE.allocate_at(&[MemoryKind::$kind], len, Some(device), None)
            });
            with_exposed_provenance_mut(as_address(address))
        })*
    };
}

allocators!(vkgdr_torch_alloc_mapped: Mapped, vkgdr_torch_alloc_host: Host, vkgdr_torch_alloc_device: Device);

/// Frees memory of any of the functions above, after the earlier work of a stream.
#[unsafe(no_mangle)]
extern "C" fn vkgdr_torch_free(pointer: *mut c_void, _size: usize, _device: c_int, stream: *mut c_void) {
    quietly("freeing", || RESOURCE.free_at(pointer.addr() as u64, Some(stream.addr() as u64)));
}

/// Records that a stream uses memory: its release waits for that use.
#[unsafe(no_mangle)]
extern "C" fn vkgdr_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    quietly("recording a stream", || RESOURCE.record_stream(pointer.addr() as u64, stream.addr() as u64));
}
