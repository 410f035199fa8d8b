//! `Allocation`: one allocation that several Python objects use, each with a `Use`.
//!
//! Every view holds a [`Use`]; dropping the last one frees the memory. A forced free releases the memory while views
//! exist; accessors then return an error. No lock is held across a wait or while Python code runs, so a thread that
//! holds the GIL may take any of them.
#![forbid(unsafe_code)]

use std::mem::{ManuallyDrop, replace};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use vkgdr::{Memory, MemoryKind, PoolMemory};

use crate::deferral::defer;
use crate::error::{Failure, Result};
use crate::logging;
use crate::registry::{Addresses, Slots};
use crate::storage::{FREED, Kept, Lease, Owned, Storage};

/// Live allocations by device address, as soon as the address was exposed.
static BY_ADDRESS: Addresses<Allocation> = Addresses::new();
/// Live chunks of pools.
static CHUNKS: Slots<Allocation> = Slots::new();

/// Whether a pool stopped holding: freeing a chunk may then release its block.
static POOLS_GIVE_BACK: AtomicBool = AtomicBool::new(false);

/// Records that a pool stopped holding.
pub(crate) fn pools_give_back() {
    POOLS_GIVE_BACK.store(true, Ordering::Relaxed);
}

/// An allocation and its properties, which are constant until the memory is freed.
pub(crate) struct Allocation {
    /// Unique in the process and never reused; 0 for memory that was never allocated.
    pub(crate) id: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) len: usize,
    /// The CUDA device number.
    pub(crate) device: i32,
    /// Unset for a chunk of a pool until its address is exposed: until then the chunk can be reused at once when freed.
    device_ptr: OnceLock<u64>,
    pub(crate) host_ptr: Option<usize>,
    pub(crate) coherent: bool,
    pub(crate) atom: usize,
    /// A pool's chunk: its slot in [`CHUNKS`].
    slot: Option<usize>,
    users: AtomicUsize,
    freed: AtomicBool,
    /// An operation clones it before it waits.
    storage: Mutex<Storage>,
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Allocation {
    /// A dedicated allocation, of a pool or of none.
    pub(crate) fn dedicated(memory: Lease) -> Use {
        let allocation = Arc::new(Self::of(memory, None));
        // Registers the address; cannot fail, as nothing else can have freed the memory yet.
        let _ = allocation.device_ptr();
        Use::first(allocation)
    }

    /// A chunk of a pool.
    pub(crate) fn pooled(memory: PoolMemory) -> Use {
        Use::first(CHUNKS.add(|slot| Arc::new(Self::of(Lease::Pooled(memory), Some(slot)))))
    }

    fn of(memory: Lease, slot: Option<usize>) -> Self {
        Self {
            id: next_id(),
            kind: memory.kind(),
            len: memory.len(),
            device: memory.owner().device(),
            device_ptr: OnceLock::new(),
            host_ptr: memory.host_ptr().map(|pointer| pointer.addr().get()),
            coherent: memory.is_coherent(),
            atom: memory.non_coherent_atom_size(),
            slot,
            users: AtomicUsize::new(1),
            freed: AtomicBool::new(false),
            storage: Mutex::new(Storage::Ours(Arc::new(Owned { memory, kept: Kept::default() }))),
        }
    }

    /// Device memory of another library, which `keep` keeps alive.
    pub(crate) fn foreign(device: i32, device_ptr: u64, len: usize, keep: Py<PyAny>) -> Use {
        let kept = Kept::default();
        kept.add(keep);
        let bare = Self::bare(next_id(), MemoryKind::Device, device, Storage::Foreign(Arc::new(kept)));
        Use::first(Arc::new(Self { device_ptr: OnceLock::from(device_ptr), len, ..bare }))
    }

    /// Empty memory, which has no addresses.
    pub(crate) fn empty(kind: MemoryKind, device: i32) -> Use {
        let host_ptr = kind.has_host_view().then_some(0);
        Use::first(Arc::new(Self { host_ptr, ..Self::bare(next_id(), kind, device, Storage::Empty) }))
    }

    /// Memory that is freed from the start.
    pub(crate) fn never() -> Arc<Self> {
        let bare = Self::bare(0, MemoryKind::Device, 0, Storage::Freed);
        Arc::new(Self { users: AtomicUsize::new(0), freed: AtomicBool::new(true), ..bare })
    }

    fn bare(id: u64, kind: MemoryKind, device: i32, storage: Storage) -> Self {
        Self {
            id,
            kind,
            len: 0,
            device,
            device_ptr: OnceLock::from(0),
            host_ptr: None,
            coherent: true,
            atom: 1,
            slot: None,
            users: AtomicUsize::new(1),
            freed: AtomicBool::new(false),
            storage: Mutex::new(storage),
        }
    }

    /// Every live allocation of this package.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        let dedicated = BY_ADDRESS.all().into_iter().filter(|allocation| allocation.slot.is_none());
        CHUNKS.all().into_iter().chain(dedicated).collect()
    }

    /// The allocation with this id.
    pub(crate) fn find(id: u64) -> Option<Use> {
        Self::all().into_iter().find(|allocation| allocation.id == id).and_then(Use::join)
    }

    /// The allocation that contains `len` bytes at a device address, and their offset in it.
    pub(crate) fn find_device(address: u64, len: usize) -> Option<(Use, usize)> {
        let allocation = BY_ADDRESS.at_or_before(address)?;
        let offset = usize::try_from(address - allocation.device_ptr.get()?).ok()?;
        allocation.within(offset, len)
    }

    /// An allocation of which some of `len` bytes at a device address are a part, and the offset of the first of them,
    /// if the range does not begin before the allocation.
    pub(crate) fn overlapping(address: u64, len: usize) -> Option<(Use, Option<usize>)> {
        let last = address.checked_add((len as u64).checked_sub(1)?)?;
        let allocation = BY_ADDRESS.at_or_before(last)?;
        let start = *allocation.device_ptr.get()?;
        let offset = address.checked_sub(start).map(usize::try_from);
        let begins_within = |offset: usize| (offset < allocation.len).then_some(Some(offset));
        let offset = match offset {
            None => None,
            Some(offset) => begins_within(offset.ok()?)?,
        };
        Some((Use::join(allocation)?, offset))
    }

    /// The allocation that contains `len` bytes at a host address, and their offset in it. A linear search: a second
    /// table would slow down every allocation.
    pub(crate) fn find_host(address: usize, len: usize) -> Option<(Use, usize)> {
        let start = |allocation: &Arc<Self>| allocation.host_ptr.filter(|&start| start <= address);
        let nearest = Self::all().into_iter().filter(|found| start(found).is_some()).max_by_key(start)?;
        let offset = address - nearest.host_ptr?;
        nearest.within(offset, len)
    }

    fn within(self: Arc<Self>, offset: usize, len: usize) -> Option<(Use, usize)> {
        // One past the end is outside: it may be the first byte of the next allocation. An empty range may end there.
        let fits = (offset < self.len || len == 0) && offset <= self.len && len <= self.len - offset;
        if fits { Some((Use::join(self)?, offset)) } else { None }
    }

    /// The device address of the first byte. Exposes it: from now on the memory is found by its address.
    pub(crate) fn device_ptr(self: &Arc<Self>) -> Result<u64> {
        if let Some(&known) = self.device_ptr.get() {
            return Ok(known);
        }
        // Under the lock: a forced free in between would remove the entry before it is added.
        self.briefly(|storage| {
            let address = storage.ours()?.device_ptr();
            if self.device_ptr.set(address).is_ok() {
                BY_ADDRESS.add(address, self);
            }
            Ok(address)
        })
    }

    /// Removes the memory from the tables.
    fn forget(&self) {
        if let Some(&address) = self.device_ptr.get() {
            BY_ADDRESS.remove(address, self);
        }
        if let Some(slot) = self.slot {
            CHUNKS.remove(slot, self);
        }
    }

    /// Whether the memory was freed.
    pub(crate) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// The number of uses.
    pub(crate) fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Storage> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory. It is not released while the returned value lives, not even by a forced free.
    pub(crate) fn storage(&self) -> Result<Storage> {
        match &*self.lock() {
            Storage::Freed => Err(Failure::Gone(FREED)),
            storage => Ok(storage.clone()),
        }
    }

    /// Runs `work` on the memory, under the lock: `work` must not wait or run Python code.
    pub(crate) fn briefly<T>(&self, work: impl FnOnce(&Storage) -> Result<T>) -> Result<T> {
        match &*self.lock() {
            Storage::Freed => Err(Failure::Gone(FREED)),
            storage => work(storage),
        }
    }

    /// Keeps a Python object alive until the memory is freed.
    pub(crate) fn keep(&self, object: Py<PyAny>) {
        if let Ok(storage) = self.storage()
            && let Some(kept) = storage.kept()
        {
            kept.add(object);
        }
    }

    /// The kept objects.
    pub(crate) fn kept(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.lock().kept().map_or_else(Vec::new, |kept| kept.objects(py))
    }

    /// Reports the kept objects to the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // Locked by a thread that uses the memory, which is not garbage then.
        let Ok(storage) = self.storage.try_lock() else { return Ok(()) };
        storage.kept().map_or(Ok(()), |kept| kept.traverse(visit))
    }

    /// Frees the memory, whether or not it has users. A second call does nothing. Detaches `py` from the interpreter
    /// where that may wait.
    fn take_away(&self, py: Option<Python<'_>>) -> Result<()> {
        self.freed.store(true, Ordering::Release);
        let storage = replace(&mut *self.lock(), Storage::Freed);
        let Storage::Ours(owned) = storage else { return Ok(()) };
        // Before the release: another allocation may get its addresses right after.
        self.forget();
        // If an operation still holds a clone, the memory is released with that clone.
        let Some(owned) = Arc::into_inner(owned) else { return Ok(()) };
        let Some(Owned { memory, kept }) = defer(owned) else { return Ok(()) };
        let freed = match py {
            Some(py) if !self.goes_at_once(&memory) => py.detach(|| memory.free()),
            _ => memory.free(),
        };
        drop(kept);
        Ok(freed?)
    }

    /// Whether the release makes no driver call, so that detaching would cost more than it gains.
    fn goes_at_once(&self, memory: &Memory) -> bool {
        self.slot.is_some() && !POOLS_GIVE_BACK.load(Ordering::Relaxed) && memory.bound_stream().is_none()
    }

    /// Frees the memory although views may exist.
    pub(crate) fn force(&self, py: Python<'_>) -> Result<()> {
        self.take_away(Some(py))
    }
}

