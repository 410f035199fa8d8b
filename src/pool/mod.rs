//! Pools: small memory without driver calls, from blocks that were allocated before.
//!
//! A block is one allocation of the drivers. The [`arena`], behind one lock, divides blocks into spans, and each span into chunks
//! of one size class ([`options`]). Freed chunks that the device may still use wait there, too: behind events, or for the whole
//! context. Those that streams of other contexts used wait in the GPU's queue, as all do once the pool has ended.
//!
//! gpu-allocator does not divide these blocks: it knows Vulkan's memory only, and searches all free places.
#![expect(unsafe_code, reason = "uses a stream that the caller keeps alive")]

mod arena;
mod options;

use std::fmt;
use std::mem;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Instant;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use self::arena::{Arena, Fenced, Key};
use self::options::Classes;
use crate::allocation::Allocation;
use crate::driver::context::Context;
use crate::driver::fork;
use crate::lock::Lock;
use crate::memory::{Chunk, Home, Inner, UsedStream, Uses, stream_number};
use crate::report::log_failure;
use crate::retire::Fence;
use crate::{DropPolicy, Error, Memory, MemoryKind, Result, StreamRef, Vkgdr};
pub use options::PoolOptions;

/// Allocates small memory as parts of blocks that it allocated before, without a driver or system call.
///
/// All memory of a pool is of one kind and in one CUDA context. That is the handle's primary context if it retains that, else
/// the one that was current when the pool was created. A pool may be used from any thread, with any context current; clones
/// are the same pool. Lengths are rounded up to size classes, see [`PoolOptions`].
///
/// # Reuse
///
/// **Freed memory is not reused while CUDA may still use it.** The rules of [`DropPolicy`](crate::DropPolicy)
/// apply; a pool waits later, when it reuses memory:
///
/// * If the device cannot have used it, it is reused at once. That is so if its [`device_ptr`](Memory::device_ptr) was never
///   asked for, nor the host address of `Host` memory, and no stream or view used it.
/// * If it was bound to a stream ([`bind_stream`](Memory::bind_stream), [`allocate_on`](Self::allocate_on)), it is reused after
///   an event. For that, [`allocate_on`](Self::allocate_on) makes the same stream wait without waiting itself.
/// * Otherwise it is reused after all work of the context. **The pool waits for the context once for much memory**, in an
///   `allocate` that would otherwise need a new block, up to the [shortage timeout](Vkgdr::set_shortage_timeout). While the
///   context stays busy, each new block waits again. It waits only once that memory adds up to a quarter of a block. To avoid
///   that wait, bind memory to streams, or synchronise and free it with [`free_unsynchronized`](Memory::free_unsynchronized). A
///   stream capture forbids such a wait, and would end by it: [`allocate_on`](Self::allocate_on) makes none if its stream is
///   being captured, unless memory is short.
///
/// # Teardown
///
/// Dropping the last clone of a pool frees its unused blocks. It first waits for the context where the device may still use
/// memory that was freed unbound. Memory in use keeps its block alive: the last of a block frees it as its [`DropPolicy`] says.
/// Drop the pool and its memory before a context of `cuCtxCreate`, as [`Memory`](Memory#contexts) says.
///
/// After `cudaDeviceReset` the pool's memory has no device side, which allocating does not notice: make the pool anew.
///
/// In a forked child, allocating returns [`Error::Forked`], and everything else does nothing.
///
/// # Examples
///
/// ```no_run
/// use vkgdr::{MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};
///
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
/// for step in 0..1000_u32 {
///     let parameters = pool.allocate(512)?;
///     parameters.write(0, &[step; 128])?;
///     parameters.flush(..)?;
///     // Launch a kernel with `parameters.device_ptr()`.
/// }
/// # Ok::<(), vkgdr::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    open: Arc<Open>,
}

/// Shared by all clones of a pool; dropping it closes the pool.
struct Open(Arc<PoolInner>);

impl Drop for Open {
    fn drop(&mut self) {
        if !fork::is_forked() {
            self.0.close();
        }
    }
}

