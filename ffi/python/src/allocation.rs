//! `Allocation`: the bytes behind memory objects, which live as long as one of their views. They are found by their addresses.
//!
//! Each view holds an [`Arc`] of it, and the last one to be dropped frees the memory. A forced free takes the memory from all
//! of them, which then return errors. No lock is held over a wait or Python code.
#![expect(unsafe_code, reason = "makes an alias of memory by its address, and lets a release wait for more")]

use std::collections::BTreeMap;
use std::mem::{ManuallyDrop, take};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use pyo3::prelude::*;
use vkgdr::{DropPolicy, Memory, MemoryKind, StreamRef};

use crate::device::Vkgdr;
use crate::error::{Failure, Result};
use crate::interpreter::{Detached, WITHOUT_PYTHON, attached, detached, is_ending, lock};
use crate::stream::{IN_USE, Objects, Stream, bound_handle};

pub(crate) const FREED: Failure = Failure::Gone("the memory was freed");

/// Memory of this package, a range of another library's, or no bytes.
pub(crate) struct Allocation {
    /// Unique in the process and never reused.
    pub(crate) id: u64,
    pub(crate) len: usize,
    /// Whether every view of it is read-only, also one that is found by an address.
    pub(crate) readonly: bool,
    /// The CUDA device number.
    pub(crate) device: i32,
    pub(crate) kind: MemoryKind,
    /// The device address of another library's memory.
    pub(crate) foreign: Option<u64>,
    /// The handle that the memory was allocated from, if known.
    pub(crate) owner: Option<Py<Vkgdr>>,
    /// All of a memory of this package; `None` once freed. An operation clones it before it waits.
    memory: Mutex<Option<Memory>>,
    pub(crate) kept: Mutex<Objects>,
}

/// This package's live allocations, by the id of their memory.
static LIVE: Mutex<BTreeMap<u64, Weak<Allocation>>> = Mutex::new(BTreeMap::new());

/// [`LIVE`]; an error in a forked child, where a thread that does not exist may hold the lock.
fn live() -> Result<MutexGuard<'static, BTreeMap<u64, Weak<Allocation>>>> {
    if vkgdr::is_forked() { Err(vkgdr::Error::Forked.into()) } else { Ok(lock(&LIVE)) }
}

/// This package's live allocations; an error in a forked child.
pub(crate) fn all() -> Result<Vec<Arc<Allocation>>> {
    Ok(live()?.values().filter_map(Weak::upgrade).collect())
}

impl Allocation {
    fn new(device: i32, kind: MemoryKind, len: usize, readonly: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (id, memory, kept) = (NEXT.fetch_add(1, Ordering::Relaxed), Mutex::default(), Mutex::default());
        Self { id, len, readonly, device, kind, foreign: None, owner: None, memory, kept }
    }

    /// All of a memory, which is not found by its address. Its `owner` is kept.
    pub(crate) fn unlisted(memory: Memory, readonly: bool, owner: Option<Py<Vkgdr>>) -> Arc<Self> {
        let mut new = Self::new(memory.owner().device(), memory.kind(), memory.len(), readonly);
        (new.owner, new.memory) = (owner, Mutex::new(Some(memory)));
        Arc::new(new)
    }

    /// All of a memory, which is found by its address.
    pub(crate) fn of(memory: Memory, readonly: bool, owner: Option<Py<Vkgdr>>) -> Arc<Self> {
        let key = memory.id();
        let allocation = Self::unlisted(memory, readonly, owner);
        if let Ok(mut live) = live() {
            live.insert(key, Arc::downgrade(&allocation));
        }
        allocation
    }

    /// No bytes, of a kind of memory.
    pub(crate) fn empty(owner: &Bound<'_, Vkgdr>, kind: MemoryKind) -> Result<Arc<Self>> {
        let mut new = Self::new(owner.get().gpu()?.device(), kind, 0, false);
        new.owner = Some(owner.clone().unbind());
        Ok(Arc::new(new))
    }

    /// Device memory of another library.
    pub(crate) fn foreign(device: i32, address: u64, len: usize, readonly: bool) -> Arc<Self> {
        let mut new = Self::new(device, MemoryKind::Device, len, readonly);
        new.foreign = Some(address);
        Arc::new(new)
    }