/// One user of an allocation. The last one frees it.
pub(crate) struct Use {
    allocation: Arc<Allocation>,
    /// Whether this use was given up already.
    left: bool,
}

impl Use {
    const fn first(allocation: Arc<Allocation>) -> Self {
        Self { allocation, left: false }
    }

    /// Adds a use; None if there is no use left, so that the memory is being freed.
    pub(crate) fn join(allocation: Arc<Allocation>) -> Option<Self> {
        let more = |users: usize| (users > 0).then_some(users + 1);
        #[allow(deprecated, reason = "its new name, try_update, needs Rust 1.95")]
        let joined = allocation.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        joined.is_ok().then(|| Self::first(allocation))
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// Gives the use up; the last one frees the memory and returns the release's error.
    pub(crate) fn release(mut self, py: Python<'_>) -> Result<()> {
        if self.leave() { self.allocation.force(py) } else { Ok(()) }
    }

    /// Gives the use up, without Python; the last one frees the memory. Runs `prepare` on the memory before, which is told
    /// whether this is the last use: then no other can begin.
    pub(crate) fn release_with(mut self, prepare: impl FnOnce(&Memory, bool)) -> Result<()> {
        let is_last = self.leave();
        if let Ok(storage) = self.allocation.storage()
            && let Some(memory) = storage.memory()
        {
            prepare(memory, is_last);
        }
        if is_last { self.allocation.take_away(None) } else { Ok(()) }
    }

    /// Frees the memory although other uses exist.
    pub(crate) fn force(self, py: Python<'_>) -> Result<()> {
        self.allocation.force(py)
    }

    /// Leaks the memory: it is never freed.
    pub(crate) fn leak(self) {
        let _leaked = ManuallyDrop::new(self);
    }

    /// Gives the use up; true if it was the last one, so that the caller must free the memory.
    fn leave(&mut self) -> bool {
        !replace(&mut self.left, true) && self.allocation.users.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        self.allocation.users.fetch_add(1, Ordering::Relaxed);
        Self::first(self.allocation.clone())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if !self.leave() {
            return;
        }
        // A view may be dropped on any thread, including one that is unknown to Python.
        let freed = logging::attached(|py| self.allocation.take_away(Some(py)))
            .unwrap_or_else(|| self.allocation.take_away(None));
        if let Err(failure) = freed {
            log::warn!("freeing memory: {failure:?}");
        }
    }
}
