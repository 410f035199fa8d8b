//! [`PoolInner`], which the clones of a pool share: slow paths of allocation and free, blocks, trimming, statistics.
//!
//! Locks are held for bookkeeping only: no driver is called, nothing dropped and no line logged under one.
#![expect(unsafe_code, reason = "uses a stream that the caller keeps alive")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

use cudarc::driver::sys::CUstream;

use super::arena::{Arena, Evicted};
use super::classes::Classes;
use super::options::PoolOptions;
use super::pending::PendingFrees;
use super::thread_cache::{self, CacheOwner, NO_CACHE, ThreadCache, Used};
use crate::chunk::{Block, ChunkPool, ChunkRef, FreeChunk, LastUse};
use crate::device::Collect;
use crate::driver::context::Context;
use crate::driver::{anchor, fork};
use crate::lock::{Lock, LockGuard};
use crate::report::report;
use crate::stream::binding::Binding;
use crate::sync::SingleFlight;
use crate::{DropPolicy, Error, Memory, MemoryKind, Result, StreamRef, Vkgdr};

/// The state that all clones of a pool, its threads' caches and its blocks share.
pub(super) struct PoolInner {
    pub(super) id: u32,
    pub(super) owner: Vkgdr,
    pub(super) kind: MemoryKind,
    pub(super) context: Context,
    pub(super) classes: Classes,
    pub(super) block_len: usize,
    shared: Shared,
}

/// The fields that threads change, on other cache lines than the fields that all of them read.
#[repr(align(128))]
struct Shared {
    arena: Lock<Arena>,
    pending: PendingFrees,
    caches: Lock<Vec<Arc<ThreadCache>>>,
    /// Taken by the thread that makes a block, while others that ran out wait for it.
    growth: SingleFlight,
    /// The chunks in use that no thread's cache counts; `used_bytes` is their length.
    used_chunks: AtomicIsize,
    used_bytes: AtomicIsize,
    /// The bytes of chunks that have an allocation of their own.
    dedicated_bytes: AtomicIsize,
}

/// A unique pool id; [`NO_CACHE`] once they are used up.
#[allow(deprecated, reason = "its new name, try_update, needs Rust 1.95")]
fn next_id() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let next = |last: u32| last.saturating_add(1).min(NO_CACHE);
    LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last))).map_or(NO_CACHE, next)
}

impl PoolInner {
    pub(super) fn new(owner: &Vkgdr, options: &PoolOptions) -> Result<Self> {
        fork::check()?;
        let kind = options.kind();
        let (classes, block_len) = options.plan(owner.memory_type(kind)?.granularity)?;
        let context = owner.allocation_context()?;
        // A pool without blocks has no other evidence that its context exists.
        drop(anchor::keep(context));
        let shared = Shared {
            arena: Lock::new(Arena::new(classes)),
            pending: PendingFrees::new(context, classes, owner.gpu().deferred_frees()),
            caches: Lock::default(),
            growth: SingleFlight::default(),
            used_chunks: AtomicIsize::new(0),
            used_bytes: AtomicIsize::new(0),
            dedicated_bytes: AtomicIsize::new(0),
        };
        Ok(Self { id: next_id(), owner: owner.clone(), kind, context, classes, block_len, shared })
    }

    /// Allocates `len` bytes when this thread's cache has no free chunk.
    #[cold]
    pub(super) fn allocate(self: &Arc<Self>, len: usize) -> Result<Memory> {
        fork::check()?;
        let Some(class) = self.classes.of(len) else { return self.allocate_dedicated(len) };
        let count = thread_cache::ensure_cache(self, self.id, &self.classes, class);
        let mut chunks = Vec::with_capacity(count);
        let chunk = loop {
            self.fetch(class, count, &mut chunks)?;
            if let Some(chunk) = chunks.pop() {
                break chunk;
            }
        };
        if !chunks.is_empty() {
            thread_cache::refill(self.id, class, &mut chunks);
            self.put(chunks);
        }
        Ok(self.allocated(chunk, len))
    }

    /// Turns a free chunk into memory of `len` bytes, and counts it as used.
    fn allocated(&self, chunk: FreeChunk, len: usize) -> Memory {
        self.count(1, len);
        Memory::allocated(ChunkRef::new(chunk, len))
    }

    /// Allocates `len` bytes as a dedicated allocation.
    fn allocate_dedicated(self: &Arc<Self>, len: usize) -> Result<Memory> {
        let block = match self.make_block(len) {
            Err(error) if self.may_need_room(&error) && self.free_held() => self.make_block(len),
            block => block,
        }?;
        let chunk = FreeChunk::dedicated(block);
        self.shared.dedicated_bytes.fetch_add(len.cast_signed(), Ordering::Relaxed);
        Ok(self.allocated(chunk, len))
    }