    /// The allocation with the byte at an address, of the device or of the host, and the byte's offset in it.
    pub(crate) fn at(address: u64) -> Result<Option<(Arc<Self>, usize)>> {
        // SAFETY: plain bytes to Python, whose objects may be aliases.
        let found = unsafe { vkgdr::memory_of(address) };
        // This may be the last reference by now.
        let found = found.map(|(memory, offset)| (Detached::new(memory), offset));
        let live = live()?;
        Ok(found.as_ref().and_then(|(memory, offset)| Some((live.get(&memory.id())?.upgrade()?, *offset))))
    }

    /// Whether memory of this package was freed: there is nothing else to free.
    pub(crate) fn is_freed(&self) -> bool {
        self.with(|_| Ok(())).is_err()
    }

    /// Runs `work` on the memory, under its lock: `work` must not wait or run Python code.
    pub(crate) fn with<T>(&self, work: impl FnOnce(Option<&Memory>) -> Result<T>) -> Result<T> {
        let memory = lock(&self.memory);
        let has_none = self.foreign.is_some() || self.len == 0;
        if memory.is_some() || has_none { work(memory.as_ref()) } else { Err(FREED) }
    }

    /// The memory, which is not released while the returned value lives, not even by a forced free. Its drop may wait then.
    pub(crate) fn memory(&self) -> Result<Option<Memory>> {
        self.with(|memory| Ok(memory.cloned()))
    }

    /// `memory` of this allocation, or an error that says why it has none: it is another library's, or empty.
    pub(crate) fn required<M>(&self, memory: Option<M>) -> Result<M> {
        let foreign = "the memory was allocated by another library: it has only a device pointer";
        let text = if self.foreign.is_some() { foreign } else { "the memory is empty" };
        memory.ok_or_else(|| Failure::Invalid(text.into()))
    }

    pub(crate) fn is_coherent(&self) -> Result<bool> {
        self.with(|memory| Ok(memory.is_none_or(Memory::is_coherent)))
    }

    /// The CUDA context; `None` for memory of another library.
    pub(crate) fn context(&self) -> Result<Option<usize>> {
        self.with(|memory| Ok(memory.map(|memory| memory.context().addr())))
    }

    pub(crate) fn device_ptr(&self) -> Result<u64> {
        self.with(|memory| Ok(memory.map_or(self.foreign.unwrap_or(0), Memory::device_ptr)))
    }

    /// The host address; `None` without a host view.
    pub(crate) fn host_ptr(&self) -> Result<Option<usize>> {
        self.with(|memory| match memory {
            Some(memory) => Ok(memory.host_ptr().map(|start| start.addr().get())),
            None => Ok(self.kind.has_host_view().then_some(0)),
        })
    }

    /// The stream that the bytes are bound to, with its objects.
    pub(crate) fn bound(&self, py: Python<'_>) -> Result<Option<Stream>> {
        // Under the lock under which objects are removed, so that the handle's own is there.
        self.with(|memory| Ok(memory.and_then(|memory| lock(&self.kept).bound(py, memory))))
    }

