//! One allocation as Python's objects share it: who uses it, and when it goes.
//!
//! Every view holds a [`Use`]; the memory goes with the last of them. A forced free takes the memory away from under
//! the views, after which every accessor that comes here is refused. No lock is held while anything waits, so that
//! they may be taken by threads that hold up all others.
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

/// What is said of memory that is gone.
pub(crate) const FREED: &str = "the memory was freed";

/// The live allocations whose device addresses somebody knows, by those.
static BY_ADDRESS: Registry<Shared> = Registry::new();
/// The pieces of pools in use, by their numbers.
static PIECES: Registry<Shared> = Registry::new();

/// Whether some pool has stopped holding: then a piece that goes may take a block with it.
static POOLS_GIVE_BACK: AtomicBool = AtomicBool::new(false);

/// Says that a pool stops holding.
pub(crate) fn pools_give_back() {
    POOLS_GIVE_BACK.store(true, Ordering::Relaxed);
}

/// An allocation and what is known of it. The facts hold until the memory is gone.
pub(crate) struct Shared {
    /// A number that no other allocation of the process ever has; 0 for memory that never was.
    pub(crate) id: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) len: usize,
    /// The CUDA device number.
    pub(crate) device: i32,
    /// Unknown until somebody asks, for a piece of a pool: one that nobody asked for is free at once.
    device_ptr: OnceLock<u64>,
    pub(crate) host_ptr: Option<usize>,
    pub(crate) coherent: bool,
    pub(crate) atom: usize,
    pooled: bool,
    users: AtomicUsize,
    gone: AtomicBool,
    /// None once it is gone. Operations hold a reference of their own while they wait.
    backing: Mutex<Option<Backing>>,
}

/// Python objects that must live as long as the memory: a context, a stream, the owner of foreign memory.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Py<PyAny>>>);

impl Drop for Kept {
    fn drop(&mut self) {
        let objects = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !objects.is_empty() {
            // Now, if this thread runs Python; else when Python runs next.
            logging::attached(|_| drop(objects));
        }
    }
}

/// The memory and what it needs. Whoever has a clone lets go of the memory first (the fields' order), so that what is
/// kept goes after the memory's last user.
#[derive(Clone)]
pub(crate) struct Backing {
    pub(crate) whose: Whose,
    pub(crate) kept: Arc<Kept>,
}

/// Whose memory it is.
#[derive(Clone)]
pub(crate) enum Whose {
    Ours(Arc<Memory>),
    /// Device memory that something else allocated and keeps.
    Foreign,
    /// No bytes at all.
    Nothing,
}

impl Backing {
    /// Our own memory, or the error that it is not.
    pub(crate) fn ours(&self) -> Result<&Memory> {
        match &self.whose {
            Whose::Ours(memory) => Ok(memory),
            Whose::Nothing => Err(Failure::Invalid("the memory is empty".into())),
            Whose::Foreign => {
                let text = "this memory was allocated by another library: it has only a device pointer";
                Err(Failure::Invalid(text.into()))
            }
        }
    }

    /// Notes that a stream uses the memory, so that it does not go before.
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
    /// Takes an allocation over.
    pub(crate) fn ours(memory: Memory) -> Use {
        let shared = Arc::new(Self::of(memory, false));
        // It is there: nobody has taken it away yet.
        let _ = shared.device_ptr();
        Use::first(shared)
    }

    /// Takes a piece of a pool over.
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

    /// Describes device memory that `keep` keeps alive.
    pub(crate) fn foreign(device: i32, device_ptr: u64, len: usize, keep: Py<PyAny>) -> Use {
        let bare = Self::bare(next_id(), MemoryKind::Device, device, Whose::Foreign);
        let shared = Self { device_ptr: OnceLock::from(device_ptr), len, ..bare };
        shared.keep(keep);
        Use::first(Arc::new(shared))
    }

    /// Memory of no bytes, which has no addresses.
    pub(crate) fn nothing(kind: MemoryKind, device: i32) -> Use {
        let host_ptr = kind.has_host_view().then_some(0);
        Use::first(Arc::new(Self { host_ptr, ..Self::bare(next_id(), kind, device, Whose::Nothing) }))
    }

    /// Memory that is gone from the beginning.
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

    /// The allocation with this number.
    pub(crate) fn find(id: u64) -> Option<Use> {
        Self::all().into_iter().find(|shared| shared.id == id).and_then(Use::join)
    }

    /// The allocation that `len` bytes at a device address lie in, and where in it.
    pub(crate) fn find_device(address: u64, len: usize) -> Option<(Use, usize)> {
        let shared = BY_ADDRESS.at_or_before(address)?;
        let offset = usize::try_from(address - shared.device_ptr.get()?).ok()?;
        shared.within(offset, len)
    }

    /// The allocation that `len` bytes at a host address lie in, and where in it. Looks at all of them: a second table
    /// would make each allocation slower.
    pub(crate) fn find_host(address: usize, len: usize) -> Option<(Use, usize)> {
        let start = |shared: &Arc<Self>| shared.host_ptr.filter(|&start| start <= address);
        let nearest = Self::all().into_iter().filter(|shared| start(shared).is_some()).max_by_key(start)?;
        let offset = address - nearest.host_ptr?;
        nearest.within(offset, len)
    }