    /// Adds up to `count` free chunks to `into`, from a new block if necessary. Adds none if other threads take them
    /// first.
    fn fetch(self: &Arc<Self>, class: usize, count: usize, into: &mut Vec<FreeChunk>) -> Result<()> {
        if self.take(class, count, into) {
            return Ok(());
        }
        let _turn = self.shared.growth.begin();
        if self.take(class, count, into) {
            return Ok(());
        }
        self.put(self.pending().poll(usize::MAX));
        self.pending().fence_streams();
        if self.pending().for_context_bytes() >= self.block_len / 4 {
            self.put(self.wait_for_pending());
        }
        if self.take(class, count, into) {
            return Ok(());
        }
        let block = match self.make_block(self.block_len) {
            Err(error) if error.is_exhaustion() => {
                if self.may_need_room(&error) {
                    self.free_held();
                    if self.take(class, count, into) {
                        return Ok(());
                    }
                }
                // A statement of its own: within the call, the arena would stay locked over it.
                let least = self.arena().span_len(class).min(self.block_len);
                self.make_block(least)
            }
            block => block,
        }?;
        let host_access = block.host_access();
        self.arena().add_block(Arc::new(block), host_access);
        self.take(class, count, into);
        Ok(())
    }

    /// Whether freeing memory may help: not beyond Vulkan's heap, unless CUDA can allocate mapped memory, too.
    fn may_need_room(&self, error: &Error) -> bool {
        let is_of_two = || self.kind == MemoryKind::Mapped && self.owner.supports_existing().unwrap_or(false);
        error.is_exhaustion() && (!error.exceeds_the_heap() || is_of_two())
    }

    fn make_block(self: &Arc<Self>, len: usize) -> Result<Block> {
        let block = Block::in_context(&self.owner, len, self.kind, self.context)?;
        Ok(block.of_pool(self.clone()))
    }

    /// Reuses a chunk that was bound to this stream before; `None` if there is none.
    pub(super) fn allocate_for_stream(&self, len: usize, stream: CUstream) -> Option<Memory> {
        let chunk = self.pending().take_for_stream(stream, self.class_of(len)?)?;
        chunk.record_reuse();
        Some(self.allocated(chunk, len))
    }

    /// Reuses a chunk that was bound to a stream at this address before, and makes the stream wait for the chunk's
    /// event.
    ///
    /// # Safety
    ///
    /// The stream must be live.
    pub(super) unsafe fn allocate_for_event(&self, len: usize, stream: CUstream) -> Result<Option<Memory>> {
        let found = self.class_of(len).and_then(|class| self.pending().take_for_event(stream, class));
        let Some((chunk, event)) = found else { return Ok(None) };
        // SAFETY: live by this method's contract, and used only until it returns.
        let waiting = unsafe { StreamRef::in_context(stream, self.context) }.and_then(|stream| stream.wait(&event));
        if let Err(error) = waiting {
            self.pending().put_back(chunk, event, stream);
            return Err(error);
        }
        chunk.record_reuse();
        Ok(Some(self.allocated(chunk, len)))
    }

    fn class_of(&self, len: usize) -> Option<u16> {
        u16::try_from(self.classes.of(len)?).ok()
    }

    /// Keeps a chunk that the device may still use.
    fn put_pending(&self, chunk: FreeChunk, binding: Binding) -> Result<()> {
        let keeps_free = self.keeps_free_chunks();
        match binding.policy() {
            DropPolicy::WaitForStream if binding.keeps_stream() && keeps_free => {
                self.put(self.pending().add_for_stream(chunk, binding));
            }
            DropPolicy::WaitForStream => {
                self.put(self.pending().add_for_event(chunk, &binding)?);
            }
            _ => {
                self.pending().add_for_contexts(chunk, &binding.other_contexts());
                if !keeps_free {
                    self.put(self.pending().wait()?);
                }
            }
        }
        Ok(())
    }

    fn take(&self, class: usize, count: usize, into: &mut Vec<FreeChunk>) -> bool {
        let mut evicted = Evicted::default();
        self.arena().take(class, count, into, &mut evicted)
    }

    /// Puts free chunks into the arena. Returns the bytes of the blocks that this evicts.
    fn put(&self, chunks: Vec<FreeChunk>) -> usize {
        if chunks.is_empty() {
            return 0;
        }
        let mut evicted = Evicted::default();
        self.arena().put(chunks, &mut evicted)
    }

