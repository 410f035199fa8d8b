//! `Shared`: one allocation, shared by Python objects, with a count of its users.
//!
//! Every view holds a [`Use`]; dropping the last one frees the memory. A forced free releases the memory while views
//! exist; accessors then return an error. No lock is held across a wait or while Python code runs, so a thread that
//! holds the GIL may take any of them.
#![forbid(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use vkgdr::{Memory, MemoryKind, StreamRef};

use crate::error::{Failure, Result};
use crate::logging;
use crate::registry::Registry;

/// The error message for memory that was freed.
pub(crate) const FREED: &str = "the memory was freed";

/// Live allocations by device address, as soon as the address was exposed.
static BY_ADDRESS: Registry<Shared> = Registry::new();
/// Live chunks of pools, by id.
static PIECES: Registry<Shared> = Registry::new();

/// Whether a pool stopped holding: freeing a chunk may then release its block.
static POOLS_GIVE_BACK: AtomicBool = AtomicBool::new(false);

/// Records that a pool stopped holding.
pub(crate) fn pools_give_back() {
    POOLS_GIVE_BACK.store(true, Ordering::Relaxed);
}

/// An allocation and its properties, which are constant until the memory is freed.
pub(crate) struct Shared {
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
    pooled: bool,
    users: AtomicUsize,
    gone: AtomicBool,
    /// None once freed. An operation clones it before it waits.
    backing: Mutex<Option<Backing>>,
}

/// Python objects that must live as long as the memory: a context, a stream, the owner of foreign memory.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Py<PyAny>>>);

impl Drop for Kept {
    fn drop(&mut self) {
        let objects = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !objects.is_empty() {
            // At once if this thread is attached; otherwise PyO3 defers the decrements to the next attached thread.
            logging::attached(|_| drop(objects));
        }
    }
}

/// The memory and the objects that it needs. The order of the fields drops the memory first, so the kept objects
/// outlive the last user of the memory.
#[derive(Clone)]
pub(crate) struct Backing {
    pub(crate) whose: Whose,
    pub(crate) kept: Arc<Kept>,
}

/// The owner of the memory.
#[derive(Clone)]
pub(crate) enum Whose {
    Ours(Arc<Memory>),
    /// Device memory that another library allocated and keeps alive.
    Foreign,
    /// An empty range, without an allocation.
    Nothing,
}

impl Backing {
    /// This package's memory; an error for memory of another library and for an empty range.
    pub(crate) fn ours(&self) -> Result<&Memory> {
        match &self.whose {
            Whose::Ours(memory) => Ok(memory),
            Whose::Nothing => Err(Failure::Invalid("the memory is empty".into())),
            Whose::Foreign => {
                let text = "the memory was allocated by another library: it has only a device pointer";
                Err(Failure::Invalid(text.into()))
            }
        }
    }

