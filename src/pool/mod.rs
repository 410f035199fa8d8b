//! Pools: small memory in nanoseconds, from blocks that were allocated before.
//!
//! A block is one allocation of the drivers. The [`arena`] divides blocks into spans, and each span into chunks of one
//! size class ([`classes`]). Each thread caches a few free chunks ([`thread_cache`]); freed chunks that the device may
//! still use wait in [`pending`]. [`inner`] connects these.

mod arena;
mod classes;
mod free_ranges;
mod inner;
mod memory;
mod options;
mod pending;
mod thread_cache;

use std::fmt;
use std::sync::{Arc, Weak};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUcontext, CUstream};

use self::inner::PoolInner;
use crate::driver::fork;
use crate::{MemoryKind, Result, Vkgdr};
pub use memory::PoolMemory;
pub use options::PoolOptions;
#[cfg(feature = "vulkan")]
pub(crate) use thread_cache::NO_CACHE;

/// Allocates small memory in nanoseconds, as chunks of blocks that it allocated before, without a driver or system
/// call.
///
/// All memory of a pool is of one kind and in one CUDA context: the handle's primary context if the handle retains
/// that, otherwise the context that was current when the pool was created. A pool may be used from any thread, with any
/// context current; clones are the same pool. Lengths are rounded up to size classes, see [`PoolOptions`]. Each thread
/// caches free chunks of each class: at most 64, and at most 512 KiB.
///
/// # Reuse
///
/// **Freed memory is not reused while the device may still use it.** The rules of [`DropPolicy`](crate::DropPolicy)
/// apply; a pool waits later, when it reuses memory:
///
/// * If its [`device_ptr`](crate::Region::device_ptr) was never requested and no kernel or copy of cudarc used it, the
///   device cannot have used it, and it is reused at once.
/// * If it was bound to a stream ([`bind_stream`](crate::Memory::bind_stream), [`allocate_on`](Self::allocate_on)), it
///   is reused at once for that stream, and otherwise after an event. If the pool keeps the stream alive, it records
///   one event for many chunks, when it would otherwise need a new block. For a raw stream, of unknown lifetime, it
///   records the event when the memory is freed.
/// * Otherwise it is reused after all work of the context. **The pool waits for the context once for many chunks**, in
///   an `allocate` that would otherwise need a new block, once such chunks add up to a quarter of a block. To avoid
///   that wait, bind memory to streams, or synchronise and call
///   [`release_immediately`](crate::Memory::release_immediately).
///
/// # Teardown
///
/// Dropping the last clone of a pool frees its unused blocks, after a wait for the context where the device may still use memory
/// that was freed. Memory in use keeps its block alive: dropping the last
/// memory of the block waits for the context and frees the block, as it does for a [`Memory`](crate::Memory). Drop the pool
/// and its memory before the context, as [`Memory`](crate::Memory#contexts) says: without the context the pool is unusable.
///
/// In a forked child, allocating returns [`Error::Forked`](crate::Error::Forked), and everything else does nothing.
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
    /// [`Error::PoolOption`](crate::Error::PoolOption) for an impossible option,
    /// [`Error::NoSuitableMemoryType`](crate::Error::NoSuitableMemoryType) when the GPU has no memory of the kind,
    /// `CUDA_ERROR_INVALID_CONTEXT` when a context must be current and none is,
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) when it is another device's, and
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn new(owner: &Vkgdr, options: PoolOptions) -> Result<Self> {
        let inner = Arc::new(PoolInner::new(owner, &options)?);
        let pool: Weak<PoolInner> = Arc::downgrade(&inner);
        owner.gpu().add_pool(pool);
        Ok(Self { open: Arc::new(Open(inner)) })
    }

    #[inline]
    fn inner(&self) -> &Arc<PoolInner> {
        &self.open.0
    }

    /// Allocates `len` bytes, with undefined contents.
    ///
    /// If memory is exhausted, the pool waits for the device and frees its unused blocks. Then it reuses freed memory,
    /// or tries once more, with a smaller block where it needs one. It does not wait where that cannot help.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`](crate::Error::ZeroSize), [`Error::Forked`](crate::Error::Forked), and the errors of
    /// [`Memory::allocate`](crate::Memory::allocate) when the pool needs a new block or a dedicated allocation.
    #[inline]
    pub fn allocate(&self, len: usize) -> Result<PoolMemory> {
        match self.allocate_cached(len) {
            Some(memory) => Ok(memory),
            None => self.inner().allocate(len).map(PoolMemory::new),
        }
    }

    /// Allocates `len` bytes if this thread has a free chunk: without a wait and without a call of a driver.
    ///
    /// For callers that hold a lock over which [`allocate`](Self::allocate) must not wait, such as an interpreter's.
    /// Where this returns `None`, `allocate` may succeed.
    #[inline]
    #[must_use]
    pub fn allocate_cached(&self, len: usize) -> Option<PoolMemory> {
        let inner = self.inner();
        let class = if fork::is_forked() { None } else { inner.classes.of(len) }?;
        thread_cache::take(inner.id, class, len).map(PoolMemory::new)
    }

    /// Allocates `len` bytes bound to a stream, see [`Memory::bind_stream`](crate::Memory::bind_stream).
    ///
    /// Memory that was bound to the same stream is reused at once, although the stream's earlier work may still use it:
    /// work submitted to the stream from now on comes after that. The CPU must wait before it reads or writes, as
    /// [`map`](crate::Region::map) does.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate`](Self::allocate), [`Error::ForeignStream`](crate::Error::ForeignStream) when the
    /// stream does not belong to the pool's context, and [`Error::PerThreadStream`](crate::Error::PerThreadStream).
    pub fn allocate_on(&self, len: usize, stream: &Arc<CudaStream>) -> Result<PoolMemory> {
        fork::check()?;
        let memory = match self.inner().allocate_for_stream(len, stream.cu_stream()) {
            Some(memory) => PoolMemory::new(memory),
            None => self.allocate(len)?,
        };
        memory.bind_stream(stream)?;
        Ok(memory)
    }

    /// [`allocate_on`](Self::allocate_on) for a stream that the caller keeps alive. Null is the legacy default stream
    /// of the pool's context.
    ///
    /// # Errors
    ///
    /// The errors of [`allocate_on`](Self::allocate_on), `cuStreamGetCtx` and `cuStreamWaitEvent`.
    ///
    /// # Safety
    ///
    /// The contract of [`Memory::bind_raw_stream`](crate::Memory::bind_raw_stream).
    #[expect(unsafe_code, reason = "uses a stream that the caller keeps alive")]
    pub unsafe fn allocate_on_raw(&self, len: usize, stream: CUstream) -> Result<PoolMemory> {
        fork::check()?;
        // SAFETY: the stream is live by this method's contract.
        let memory = match unsafe { self.inner().allocate_for_event(len, stream) }? {
            Some(memory) => PoolMemory::new(memory),
            None => self.allocate(len)?,
        };
        // SAFETY: live for long enough by this method's contract.
        unsafe { memory.bind_raw_stream(stream) }?;
        Ok(memory)
    }

    /// Frees unused blocks, until the pool manages at most `keep` bytes. Returns the number of bytes freed.
    ///
    /// Does not wait for the device: blocks that it may still use are kept. Streams that free chunks were bound to are
    /// released.
    pub fn trim(&self, keep: usize) -> usize {
        if fork::is_forked() { 0 } else { self.inner().trim(keep) }
    }

    /// Waits for the pool's context if the device may still use free memory, and frees every unused block. Also waits for the
    /// GPU's deferred frees.
    ///
    /// Free memory that shares a block with memory in use is kept. If waiting fails, as during a stream capture, blocks
    /// that the device may still use are kept, too.
    pub fn free_held(&self) {
        if !fork::is_forked() {
            self.inner().free_held();
        }
    }

    /// Frees unused blocks as [`free_held`](Self::free_held) does, and from now on every block once it is unused.
    /// Dropping memory of the pool then waits for the device as dropping a [`Memory`](crate::Memory) does.
    ///
    /// For pools that are about to be dropped: afterwards an allocation needs a new block whenever no memory is in use.
    pub fn stop_holding(&self) {
        if !fork::is_forked() {
            self.inner().stop_holding();
        }
    }

    /// The number of free chunks, including those in the caches of threads and those that the device may still use.
    #[must_use]
    pub fn free_chunks(&self) -> usize {
        if fork::is_forked() { 0 } else { self.inner().free_chunks() }
    }

    /// The number of allocated chunks, including dedicated allocations.
    #[must_use]
    pub fn used_chunks(&self) -> usize {
        if fork::is_forked() { 0 } else { self.inner().used().0 }
    }

    /// The bytes of the pool's blocks and dedicated allocations, whether in use or free.
    #[must_use]
    pub fn managed_bytes(&self) -> usize {
        if fork::is_forked() { 0 } else { self.inner().managed_bytes() }
    }

    /// The bytes of allocated memory, as requested.
    #[must_use]
    pub fn active_bytes(&self) -> usize {
        if fork::is_forked() { 0 } else { self.inner().used().1 }
    }

    /// The size in bytes of a piece, that is the chunk that [`allocate`](Self::allocate) would use for `len` bytes;
    /// none for 0 and for lengths that get a dedicated allocation.
    #[must_use]
    pub fn piece_len(&self, len: usize) -> Option<usize> {
        let classes = &self.inner().classes;
        classes.of(len).map(|class| classes.size(class))
    }

    /// The kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.inner().kind
    }

    /// The size of a block in bytes. When memory runs out, the pool allocates smaller blocks.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.inner().block_len
    }

    /// The handle that the blocks are allocated from.
    #[must_use]
    pub fn owner(&self) -> &Vkgdr {
        &self.inner().owner
    }

    /// The CUDA context that the memory belongs to.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.inner().context.raw()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("kind", &self.kind())
            .field("block_len", &self.block_len())
            .field("managed_bytes", &self.managed_bytes())
            .field("active_bytes", &self.active_bytes())
            .finish_non_exhaustive()
    }
}
