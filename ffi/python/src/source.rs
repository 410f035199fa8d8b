//! `Source`: memory by its device address, for libraries that allocate and free by address.
//!
//! Memory is allocated in the primary context of its device, which is that of numba, PyTorch, CuPy, RMM, Warp and
//! cuda.core. Views find it by its address and keep it alive.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use vkgdr::{AllocateOptions, DropPolicy, Error, Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::allocation::{Allocation, Use};
use crate::detached::Detached;
use crate::error::{Failure, INVALID_CONTEXT, Result, Size, in_bytes};
use crate::event::make_room;
use crate::handle::{self, Handle};
use crate::raw_stream::{NULL_STREAM, PER_THREAD_STREAM, Stream, raw_stream};

/// Retired memory of more allocations or bytes than this is released by the next allocation.
const MAX_RETIRED: (usize, usize) = (64, 32 << 20);

/// The alignment of addresses, that of `cuMemAlloc` (CUDA C++ Programming Guide, "Device Memory Accesses").
const ALIGNMENT: usize = 256;

/// An open GPU, with a pool for each kind if the source has pools.
struct Gpu {
    handle: Vkgdr,
    pools: Vec<Pool>,
}

/// Memory in use, by its device address.
#[derive(Default)]
struct Held {
    uses: HashMap<u64, Use>,
    /// Memory of a context that was reset, where the driver gave the address out again. Its owner will free it still: the first
    /// free of the address is taken for that, so that the new memory is never freed in its stead.
    replaced: Vec<(u64, Use)>,
}

impl Held {
    fn insert(&mut self, address: u64, used: Use) {
        if let Some(old) = self.uses.insert(address, used) {
            self.replaced.push((address, old));
        }
    }