    fn within(self: Arc<Self>, offset: usize, len: usize) -> Option<(Use, usize)> {
        // One past the end is not within: it may be the next allocation's first byte.
        let fits = offset < self.len && len <= self.len - offset;
        if fits { Some((Use::join(self)?, offset)) } else { None }
    }

    /// The first byte's address on the device, by which the memory is found from now on.
    pub(crate) fn device_ptr(self: &Arc<Self>) -> Result<u64> {
        if let Some(&known) = self.device_ptr.get() {
            return Ok(known);
        }
        // Under the lock, so that the memory is not taken away in between, and forgotten before it is known.
        self.briefly(|backing| {
            let address = backing.ours()?.device_ptr();
            if self.device_ptr.set(address).is_ok() {
                BY_ADDRESS.add(address, self);
            }
            Ok(address)
        })
    }

    /// Takes the memory out of the tables.
    fn forget(&self) {
        if let Some(&address) = self.device_ptr.get() {
            BY_ADDRESS.remove(address, self);
        }
        if self.pooled {
            PIECES.remove(self.id, self);
        }
    }

    /// Whether the memory was taken away by force.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// How many views there are.
    pub(crate) fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Backing>> {
        self.backing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory. It stays for as long as this is held, also when it is freed by force meanwhile.
    pub(crate) fn backing(&self) -> Result<Backing> {
        self.lock().clone().ok_or(Failure::Gone(FREED))
    }

    /// Runs `work` on the memory, under the lock: for what neither waits nor runs Python.
    pub(crate) fn briefly<T>(&self, work: impl FnOnce(&Backing) -> Result<T>) -> Result<T> {
        self.lock().as_ref().map_or(Err(Failure::Gone(FREED)), work)
    }

    /// Keeps a Python object alive as long as the memory.
    pub(crate) fn keep(&self, object: Py<PyAny>) {
        let kept = self.lock().as_ref().map(|backing| backing.kept.clone());
        let Some(kept) = kept else { return };
        let mut objects = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Bound to the same stream again and again, it is kept once.
        if !objects.iter().any(|kept| kept.is(&object)) {
            objects.push(object);
        }
    }

    /// Shows the garbage collector what is kept.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // Held by a thread that is adding to it: not garbage, then.
        let Ok(backing) = self.backing.try_lock() else { return Ok(()) };
        let Some(backing) = backing.as_ref() else { return Ok(()) };
        let Ok(objects) = backing.kept.0.try_lock() else { return Ok(()) };
        objects.iter().try_for_each(|object| visit.call(object))
    }

    /// Takes the memory away from under all views. Other threads may run Python meanwhile.
    pub(crate) fn force(&self, py: Python<'_>) -> Result<()> {
        if self.goes_at_once() { self.take_away() } else { py.detach(|| self.take_away()) }
    }

    /// Whether releasing calls no driver: not worth letting other threads run.
    fn goes_at_once(&self) -> bool {
        let bound = |backing: &Backing| Ok(backing.ours()?.bound_stream().is_some());
        self.pooled && !POOLS_GIVE_BACK.load(Ordering::Relaxed) && matches!(self.briefly(bound), Ok(false))
    }

    /// Takes the memory away, whoever uses it, and releases it. A second call does nothing.
    fn take_away(&self) -> Result<()> {
        self.gone.store(true, Ordering::Release);
        let Some(Backing { whose, kept }) = self.lock().take() else { return Ok(()) };
        let freed = match whose {
            Whose::Ours(memory) => {
                // Before it goes: its addresses may be another's right after.
                self.forget();
                // Where an operation still holds it, it goes at its end.
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
    /// Whether this use has been given up already.
    left: bool,
}

impl Use {
    const fn first(shared: Arc<Shared>) -> Self {
        Self { shared, left: false }
    }

    /// A further use of memory that is in use.
    pub(crate) fn join(shared: Arc<Shared>) -> Option<Self> {
        let more = |users: usize| (users > 0).then_some(users + 1);
        let joined = shared.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        joined.is_ok().then(|| Self::first(shared))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Gives the use up, and says what went wrong if it was the last.
    pub(crate) fn release(mut self, py: Python<'_>) -> Result<()> {
        if self.leave() { self.shared.force(py) } else { Ok(()) }
    }

    /// Takes the memory away from under all views.
    pub(crate) fn force(self, py: Python<'_>) -> Result<()> {
        self.shared.force(py)
    }

    /// Leaves the memory to the end of the process.
    pub(crate) fn leak(self) {
        let _leaked = ManuallyDrop::new(self);
    }

    /// Gives the use up. Whether it was the last, so that the memory has to go.
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
        // A view may end on any thread, also on one without Python.
        let freed = logging::attached(|py| self.shared.force(py)).unwrap_or_else(|| self.shared.take_away());
        if let Err(failure) = freed {
            log::warn!("freeing memory: {failure:?}");
        }
    }
}