    /// Runs `f` detached from the interpreter. The memory, and the streams that it is bound to, stay alive meanwhile.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(Option<&Memory>) -> Result<T> + Send,
    ) -> Result<T> {
        let memory = self.memory()?;
        lock(&self.kept).operations += 1;
        let result = py.detach(move || {
            // Dropped detached.
            let memory = memory;
            f(memory.as_ref())
        });
        let over = self.with(|memory| Ok(lock(&self.kept).end(memory)));
        // Not dropped under the lock: that may run Python code.
        let _over = over.unwrap_or_else(|_| lock(&self.kept).end(None));
        result
    }

    /// [`run`](Self::run) on memory of this package.
    pub(crate) fn run_ours<T: Send>(&self, py: Python<'_>, f: impl FnOnce(&Memory) -> Result<T> + Send) -> Result<T> {
        self.run(py, |memory| f(self.required(memory)?))
    }

    /// Records that a stream, of any context, uses the bytes: their release waits for that use. An object that may end it is kept.
    pub(crate) fn record_use(&self, memory: Option<&Memory>, stream: StreamRef, argument: &Stream) -> Result<()> {
        let Some(memory) = memory else { return Ok(()) };
        memory.record_use(stream)?;
        let is_bound = || bound_handle(memory) == Some(argument.handle);
        if argument.object.is_none()
            || argument.is_lasting
            || is_bound()
            || lock(&self.kept).used.iter().any(|used| used.is_same(argument))
        {
            return Ok(());
        }
        // At the interpreter's end nothing of it is dropped any more.
        if let Some(stream) = Python::try_attach(|py| argument.clone_ref(py)) {
            lock(&self.kept).used.push(stream);
        }
        Ok(())
    }

    /// The same for a stream that may end before the memory is freed unless it has objects. Without them the release names no
    /// stream of the memory's context, and waits for that.
    pub(crate) fn note_use(&self, memory: Option<&Memory>, stream: StreamRef, argument: &Stream) -> Result<()> {
        let Some(memory) = memory else { return Ok(()) };
        let is_own = stream.context() == memory.context();
        if argument.object.is_none() && !(is_own && bound_handle(memory) == Some(argument.handle)) {
            // SAFETY: waits for more than before.
            unsafe { memory.set_drop_policy(DropPolicy::WaitForContext) };
            if is_own {
                return Ok(());
            }
        }
        self.record_use(Some(memory), stream, argument)
    }

    /// Frees the memory, whether or not it has views. A second call does nothing. Detaches from the interpreter where it may wait.
    pub(crate) fn free(&self) -> vkgdr::Result<()> {
        let Some(memory) = lock(&self.memory).take() else { return Ok(()) };
        // Never in a forked child, which may have inherited the locks. Memory bound to a stream is not kept. Its free does not
        // wait, and records the event that the release waits for, since the stream may be destroyed right after.
        if !vkgdr::is_forked() {
            // Before the release: other memory may get the id right after.
            lock(&LIVE).remove(&memory.id());
            let mut retired = lock(&RETIRED);
            if retired.scopes > 0 && memory.drop_policy() != DropPolicy::WaitForStream {
                let freed = Self::unlisted(memory, self.readonly, None);
                *lock(&freed.kept) = take(&mut *lock(&self.kept));
                retired.memory.push(freed);
                return Ok(());
            }
        }
        // At the interpreter's end it is left to that of the process if neither its handle nor an owner keeps its context.
        if is_ending() && !memory.owner().retains_context() && lock(&self.kept).owners.is_empty() {
            let _left = ManuallyDrop::new(memory);
            return Ok(());
        }
        // Detaching costs more than a return to a pool.
        if memory.returns_at_once() { memory.free() } else { detached(|| memory.free()) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // On any thread, including one that is unknown to Python.
        if let Err(error) = self.free()
            && error.is_news()
        {
            log::warn!("freeing memory: {error}");
        }
        // At once if this thread is attached; otherwise PyO3 defers the decrements to the next attached thread.
        attached(|_| drop((take(&mut self.kept), self.owner.take())));
        if WITHOUT_PYTHON.get() && !lock(&self.kept).is_empty() {
            // PyO3 may take this thread for attached although another library has detached it. A resource's has no `owner`.
            lock(&IN_USE).push_back((None, Box::new(take(&mut self.kept))));
        }
    }
}

/// Memory that was freed where nothing may wait, and is not released yet.
struct Retired {
    /// The open scopes of `defer_cleanup`, as numba's, in which nothing waits.
    scopes: usize,
    /// What was freed in them, or by `Resource.retire`.
    memory: Vec<Arc<Allocation>>,
}

static RETIRED: Mutex<Retired> = Mutex::new(Retired { scopes: 0, memory: Vec::new() });

/// Frees memory with its last view, by [`release_retired`] at the earliest.
pub(crate) fn retire(allocation: Arc<Allocation>) {
    lock(&RETIRED).memory.push(allocation);
}

/// Releases retired memory if there is more of it than a number of allocations or of bytes. May wait.
pub(crate) fn release_retired((most, most_bytes): (usize, usize)) {
    let mut retired = lock(&RETIRED);
    let is_much =
        || retired.memory.len() > most || retired.memory.iter().map(|one| one.len).sum::<usize>() > most_bytes;
    let _released = (retired.scopes == 0 && is_much()).then(|| take(&mut retired.memory));
    drop(retired); // Before the memory.
}

/// Opens a scope of `defer_cleanup`, or closes one, and releases what is retired if it was the last one.
#[pyfunction]
pub(crate) fn defer_cleanup(begin: bool) {
    if vkgdr::is_forked() {
        return;
    }
    let mut retired = lock(&RETIRED);
    retired.scopes = if begin { retired.scopes + 1 } else { retired.scopes - 1 };
    drop(retired);
    release_retired((0, 0));
}