    fn remove(&mut self, address: u64) -> Option<Use> {
        match self.replaced.iter().position(|(at, _)| *at == address) {
            Some(oldest) => Some(self.replaced.remove(oldest).1),
            None => self.uses.remove(&address),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Use> {
        self.uses.values().chain(self.replaced.iter().map(|(_, used)| used))
    }
}

/// Allocates memory of one kind, or of the first of several that is available, and frees it by its address.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct Source {
    kind: MemoryKind,
    others: Vec<MemoryKind>,
    pooled: bool,
    /// By device number. Dropping a pool or the handle of a primary context may wait.
    gpus: Detached<Mutex<BTreeMap<i32, Arc<Gpu>>>>,
    held: Mutex<Held>,
    /// What was freed by `retire_at` and not released yet. Dropping it may wait.
    retired: Detached<Mutex<Vec<Use>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device of the current context, or device 0 if no context is current.
fn current_device() -> Result<i32> {
    match Vkgdr::open_current_context(OpenFlags::empty()) {
        Ok(gpu) => Ok(gpu.device()),
        Err(error) if error.cuda_code() == Some(INVALID_CONTEXT) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

impl Source {
    pub(crate) fn of(kind: MemoryKind, others: Vec<MemoryKind>, pooled: bool) -> Self {
        Self {
            kind,
            others,
            pooled,
            gpus: Detached::new(Mutex::default()),
            held: Mutex::default(),
            retired: Detached::new(Mutex::default()),
        }
    }

    /// The GPU, opened on its first use, and again after its primary context was reset: a pool's memory is gone then, too. The
    /// lock is not held over calls of the driver.
    fn gpu(&self, device: i32) -> Result<Arc<Gpu>> {
        let known = lock(&self.gpus).get(&device).cloned();
        if let Some(gpu) = known.as_ref().filter(|gpu| !gpu.handle.context_is_destroyed()) {
            return Ok(gpu.clone());
        }
        let handle = Vkgdr::open_primary_context(device, OpenFlags::empty())?;
        let pools = if self.pooled { self.pools(&handle)? } else { Vec::new() };
        let opened = Arc::new(Gpu { handle, pools });
        let mut gpus = lock(&self.gpus);
        // Another thread may have opened it meanwhile. What is not kept is dropped after the lock.
        match gpus.get(&device) {
            Some(other) if !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, other)) => Ok(other.clone()),
            _ => {
                let of_destroyed_context = gpus.insert(device, opened.clone());
                drop(gpus);
                drop(of_destroyed_context);
                Ok(opened)
            }
        }
    }

    /// A pool of each kind that the GPU has.
    fn pools(&self, handle: &Vkgdr) -> Result<Vec<Pool>> {
        let (mut pools, mut missing) = (Vec::new(), None);
        for &kind in std::iter::once(&self.kind).chain(&self.others) {
            match Pool::new(handle, PoolOptions::new(kind).alignment(ALIGNMENT)) {
                Ok(pool) => pools.push(pool),
                Err(error) if handle.lacks(kind, &error) => {
                    missing.get_or_insert(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        match missing.filter(|_| pools.is_empty()) {
            Some(error) => Err(error.into()),
            None => Ok(pools),
        }
    }

    fn take(&self, gpu: &Gpu, len: usize, stream: Option<u64>) -> Result<Use> {
        if gpu.pools.is_empty() {
            let options = AllocateOptions::new(self.kind).fallback(self.others.iter().copied());
            return Ok(Allocation::of(Memory::allocate_with(&gpu.handle, len, options)?, false));
        }
        let mut refusal = None;
        for pool in &gpu.pools {
            let memory = match stream.filter(|&stream| stream != PER_THREAD_STREAM) {
                // SAFETY: the caller keeps the stream alive until the memory is freed, which ends the binding.
                Some(stream) => match unsafe { pool.allocate_on_raw(len, raw_stream(stream)) } {
                    // A stream of another context: nothing can be reused on it.
                    Err(Error::ForeignStream) => pool.allocate(len),
                    other => other,
                },
                None => pool.allocate(len),
            };
            match memory {
                Ok(memory) => return Ok(Allocation::of(memory, false)),
                Err(error) if gpu.handle.lacks(pool.kind(), &error) => {
                    refusal.get_or_insert(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(refusal.map_or_else(|| Failure::Invalid("no kind is given".into()), Failure::Driver))
    }

    /// Allocates `len` bytes and returns their device address; 0 for 0 bytes. `device` is that of the current context by
    /// default, or 0. A pool may lend memory that earlier work of `stream` still uses; without one, `stream` is ignored.
    pub(crate) fn allocate_at(&self, len: usize, device: Option<i32>, stream: Option<u64>) -> Result<u64> {
        if len == 0 {
            return Ok(0);
        }
        let device = device.map_or_else(current_device, Ok)?;
        let gpu = self.gpu(device)?;
        let is_much = {
            let retired = lock(&self.retired);
            let bytes: usize = retired.iter().map(|used| used.allocation().len).sum();
            retired.len() > MAX_RETIRED.0 || bytes > MAX_RETIRED.1
        };
        if is_much {
            self.release_retired();
        }
        let used = self.take(&gpu, len, stream)?;
        let address = used.allocation().device_ptr()?;
        if !address.is_multiple_of(ALIGNMENT as u64) {
            return Err(Failure::Invalid(format!(
                "the device address {address:#x} is not aligned to {ALIGNMENT} bytes"
            )));
        }
        lock(&self.held).insert(address, used);
        Ok(address)
    }

    /// Frees the memory at an address after the earlier work of a stream, which is not used after this call; without a
    /// stream, after all work of the context. Views keep the memory; it is then freed with the last one. Does nothing for
    /// address 0, and in a forked child.
    pub(crate) fn free_at(&self, address: u64, stream: Option<u64>) -> Result<()> {
        if address == 0 || vkgdr::is_forked() {
            return Ok(());
        }
        let used = lock(&self.held).remove(address);
        let used = used.ok_or_else(|| unknown(address))?;
        used.release_with(|memory, is_released| {
            let bound = memory.bound_stream().is_some();
            let stream = stream.filter(|&stream| is_released && stream != PER_THREAD_STREAM);
            // SAFETY: live during this call, which records the event that the release waits for.
            let follows = stream.is_some_and(|stream| unsafe { memory.bind_raw_stream(raw_stream(stream)) }.is_ok());
            if bound && !follows {
                forget_stream(memory);
            }
        })
    }

    /// Frees the memory at an address without calling a driver, so also while a stream is captured, which no driver tells of
    /// and a wait would end. It is released, after all work of the context, by a later allocation: when there is much of it, or
    /// no other memory. Does nothing for address 0, and in a forked child.
    pub(crate) fn retire_at(&self, address: u64) -> Result<()> {
        if address == 0 || vkgdr::is_forked() {
            return Ok(());
        }
        let used = lock(&self.held).remove(address).ok_or_else(|| unknown(address))?;
        lock(&self.retired).push(used);
        Ok(())
    }

    /// Releases retired memory.
    fn release_retired(&self) {
        // A statement of its own, so that the lock is not held over the release.
        let retired = take(&mut *lock(&self.retired));
        drop(retired);
    }

    /// Whether memory at this address was allocated here.
    pub(crate) fn has(&self, address: u64) -> bool {
        lock(&self.held).uses.contains_key(&address)
    }

    /// Records that a stream uses the memory at an address: its release waits for that use.
    pub(crate) fn record_at(&self, address: u64, stream: u64) -> Result<()> {
        if address == 0 || vkgdr::is_forked() {
            return Ok(());
        }
        let held = lock(&self.held);
        let allocation = held.uses.get(&address).ok_or_else(|| unknown(address))?.allocation().clone();
        drop(held);
        let storage = allocation.storage()?;
        // SAFETY: the caller keeps the stream alive until the memory is freed.
        let used_on = unsafe { storage.ours()?.stream(raw_stream(stream)) }?;
        storage.record_use(used_on, &Stream::of(stream))
    }
}

/// Lets views, and a later release, name no stream, since the bound one may be destroyed: the release waits for the context.
fn forget_stream(memory: &Memory) {
    // SAFETY: waits for all that the release may have to wait for.
    unsafe { memory.set_drop_policy(DropPolicy::WaitForContext) };
    // SAFETY: the legacy default stream lives as long as its context.
    let _ = unsafe { memory.bind_raw_stream(raw_stream(NULL_STREAM)) };
}

fn unknown(address: u64) -> Failure {
    Failure::Invalid(format!("no memory was allocated here with the device address {address:#x}, or it was freed"))
}

#[pymethods]
impl Source {
    #[new]
    fn new(kinds: &Bound<'_, PyAny>, pool: bool) -> Result<Self> {
        let (kind, others) = handle::kinds(kinds)?;
        Ok(Self::of(kind, others, pool))
    }

    /// As `allocate_at`. If memory or descriptors are exhausted, frees garbage and what finished copies keep, and tries once more.
    #[pyo3(signature = (size, device = None, stream = None))]
    fn allocate(&self, py: Python<'_>, size: Size, device: Option<i32>, stream: Option<u64>) -> Result<u64> {
        match py.detach(|| self.allocate_at(size.0, device, stream)) {
            Err(Failure::Driver(error)) if error.is_exhaustion() => {
                make_room(py)?;
                py.detach(|| self.release_retired());
                py.detach(|| self.allocate_at(size.0, device, stream))
            }
            other => other,
        }
    }

    #[pyo3(signature = (address, stream = None))]
    fn free(&self, py: Python<'_>, address: u64, stream: Option<u64>) -> Result<()> {
        py.detach(|| self.free_at(address, stream))
    }

    fn retire(&self, address: u64) -> Result<()> {
        self.retire_at(address)
    }

    fn record_stream(&self, address: u64, stream: u64) -> Result<()> {
        self.record_at(address, stream)
    }

    /// A new handle of a device, of its primary context; by default as `allocate`.
    #[pyo3(signature = (device = None))]
    fn handle(&self, py: Python<'_>, device: Option<i32>) -> Result<Handle> {
        let gpu = py.detach(|| self.gpu(device.map_or_else(current_device, Ok)?))?;
        Ok(Handle::of(gpu.handle.clone()))
    }

    /// Gives up the handles and the pools; memory in use stays valid. The next allocation opens them anew.
    fn close(&self, py: Python<'_>) {
        let gpus = take(&mut *lock(&self.gpus));
        py.detach(|| {
            self.release_retired();
            drop(gpus);
        });
    }

    /// The number of live allocations.
    fn __len__(&self) -> usize {
        let held = lock(&self.held);
        held.uses.len() + held.replaced.len()
    }

    fn __repr__(&self) -> String {
        let bytes = lock(&self.held).all().map(|used| used.allocation().len).sum();
        format!("<vkgdr._vkgdr.Source: {} memory, {} allocations of {}>", self.kind, self.__len__(), in_bytes(bytes))
    }
}