    /// Records that a stream uses the memory: its release waits for that use.
    pub(crate) fn note_use(&self, stream: StreamRef) {
        if let Whose::Ours(memory) = &self.whose {
            memory.record_use(stream.raw());
        }
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Shared {
    /// Shares a dedicated allocation.
    pub(crate) fn ours(memory: Memory) -> Use {
        let shared = Arc::new(Self::of(memory, false));
        // Registers the address; cannot fail, as nothing else can have freed the memory yet.
        let _ = shared.device_ptr();
        Use::first(shared)
    }

    /// Shares a chunk of a pool.
    pub(crate) fn pooled(memory: Memory) -> Use {
        let shared = Arc::new(Self::of(memory, true));
        PIECES.add(shared.id, &shared);
        Use::first(shared)
    }

    fn of(memory: Memory, pooled: bool) -> Self {
        Self {
            id: next_id(),
            kind: memory.kind(),
            len: memory.len(),
            device: memory.owner().device(),
            device_ptr: OnceLock::new(),
            host_ptr: memory.host_ptr().map(|pointer| pointer.addr().get()),
            coherent: memory.is_coherent(),
            atom: memory.non_coherent_atom_size(),
            pooled,
            users: AtomicUsize::new(1),
            gone: AtomicBool::new(false),
            backing: Mutex::new(Some(Backing { whose: Whose::Ours(Arc::new(memory)), kept: Arc::default() })),
        }
    }

    /// Shares device memory of another library, which `keep` keeps alive.
    pub(crate) fn foreign(device: i32, device_ptr: u64, len: usize, keep: Py<PyAny>) -> Use {
        let bare = Self::bare(next_id(), MemoryKind::Device, device, Whose::Foreign);
        let shared = Self { device_ptr: OnceLock::from(device_ptr), len, ..bare };
        shared.keep(keep);
        Use::first(Arc::new(shared))
    }

    /// Empty memory, which has no addresses.
    pub(crate) fn nothing(kind: MemoryKind, device: i32) -> Use {
        let host_ptr = kind.has_host_view().then_some(0);
        Use::first(Arc::new(Self { host_ptr, ..Self::bare(next_id(), kind, device, Whose::Nothing) }))
    }

    /// Memory that is freed from the start.
    pub(crate) fn never() -> Arc<Self> {
        let bare = Self::bare(0, MemoryKind::Device, 0, Whose::Nothing);
        Arc::new(Self { users: AtomicUsize::new(0), gone: AtomicBool::new(true), backing: Mutex::default(), ..bare })
    }

    fn bare(id: u64, kind: MemoryKind, device: i32, whose: Whose) -> Self {
        Self {
            id,
            kind,
            len: 0,
            device,
            device_ptr: OnceLock::from(0),
            host_ptr: None,
            coherent: true,
            atom: 1,
            pooled: false,
            users: AtomicUsize::new(1),
            gone: AtomicBool::new(false),
            backing: Mutex::new(Some(Backing { whose, kept: Arc::default() })),
        }
    }

    /// Every live allocation of this package.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        let whole = BY_ADDRESS.all().into_iter().filter(|shared| !shared.pooled);
        PIECES.all().into_iter().chain(whole).collect()
    }

    /// The allocation with this id.
    pub(crate) fn find(id: u64) -> Option<Use> {
        Self::all().into_iter().find(|shared| shared.id == id).and_then(Use::join)
    }

    /// The allocation that contains `len` bytes at a device address, and their offset in it.
    pub(crate) fn find_device(address: u64, len: usize) -> Option<(Use, usize)> {
        let shared = BY_ADDRESS.at_or_before(address)?;
        let offset = usize::try_from(address - shared.device_ptr.get()?).ok()?;
        shared.within(offset, len)
    }

    /// The allocation that contains `len` bytes at a host address, and their offset in it. A linear search: a second
    /// table would slow down every allocation.
    pub(crate) fn find_host(address: usize, len: usize) -> Option<(Use, usize)> {
        let start = |shared: &Arc<Self>| shared.host_ptr.filter(|&start| start <= address);
        let nearest = Self::all().into_iter().filter(|shared| start(shared).is_some()).max_by_key(start)?;
        let offset = address - nearest.host_ptr?;
        nearest.within(offset, len)
    }

    fn within(self: Arc<Self>, offset: usize, len: usize) -> Option<(Use, usize)> {
        // One past the end is outside: it may be the first byte of the next allocation.
        let fits = offset < self.len && len <= self.len - offset;
        if fits { Some((Use::join(self)?, offset)) } else { None }
    }

    /// The device address of the first byte. Exposes it: from now on the memory is found by its address.
    pub(crate) fn device_ptr(self: &Arc<Self>) -> Result<u64> {
        if let Some(&known) = self.device_ptr.get() {
            return Ok(known);
        }
        // Under the lock: a forced free in between would remove the entry before it is added.
        self.briefly(|backing| {
            let address = backing.ours()?.device_ptr();
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
        if self.pooled {
            PIECES.remove(self.id, self);
        }
    }

    /// Whether the memory was freed.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The number of uses.
    pub(crate) fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Backing>> {
        self.backing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory. It is not released while the returned value lives, not even by a forced free.
    pub(crate) fn backing(&self) -> Result<Backing> {
        self.lock().clone().ok_or(Failure::Gone(FREED))
    }

    /// Runs `work` on the memory, under the lock: `work` must not wait or run Python code.
    pub(crate) fn briefly<T>(&self, work: impl FnOnce(&Backing) -> Result<T>) -> Result<T> {
        self.lock().as_ref().map_or(Err(Failure::Gone(FREED)), work)
    }

    /// Keeps a Python object alive until the memory is freed.
    pub(crate) fn keep(&self, object: Py<PyAny>) {
        let kept = self.lock().as_ref().map(|backing| backing.kept.clone());
        let Some(kept) = kept else { return };
        let mut objects = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Once, however often the memory is bound to the same stream.
        if !objects.iter().any(|kept| kept.is(&object)) {
            objects.push(object);
        }
    }

    /// Reports the kept objects to the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // Locked by a thread that uses the memory, which is not garbage then.
        let Ok(backing) = self.backing.try_lock() else { return Ok(()) };
        let Some(backing) = backing.as_ref() else { return Ok(()) };
        let Ok(objects) = backing.kept.0.try_lock() else { return Ok(()) };
        objects.iter().try_for_each(|object| visit.call(object))
    }

    /// Frees the memory although views may exist. Detaches from the interpreter where that may wait.
    pub(crate) fn force(&self, py: Python<'_>) -> Result<()> {
        if self.goes_at_once() { self.take_away() } else { py.detach(|| self.take_away()) }
    }

    /// Whether the release makes no driver call, so that detaching would cost more than it gains.
    fn goes_at_once(&self) -> bool {
        let bound = |backing: &Backing| Ok(backing.ours()?.bound_stream().is_some());
        self.pooled && !POOLS_GIVE_BACK.load(Ordering::Relaxed) && matches!(self.briefly(bound), Ok(false))
    }

    /// Frees the memory, whether or not it has users. A second call does nothing.
    fn take_away(&self) -> Result<()> {
        self.gone.store(true, Ordering::Release);
        let Some(Backing { whose, kept }) = self.lock().take() else { return Ok(()) };
        let freed = match whose {
            Whose::Ours(memory) => {
                // Before the release: another allocation may get its addresses right after.
                self.forget();
                // If an operation still holds a clone, the memory is released with that clone.
                Arc::into_inner(memory).map_or(Ok(()), Memory::free)
            }
            Whose::Foreign | Whose::Nothing => Ok(()),
        };
        drop(kept);
        Ok(freed?)
    }
}

/// One user of an allocation. The last one frees it.
pub(crate) struct Use {
    shared: Arc<Shared>,
    /// Whether this use was given up already.
    left: bool,
}

impl Use {
    const fn first(shared: Arc<Shared>) -> Self {
        Self { shared, left: false }
    }

    /// Adds a use; None if there is no use left, so that the memory is being freed.
    pub(crate) fn join(shared: Arc<Shared>) -> Option<Self> {
        let more = |users: usize| (users > 0).then_some(users + 1);
        let joined = shared.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        joined.is_ok().then(|| Self::first(shared))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Gives the use up; the last one frees the memory and returns the release's error.
    pub(crate) fn release(mut self, py: Python<'_>) -> Result<()> {
        if self.leave() { self.shared.force(py) } else { Ok(()) }
    }

    /// Frees the memory although other uses exist.
    pub(crate) fn force(self, py: Python<'_>) -> Result<()> {
        self.shared.force(py)
    }

    /// Leaks the memory: it is never freed.
    pub(crate) fn leak(self) {
        let _leaked = ManuallyDrop::new(self);
    }

    /// Gives the use up; true if it was the last one, so that the caller must free the memory.
    fn leave(&mut self) -> bool {
        !std::mem::replace(&mut self.left, true) && self.shared.users.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        self.shared.users.fetch_add(1, Ordering::Relaxed);
        Self::first(self.shared.clone())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if !self.leave() {
            return;
        }
        // A view may be dropped on any thread, including one that is unknown to Python.
        let freed = logging::attached(|py| self.shared.force(py)).unwrap_or_else(|| self.shared.take_away());
        if let Err(failure) = freed {
            log::warn!("freeing memory: {failure:?}");
        }
    }
}