impl Pool {
    /// Creates a pool without blocks: the first allocation makes one.
    ///
    /// # Errors
    ///
    /// [`Error::PoolOption`] for an impossible option, [`Error::NoSuitableMemoryType`] when the GPU has no memory of the kind.
    /// For memory that needs Vulkan, the error of starting Vulkan. `CUDA_ERROR_INVALID_CONTEXT` when a context must be current
    /// and none is, [`Error::WrongDevice`] when it is another device's, and [`Error::Forked`].
    pub fn new(owner: &Vkgdr, options: PoolOptions) -> Result<Self> {
        fork::check()?;
        let (owner, kind) = (owner.clone(), options.kind);
        let (classes, block_len) = options.plan(owner.memory_type(kind)?.size_unit())?;
        let context = owner.allocation_context()?;
        let (growth, arena) = (Lock::default(), Lock::new(Arena::new(classes)));
        let inner = PoolInner { owner, kind, context, classes, block_len, growth, arena };
        Ok(Self { open: Arc::new(Open(Arc::new(inner))) })
    }

    /// Allocates `len` bytes, with undefined contents.
    ///
    /// If memory is exhausted, the pool waits for the device, for two seconds at most ([`Vkgdr::set_shortage_timeout`]), and frees
    /// its unused blocks. Then it reuses freed memory, or tries once more, with a smaller block where it needs one. It does not
    /// wait where that cannot help.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::Forked`], and the errors of [`Memory::allocate`] when the pool needs a new block or an
    /// allocation of its own for the memory.
    #[inline]
    pub fn allocate(&self, len: usize) -> Result<Memory> {
        self.open.0.allocate(len, None)
    }

    /// Allocates from the blocks that there are, without a wait: for callers that hold an interpreter's lock.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn try_allocate(&self, len: usize) -> Option<Memory> {
        let class = self.open.0.classes.of(len).filter(|_| !fork::is_forked())?;
        self.open.0.take(class, len)
    }

    /// Allocates `len` bytes bound to a stream, see [`Memory::bind_stream`].
    ///
    /// Memory that was bound to the same stream is reused at once, although the stream's earlier work may still use it.
    /// Work submitted to the stream from now on comes after that. The CPU must wait before it reads or writes, as
    /// [`map`](Memory::map) does. Work on another stream must be ordered after this one's first, also that of views.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate) and of `cuStreamWaitEvent`, [`Error::ForeignStream`] when the stream does not
    /// belong to the pool's context, and [`Error::PerThreadStream`].
    pub fn allocate_on(&self, len: usize, stream: &Arc<CudaStream>) -> Result<Memory> {
        fork::check()?;
        let stream = UsedStream::shared(stream, self.open.0.context)?;
        self.open.0.allocate_for_stream(len, stream)
    }

    /// [`allocate_on`](Self::allocate_on) for a stream that the caller keeps alive. Null is the legacy default stream
    /// of the pool's context.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate_on`](Self::allocate_on) and of `cuStreamGetCtx`.
    ///
    /// # Safety
    ///
    /// The contract of [`Memory::bind_raw_stream`].
    pub unsafe fn allocate_on_raw(&self, len: usize, stream: CUstream) -> Result<Memory> {
        // SAFETY: live for long enough by this method's contract.
        let stream = unsafe { StreamRef::in_context(stream, self.open.0.context) }?;
        self.open.0.allocate_for_stream(len, stream.into())
    }

    /// Frees unused blocks, until the pool manages at most `keep` bytes. Returns the number of bytes freed. Blocks that the
    /// device may still use are kept: with unbound memory, until [`release_unused`](Self::release_unused) has waited. The driver
    /// itself may wait for running kernels.
    pub fn trim(&self, keep: usize) -> usize {
        if fork::is_forked() { 0 } else { self.open.0.trim(keep) }
    }

    /// Waits for the pool's context if the device may still use free memory, and for the GPU's deferred frees, and frees every
    /// unused block. Free memory that shares a block with memory in use is kept. If waiting fails, as during a stream capture,
    /// blocks that the device may still use are kept, too.
    pub fn release_unused(&self) {
        if !fork::is_forked() {
            self.open.0.release_unused(None);
        }
    }

    /// Frees unused blocks as [`release_unused`](Self::release_unused) does, and from now on every block once it is unused.
    /// Then a drop of the pool's memory waits for the device as that of other memory does.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub fn disable_caching(&self) {
        if !fork::is_forked() {
            self.open.0.arena().caching = false;
            self.open.0.release_unused(None);
        }
    }

    /// The number of free chunks, including those that streams of the pool's context may still use.
    #[must_use]
    pub fn free_chunks(&self) -> usize {
        self.count(Arena::free_chunks)
    }

    /// The number of live memories of the pool.
    #[must_use]
    pub fn used_chunks(&self) -> usize {
        self.count(|arena| arena.used)
    }

    /// The bytes of the pool's blocks and dedicated allocations, whether in use or free.
    #[must_use]
    pub fn managed_bytes(&self) -> usize {
        self.count(|arena| arena.block_bytes() + arena.dedicated_bytes)
    }

    /// The bytes of allocated memory, as requested.
    #[must_use]
    pub fn active_bytes(&self) -> usize {
        self.count(|arena| arena.used_bytes)
    }

    /// A statistic; 0 in a forked child.
    fn count(&self, of: impl Fn(&Arena) -> usize) -> usize {
        if fork::is_forked() { 0 } else { of(&self.open.0.arena()) }
    }

    /// The bytes of the chunk for `len` bytes; none for 0 and for lengths that get an allocation of their own.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn chunk_len(&self, len: usize) -> Option<usize> {
        self.open.0.classes.of(len).map(|class| self.open.0.classes.size(class))
    }

    /// The kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.open.0.kind
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("kind", &self.kind())
            .field("block_len", &self.open.0.block_len)
            .field("managed_bytes", &self.managed_bytes())
            .field("active_bytes", &self.active_bytes())
            .finish_non_exhaustive()
    }
}

