//! `Allocation`: one allocation that several Python objects use, each with a `Use`.
//!
//! Every view holds a [`Use`]; dropping the last one frees the memory. A forced free releases the memory while views
//! exist; accessors then return an error. No lock is held across a wait or while Python code runs, so a thread that
//! holds the GIL may take any of them.
#![forbid(unsafe_code)]

mod uses;

use std::mem::replace;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use vkgdr::{Memory, MemoryKind};

use crate::addresses::Addresses;
use crate::deferral::defer;
use crate::detached::Detached;
use crate::error::{Failure, Result};
use crate::kept::Kept;
use crate::storage::{FREED, Owned, Storage};
use crate::totals;
pub(crate) use uses::Use;

/// Live allocations by each of their addresses that was asked for.
static LISTED: Addresses<Allocation> = Addresses::new();

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
    host_ptr: Option<usize>,
    pub(crate) coherent: bool,
    pub(crate) atom: usize,
    /// Whether every view of it is read-only, also one that is found by an address.
    pub(crate) readonly: bool,
    /// Whether it is in [`LISTED`] by its host address; by the device address it is as soon as that is set.
    listed: AtomicBool,
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
    /// All of a memory.
    pub(crate) fn of(memory: Memory, readonly: bool) -> Use {
        let (kind, len, device) = (memory.kind(), memory.len(), memory.owner().device());
        let is_retained = memory.owner().retains_context();
        totals::add(device, kind, len);
        Use::first(Arc::new(Self {
            device_ptr: OnceLock::new(),
            host_ptr: memory.host_ptr().map(|start| start.addr().get()),
            coherent: memory.is_coherent(),
            atom: memory.non_coherent_atom_size(),
            readonly,
            len,
            ..Self::bare(
                kind,
                device,
                Storage::Ours(Arc::new(Owned {
                    memory: Detached::in_context(memory, is_retained),
                    kept: Kept::default(),
                })),
            )
        }))
    }

    /// Device memory of another library, which `keep` keeps alive.
    pub(crate) fn foreign(device: i32, device_ptr: u64, len: usize, keep: Py<PyAny>) -> Use {
        let kept = Kept::default();
        kept.add(keep);
        let bare = Self::bare(MemoryKind::Device, device, Storage::Foreign(Arc::new(kept)));
        Use::first(Arc::new(Self { device_ptr: OnceLock::from(device_ptr), len, ..bare }))
    }

    /// Empty memory, which has no addresses.
    pub(crate) fn empty(kind: MemoryKind, device: i32) -> Use {
        let host_ptr = kind.has_host_view().then_some(0);
        Use::first(Arc::new(Self { host_ptr, ..Self::bare(kind, device, Storage::Empty) }))
    }

    /// Memory that is freed from the start.
    pub(crate) fn never() -> Arc<Self> {
        let bare = Self::bare(MemoryKind::Device, 0, Storage::Freed);
        Arc::new(Self { id: 0, users: AtomicUsize::new(0), freed: AtomicBool::new(true), ..bare })
    }

    fn bare(kind: MemoryKind, device: i32, storage: Storage) -> Self {
        Self {
            id: next_id(),
            kind,
            len: 0,
            device,
            device_ptr: OnceLock::from(0),
            host_ptr: None,
            coherent: true,
            atom: 1,
            readonly: false,
            listed: AtomicBool::new(false),
            users: AtomicUsize::new(1),
            freed: AtomicBool::new(false),
            storage: Mutex::new(storage),
        }
    }

    /// The allocation with this id.
    pub(crate) fn with_id(id: u64) -> Option<Use> {
        LISTED.all().into_iter().find(|allocation| allocation.id == id).and_then(Use::join)
    }

    /// The allocation that contains an address of the device or of the host, and the offset of the address in it.
    pub(crate) fn find(address: u64) -> Option<(Use, usize)> {
        let (allocation, offset) = LISTED.last_until(address)?;
        let offset = usize::try_from(offset).ok().filter(|&offset| offset < allocation.len)?;
        Some((Use::join(allocation)?, offset))
    }

    /// The allocation that contains `len` bytes at a device address, and their offset in it.
    pub(crate) fn find_device(address: u64, len: usize) -> Option<(Use, usize)> {
        Self::find_range(address, len, |allocation, offset| {
            let on_host = allocation.host_ptr.is_some_and(|start| (start + offset) as u64 == address);
            !on_host || allocation.device_ptr().is_ok_and(|start| start + offset as u64 == address)
        })
    }

    /// The allocation that contains `len` bytes at a host address, and their offset in it.
    pub(crate) fn find_host(address: usize, len: usize) -> Option<(Use, usize)> {
        Self::find_range(address as u64, len, |allocation, offset| {
            allocation.host_ptr.is_some_and(|start| start + offset == address)
        })
    }

    fn find_range(address: u64, len: usize, is_there: impl Fn(&Arc<Self>, usize) -> bool) -> Option<(Use, usize)> {
        // One past the end is outside: it may be the first byte of the next allocation. An empty range may end there.
        let (used, offset) = Self::find(address).or_else(|| {
            let (used, last) = Self::find(address.checked_sub(1).filter(|_| len == 0)?)?;
            Some((used, last + 1))
        })?;
        let whole = used.allocation().len;
        (offset <= whole && len <= whole - offset && is_there(used.allocation(), offset)).then_some((used, offset))
    }

    /// An allocation that contains the first or the last of `len` bytes at a device address, and the offset of the first byte
    /// if it is that one.
    pub(crate) fn overlapping(address: u64, len: usize) -> Option<(Use, Option<usize>)> {
        let last = address.checked_add((len as u64).checked_sub(1)?)?;
        let first = Self::find_device(address, 1).map(|(used, offset)| (used, Some(offset)));
        first.or_else(|| Self::find_device(last, 1).map(|(used, _)| (used, None)))
    }

    /// The host address of the first byte; None without a host view. Exposes it: from now on the memory is found by it.
    pub(crate) fn host_ptr(self: &Arc<Self>) -> Result<Option<usize>> {
        if let Some(address) = self.host_ptr
            && !self.listed.load(Ordering::Acquire)
        {
            self.add_to_list(address)?;
        }
        Ok(self.host_ptr)
    }

    /// Whether bytes of the host lie in the host view of a range of the memory.
    pub(crate) fn shares_bytes(&self, (offset, len): (usize, usize), bytes: (usize, usize)) -> bool {
        let start = self.host_ptr.map(|start| start + offset);
        start.is_some_and(|start| bytes.0 < start + len && start < bytes.0 + bytes.1)
    }

    /// The device address of the first byte. Exposes it: from now on the memory is found by it.
    pub(crate) fn device_ptr(self: &Arc<Self>) -> Result<u64> {
        if let Some(&known) = self.device_ptr.get() {
            return Ok(known);
        }
        // Under the lock: a forced free in between would remove the entry before it is added.
        self.briefly(|storage| {
            let address = storage.ours()?.device_ptr();
            LISTED.add(address, self);
            Ok(*self.device_ptr.get_or_init(|| address))
        })
    }

    #[cold]
    fn add_to_list(self: &Arc<Self>, address: usize) -> Result<()> {
        // Under the lock, as above.
        self.briefly(|storage| {
            if storage.memory().is_some() {
                LISTED.add(address as u64, self);
            }
            self.listed.store(true, Ordering::Release);
            Ok(())
        })
    }

    /// The id, by which the memory is found from now on, unless it was freed.
    pub(crate) fn exposed_id(self: &Arc<Self>) -> u64 {
        if let Ok(None) = self.host_ptr() {
            let _ = self.device_ptr();
        }
        self.id
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

    /// Reports the kept objects to the garbage collector. Not for forked children, where a thread that does not exist may hold
    /// the lock.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        self.lock().kept().map_or(Ok(()), |kept| kept.traverse(visit))
    }

    /// Frees the memory, whether or not it has users. A second call does nothing. Detaches `py` from the interpreter
    /// where that may wait.
    fn take_away(&self, py: Option<Python<'_>>) -> Result<()> {
        self.take_away_with(py, |_, _| ())
    }

    /// The same, and runs `prepare` on the memory before its release, which is told whether the release is this call's: an
    /// operation under way makes it otherwise.
    fn take_away_with(&self, py: Option<Python<'_>>, prepare: impl FnOnce(&Memory, bool)) -> Result<()> {
        self.freed.store(true, Ordering::Release);
        let storage = replace(&mut *self.lock(), Storage::Freed);
        let owned = match storage {
            Storage::Ours(owned) => owned,
            Storage::Foreign(_) | Storage::Empty | Storage::Freed => return Ok(()),
        };
        // Before the release: another allocation may get its addresses right after.
        if let Some(start) = self.host_ptr.filter(|_| self.listed.load(Ordering::Acquire)) {
            LISTED.remove(start as u64, self);
        }
        if let Some(&start) = self.device_ptr.get() {
            LISTED.remove(start, self);
        }
        totals::remove(self.device, self.kind, self.len);
        let owned = match Arc::try_unwrap(owned) {
            Ok(owned) => {
                prepare(&owned.memory, true);
                owned
            }
            Err(shared) => {
                // An operation holds a clone, too, with which the memory is released: after this, while this clone lives.
                prepare(&shared.memory, false);
                let Some(owned) = Arc::into_inner(shared) else { return Ok(()) };
                owned
            }
        };
        let Some(owned) = defer(owned) else { return Ok(()) };
        // Detaching costs more than a return to a pool.
        let py = py.filter(|_| !owned.memory.returns_at_once());
        owned.free(py)
    }

    /// Frees the memory although views may exist.
    pub(crate) fn force(&self, py: Python<'_>) -> Result<()> {
        self.take_away(Some(py))
    }
}