    fn arena(&self) -> LockGuard<'_, Arena> {
        self.shared.arena.lock()
    }

    fn caches(&self) -> LockGuard<'_, Vec<Arc<ThreadCache>>> {
        self.shared.caches.lock()
    }

    const fn pending(&self) -> &PendingFrees {
        &self.shared.pending
    }

    /// Adds `chunks` chunks of `len` requested bytes each to those in use. A free passes a negative number.
    fn count(&self, chunks: isize, len: usize) {
        let used = Used { chunks, bytes: chunks * len.cast_signed() };
        if !thread_cache::count(self.id, used) {
            self.count_shared(used);
        }
    }

    fn count_shared(&self, used: Used) {
        self.shared.used_chunks.fetch_add(used.chunks, Ordering::Relaxed);
        self.shared.used_bytes.fetch_add(used.bytes, Ordering::Relaxed);
    }

    /// Moves a cache's chunks to the arena, and closes the cache.
    fn close_cache(&self, cache: &ThreadCache) {
        let mut chunks = Vec::new();
        {
            // `used` adds up under this lock, so that it sees these counts in one of both places.
            let _caches = self.caches();
            self.count_shared(cache.close(&mut chunks));
        }
        self.put(chunks);
    }

    fn close_caches(&self) {
        let caches = self.caches().clone();
        caches.iter().for_each(|cache| self.close_cache(cache));
    }

    /// Frees unused blocks, until at most `keep` bytes are managed. Returns the bytes freed.
    pub(super) fn trim(&self, keep: usize) -> usize {
        self.pending().fence_streams();
        let mut chunks = self.pending().poll(usize::MAX);
        let caches = self.caches().clone();
        caches.iter().for_each(|cache| cache.drain(&mut chunks));
        // This already frees blocks if the pool keeps no free chunks.
        let freed = self.put(chunks);
        let mut evicted = Evicted::default();
        freed + self.arena().trim(keep.saturating_sub(self.dedicated_bytes()), &mut evicted)
    }

    /// Waits for the context, and takes the chunks that it may have used. Empty if waiting fails: the chunks stay
    /// pending.
    fn wait_for_pending(&self) -> Vec<FreeChunk> {
        self.pending().wait().unwrap_or_else(|error| {
            report!(Debug, "waiting for a pool's context: {error}");
            Vec::new()
        })
    }

    /// Waits for the context, frees every unused block, and waits for deferred frees. Returns true if that may have
    /// freed any memory.
    pub(super) fn free_held(&self) -> bool {
        let freed = self.put(self.wait_for_pending()) + self.trim(0) > 0;
        self.owner.gpu().deferred_frees().drain() | freed
    }

    /// Frees every unused block, and keeps no free chunk from now on.
    pub(super) fn stop_holding(&self) {
        self.arena().stop_holding();
        self.close_caches();
        self.free_held();
    }

    /// Frees everything that is not in use, and keeps nothing free from now on.
    pub(super) fn close(&self) {
        let mut evicted = Evicted::default();
        self.arena().close(&mut evicted);
        self.close_caches();
        drop(evicted);
        self.pending().close();
    }

    /// The number of free chunks, including those that wait for the device.
    pub(super) fn free_chunks(&self) -> usize {
        let cached: usize = self.caches().iter().map(|cache| cache.count().0).sum();
        self.arena().free_chunks() + self.pending().len() + cached
    }

    /// The bytes of all blocks and dedicated allocations.
    pub(super) fn managed_bytes(&self) -> usize {
        self.arena().managed_bytes() + self.dedicated_bytes()
    }

    fn dedicated_bytes(&self) -> usize {
        usize::try_from(self.shared.dedicated_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The number of chunks in use, and their requested bytes.
    pub(super) fn used(&self) -> (usize, usize) {
        let caches = self.caches();
        let mut chunks = self.shared.used_chunks.load(Ordering::Relaxed);
        let mut bytes = self.shared.used_bytes.load(Ordering::Relaxed);
        for cache in caches.iter() {
            let (_, used) = cache.count();
            (chunks, bytes) = (chunks + used.chunks, bytes + used.bytes);
        }
        (usize::try_from(chunks).unwrap_or(0), usize::try_from(bytes).unwrap_or(0))
    }
}

impl CacheOwner for PoolInner {
    fn keeps_free_chunks(&self) -> bool {
        self.arena().keeps_free_chunks()
    }

    fn add_cache(&self, cache: Arc<ThreadCache>) {
        self.caches().push(cache.clone());
        // `stop_holding` may have run meanwhile, without seeing this cache.
        if !self.keeps_free_chunks() {
            self.close_cache(&cache);
        }
    }

    fn remove_cache(&self, cache: &Arc<ThreadCache>) {
        self.close_cache(cache);
        self.caches().retain(|other| !Arc::ptr_eq(other, cache));
    }
}

impl Collect for PoolInner {
    fn collect(&self) {
        self.put(self.pending().collect());
    }
}

impl ChunkPool for PoolInner {
    fn id(&self) -> u32 {
        self.id
    }

    fn take_back(self: Arc<Self>, mut chunk: FreeChunk) -> Result<()> {
        let len = chunk.len();
        self.count(-1, len);
        if chunk.is_dedicated() {
            self.shared.dedicated_bytes.fetch_sub(len.cast_signed(), Ordering::Relaxed);
            return chunk.release_dedicated();
        }
        let LastUse { exposed, binding } = chunk.reset();
        if exposed && binding.policy() != DropPolicy::Immediate {
            return self.put_pending(chunk, binding);
        }
        let class = chunk.class().into();
        thread_cache::ensure_cache(&self, self.id, &self.classes, class);
        let mut chunks = vec![chunk];
        thread_cache::refill(self.id, class, &mut chunks);
        self.put(chunks);
        Ok(())
    }
}

impl fmt::Debug for PoolInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolInner").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}