/// The state that all clones of a pool and its memory share.
struct PoolInner {
    owner: Vkgdr,
    kind: MemoryKind,
    context: Context,
    classes: Classes,
    block_len: usize,
    /// Taken by the thread that makes a block, while others that ran out wait for it.
    growth: Lock<()>,
    arena: Lock<Arena>,
}

impl PoolInner {
    #[inline]
    fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock()
    }

    /// Allocates `len` bytes, for a stream if one is named.
    fn allocate(self: &Arc<Self>, len: usize, stream: Option<StreamRef>) -> Result<Memory> {
        fork::check()?;
        let Some(class) = self.classes.of(len) else { return self.allocate_dedicated(len, stream) };
        loop {
            if let Some(memory) = self.take(class, len) {
                return Ok(memory);
            }
            if let Some(memory) = self.grow(class, len, stream)? {
                return Ok(memory);
            }
        }
    }

    /// Allocates from the blocks that there are.
    #[inline]
    fn take(self: &Arc<Self>, class: usize, len: usize) -> Option<Memory> {
        let mut arena = self.arena();
        let chunk = arena.take(class)?;
        Some(self.allocated(&mut arena, chunk, len))
    }

    /// The memory of a chunk.
    #[inline]
    fn allocated(self: &Arc<Self>, arena: &mut Arena, chunk: Chunk, len: usize) -> Memory {
        let (block, offset) = arena.place(chunk);
        let inner = Arc::new(Inner::new(block, (offset, len), Some(self.clone()), Some(chunk)));
        arena.set_memory(chunk, Arc::downgrade(&inner));
        arena.used += 1;
        arena.used_bytes += len;
        Memory::of(inner)
    }

    /// Allocates `len` bytes as an allocation of their own.
    fn allocate_dedicated(self: &Arc<Self>, len: usize, stream: Option<StreamRef>) -> Result<Memory> {
        let block = match self.make_block(len, self.owner.shortage_deadline()) {
            Err(error) if self.may_need_room(&error) && !is_captured(stream)? => {
                let deadline = self.owner.shortage_deadline();
                if !self.release_unused(Some(deadline)) {
                    return Err(error);
                }
                self.make_block(len, deadline).map_err(|error| error.with_still_used(self.arena().pending_chunks()))
            }
            block => block,
        }?;
        let inner = Inner::whole(block, Some(self.clone()));
        let mut arena = self.arena();
        arena.used += 1;
        arena.used_bytes += len;
        arena.dedicated_bytes += len;
        Ok(Memory::of(inner))
    }

    /// Allocates freed memory that the device has finished with meanwhile, or adds a block. Does not wait for the pool's context while
    /// `stream` is captured, which that would end.
    #[cold]
    fn grow(self: &Arc<Self>, class: usize, len: usize, stream: Option<StreamRef>) -> Result<Option<Memory>> {
        // The first deadline counts from here: the turn may take a second of it.
        let (deadline, may_wait) = (self.owner.shortage_deadline(), !is_captured(stream)?);
        let _turn = self.growth.try_lock_for_a_second();
        // Another thread may have added a block.
        let taken = self.take(class, len).or_else(|| {
            self.poll();
            if may_wait && self.arena().bytes_for_context() >= self.block_len / 4 {
                self.wait_for_context(Some(deadline));
            }
            self.take(class, len)
        });
        if taken.is_some() {
            return Ok(taken);
        }
        let mut block = match self.make_block(self.block_len, deadline) {
            Err(error) if error.is_exhaustion() => {
                let deadline = self.owner.shortage_deadline();
                if may_wait && self.may_need_room(&error) {
                    self.release_unused(Some(deadline));
                    if let Some(memory) = self.take(class, len) {
                        return Ok(Some(memory));
                    }
                }
                // A statement of its own: within the call, the arena would stay locked over it.
                let least = self.arena().span_len(class).min(self.block_len);
                self.make_block(least, deadline).map_err(|error| error.with_still_used(self.arena().pending_chunks()))
            }
            block => block,
        }?;
        let pool = Arc::downgrade(self);
        block.list(Box::new(move |address| {
            // Not under the lock: if the memory is dropped, it takes it.
            let found = pool.upgrade()?.arena().find(address);
            found.map(Memory::of)
        }));
        self.arena().add_block(Arc::new(block));
        Ok(None)
    }

    /// Whether freeing memory may help: not beyond Vulkan's heap, unless CUDA can allocate mapped memory, too.
    fn may_need_room(&self, error: &Error) -> bool {
        let has_cuda_fallback = || self.kind == MemoryKind::Mapped && self.owner.supports_existing().unwrap_or(false);
        error.is_exhaustion() && (!error.exceeds_the_heap() || has_cuda_fallback())
    }

    fn make_block(&self, len: usize, deadline: Instant) -> Result<Allocation> {
        self.context.run(|| Allocation::new(&self.owner, self.context, len, self.kind, deadline))
    }

    /// Allocates memory that is bound to a stream of the pool's context.
    fn allocate_for_stream(self: &Arc<Self>, len: usize, stream: UsedStream) -> Result<Memory> {
        if stream.is_per_thread() {
            return Err(Error::PerThreadStream);
        }
        let memory = match self.reuse(len, stream.stream)? {
            Some(memory) => memory,
            None => self.allocate(len, Some(stream.stream))?,
        };
        memory.inner().bind(stream)?;
        Ok(memory)
    }

    /// Memory that was bound to a stream at this address before, for whose events the stream waits from now on.
    fn reuse(self: &Arc<Self>, len: usize, stream: StreamRef) -> Result<Option<Memory>> {
        let Some(class) = self.classes.of(len) else { return Ok(None) };
        let key = (stream_number(stream.raw()), class);
        let found = self.arena().take_fenced(key);
        let Some(fenced) = found else { return Ok(None) };
        // During the stream's capture, a wait for what came before would end that.
        let order = || match is_captured(Some(stream))? {
            true => Ok(false),
            false => fenced.fence.events.iter().try_for_each(|event| stream.wait(event)).map(|()| true),
        };
        let ordered = order();
        if !matches!(ordered, Ok(true)) {
            self.keep(key, fenced);
            return ordered.map(|_| None);
        }
        let memory = self.allocated(&mut self.arena(), fenced.chunk, len);
        // The earlier user's work goes on.
        memory.expose();
        Ok(Some(memory))
    }

    /// Keeps a free chunk until the device has passed its events: in the list of its stream and class, or in the GPU's queue.
    fn keep(self: &Arc<Self>, key: Key, fenced: Fenced) {
        let mut arena = self.arena();
        if arena.caching {
            return arena.fenced.entry(key).or_default().push_back(fenced);
        }
        drop(arena);
        self.retire(fenced.fence, vec![fenced.chunk]);
    }

    /// Keeps free chunks until all work of the context has finished, as [`keep`](Self::keep) does.
    fn keep_for_context(self: &Arc<Self>, chunks: Vec<Chunk>) {
        let mut arena = self.arena();
        if arena.caching {
            return arena.awaiting_context.extend(chunks);
        }
        drop(arena);
        self.retire(Fence::of_context(self.context), chunks);
    }

    /// Takes chunks back once the device has passed the fence: the GPU's queue does, which keeps the pool's state until then.
    fn retire(self: &Arc<Self>, fence: Fence, chunks: Vec<Chunk>) {
        let inner = self.clone();
        self.owner.gpu().retired().push(fence, move || inner.put(chunks));
    }

    /// Keeps a free chunk until the streams that use it have done what they were given.
    fn keep_fenced(self: &Arc<Self>, chunk: Chunk, class: usize, uses: &Uses) -> Result<()> {
        let stream = uses.bound_stream().expect("the memory is bound, or it would wait for its context");
        let key = (stream_number(stream), class);
        match uses.record_events() {
            Ok(fence) if fence.is_empty() => return self.put([chunk]),
            Ok(fence) => {
                // So that they do not pile up: nor those of a stream that frees nothing any more. This one was asked just now.
                let next = self.arena().key_after(key);
                [Some(key), next].into_iter().flatten().for_each(|key| self.take_if(key, has_passed));
                self.keep(key, Fenced { fence, chunk });
            }
            Err(error) => {
                self.keep_for_context(vec![chunk]);
                // No error where the memory waits for the end of a capture.
                if !error.is_of_capture() {
                    return Err(error);
                }
                log::debug!("memory of a pool waits for its context: {error}");
            }
        }
        Ok(())
    }

    /// Takes chunks back that the device has finished with.
    fn put(&self, chunks: impl IntoIterator<Item = Chunk>) -> Result<()> {
        let evicted = self.arena().put(chunks);
        Allocation::free_all(evicted)
    }

    /// Takes back the chunks whose events the device has passed. Does not wait.
    fn poll(self: &Arc<Self>) {
        self.take_passed(has_passed);
    }

    fn take_passed(self: &Arc<Self>, passed: impl Fn(&mut Fence) -> bool) {
        // Statements of their own, so that the arena does not stay locked.
        let lists: Vec<_> = self.arena().fenced.iter().map(|(key, list)| (*key, list.len())).collect();
        for (key, len) in lists {
            (0..len).for_each(|_| self.take_if(key, &passed));
        }
    }

    /// Takes the first chunk of a stream and class back if it is `passed`.
    fn take_if(self: &Arc<Self>, key: Key, passed: impl Fn(&mut Fence) -> bool) {
        let first = self.arena().take_fenced(key);
        let Some(mut fenced) = first else { return };
        if passed(&mut fenced.fence) {
            log_failure("memory", self.put([fenced.chunk]));
        } else {
            self.keep(key, fenced);
        }
    }

    /// Waits for the context, and takes back what waited for it. What cannot be waited for, or not before `deadline`, goes on waiting.
    fn wait_for_context(self: &Arc<Self>, deadline: Option<Instant>) {
        let taken = mem::take(&mut self.arena().awaiting_context);
        if taken.is_empty() {
            return;
        }
        if Fence::of_context(self.context).wait_until(deadline) {
            log_failure("memory", self.put(taken));
        } else {
            self.keep_for_context(taken);
        }
    }

    /// [`Pool::release_unused`], with waits until `deadline` at most. Returns true if that may have freed any memory.
    fn release_unused(self: &Arc<Self>, deadline: Option<Instant>) -> bool {
        self.wait_for_context(deadline);
        self.take_passed(|fence| fence.wait_until(deadline));
        // Other contexts' streams used some of the chunks: their entries put these back.
        let drained = self.owner.gpu().retired().drain(deadline);
        self.trim(0) > 0 || drained
    }

    /// Frees unused blocks, until at most `keep` bytes are managed. Returns the bytes freed.
    fn trim(self: &Arc<Self>, keep: usize) -> usize {
        self.poll();
        // Dropped without the lock.
        let evicted = self.arena().trim(keep);
        evicted.into_iter().map(|block| block.len()).sum()
    }

    /// Frees everything that is not in use, and keeps nothing free from now on.
    fn close(self: &Arc<Self>) {
        self.poll();
        let fenced = {
            let mut arena = self.arena();
            // From now on the arena returns unused blocks, and what waits for the device goes to the GPU's queue.
            arena.caching = false;
            mem::take(&mut arena.fenced)
        };
        // One entry for each list, since the ends of later pools look at all.
        for list in fenced.into_values() {
            let (mut all, mut chunks) = (Fence::default(), Vec::new());
            for Fenced { fence, chunk } in list {
                all.events.extend(fence.events);
                chunks.push(chunk);
            }
            self.retire(all, chunks);
        }
        self.wait_for_context(None);
        self.trim(0);
        // Those of pools that were closed before: nothing else looks at the queue in a program that has pools alone.
        self.owner.gpu().retired().poll(usize::MAX, None);
    }
}

impl Home for PoolInner {
    fn is_caching(&self) -> bool {
        self.arena().caching
    }

    fn take_back(self: Arc<Self>, memory: &mut Inner, block: Arc<Allocation>) -> Result<()> {
        let mut arena = self.arena();
        arena.used -= 1;
        arena.used_bytes -= memory.len;
        let Some(chunk) = memory.chunk else {
            arena.dedicated_bytes -= memory.len;
            drop(arena);
            return memory.take_uses().free(block);
        };
        arena.set_memory(chunk, Weak::new());
        // The arena has a reference as long as the block has a chunk that is not free.
        drop(block);
        let policy = memory.uses.get_mut().policy();
        if policy == DropPolicy::Immediate {
            let evicted = arena.put([chunk]);
            drop(arena);
            return Allocation::free_all(evicted);
        }
        let uses = memory.take_uses();
        // Other contexts may be destroyed once the memory was freed, or its events have passed: the pool does not name them.
        if !arena.caching || uses.used_by_other_contexts(self.context) {
            drop(arena);
            let inner = self.clone();
            let queue = self.owner.gpu().retired();
            return uses.release_after(queue, self.context, move || inner.put([chunk]));
        }
        if policy == DropPolicy::WaitForStream {
            let class = arena.class_of(chunk);
            drop(arena);
            return self.keep_fenced(chunk, class, &uses);
        }
        arena.awaiting_context.push(chunk);
        // Before the uses, whose drop may call the driver.
        drop(arena);
        Ok(())
    }
}

/// Whether the device has passed a fence, without a wait.
fn has_passed(fence: &mut Fence) -> bool {
    fence.is_passed(|_| false)
}

/// Whether a stream is captured. Also true where a capture makes the question an error: for the legacy default stream while
/// a stream is captured that waits for it.
fn is_captured(stream: Option<StreamRef>) -> Result<bool> {
    match stream.map_or(Ok(false), |stream| stream.is_capturing()) {
        Err(error) if error.is_of_capture() => Ok(true),
        asked => asked,
    }
}
