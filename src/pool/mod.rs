//! Pools: memory in nanoseconds, from blocks that the drivers gave long before.
//!
//! Blocks are allocations like any other. The arena ([`arena`]) divides them into spans, and each span into chunks of one
//! size class ([`classes`]). Each thread keeps a few free chunks ([`thread_cache`]); chunks that the device may still use
//! wait in [`pending`]. [`inner`] ties them together.

mod arena;
mod classes;
mod inner;
mod memory;
mod options;
mod pending;
mod thread_cache;

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUcontext, CUstream};

use self::inner::PoolInner;
use crate::driver::process;
use crate::{MemoryKind, Result, Vkgdr};
pub use memory::PoolMemory;
pub use options::PoolOptions;

/// Allocates small memory in nanoseconds: from blocks that it asked the drivers for before, without a call to a driver
/// or to the system.
///
/// A pool gives memory of one kind, in one CUDA context: the handle's primary one if the handle retains that, else the
/// one that was current when the pool was made. It may be used from any thread, whichever context is current there;
/// clones are the same pool. Lengths are rounded up to size classes, see [`PoolOptions`]. Each thread keeps some free
/// pieces for itself: up to 64 of a class and up to 512 KiB of it.
///
/// # When memory is used again
///
/// **Memory that goes back is not given out again while the device may still use it.** What happens depends on what was
/// done with it:
///
/// * Nobody asked for its [`device_ptr`](crate::Region::device_ptr), and it was given to no kernel or copy of cudarc: the
///   device cannot have used it, and it is given out again at once.
/// * It was bound to a stream ([`bind_stream`](crate::Memory::bind_stream), [`allocate_on`](Self::allocate_on)): at once
///   for that stream, and for anybody else after an event. Where the pool keeps the stream alive, it puts one event
///   behind many pieces, when it would need a new block otherwise; behind memory that is bound to a raw stream it puts
///   an event when it goes back, since nobody knows how long such a stream lives.
/// * Else when all work of the context is done. **The pool waits for the context once for many pieces**: in an
///   `allocate` that would need a new block otherwise, once a quarter of a block has come back so. Bind memory to
///   streams, or synchronise and call [`release_immediately`](crate::Memory::release_immediately), where that wait would
///   harm.
///
/// The rules for whom the memory waits for are those of [`DropPolicy`](crate::DropPolicy); a pool only changes when.
///
/// # The end
///
/// When the last clone of a pool goes, its free memory does, too. Memory that is in use keeps its block, until the last
/// of that block goes; then the block waits for its context and is freed like a [`Memory`](crate::Memory). When the
/// context is destroyed first, the pool is of no use any more: it goes on giving out what it has, which the device
/// refuses.
///
/// In a process that was forked off, allocating is refused with [`Error::Forked`](crate::Error::Forked), and everything
/// else does nothing.
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

/// A pool that somebody can still allocate from.
struct Open(Arc<PoolInner>);

impl Drop for Open {
    fn drop(&mut self) {
        if !process::is_forked() {
            self.0.close();
        }
    }
}

impl Pool {
    /// Makes a pool, which has no block yet.
    ///
    /// # Errors
    ///
    /// [`Error::PoolOption`](crate::Error::PoolOption) for an option that cannot be,
    /// [`Error::NoSuitableMemoryType`](crate::Error::NoSuitableMemoryType) when the GPU has no memory of the kind,
    /// `CUDA_ERROR_INVALID_CONTEXT` when a context must be current and none is,
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) when it is another device's, and
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn new(owner: &Vkgdr, options: PoolOptions) -> Result<Self> {
        let inner = Arc::new(PoolInner::new(owner, &options)?);
        Ok(Self { open: Arc::new(Open(inner)) })
    }

    #[inline]
    fn inner(&self) -> &Arc<PoolInner> {
        &self.open.0
    }

    /// Memory of `len` bytes. What is in it is undefined.
    ///
    /// When a driver has run out of memory, the pool waits for the device, frees what it holds and tries once more, with
    /// a smaller block.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`](crate::Error::ZeroSize), [`Error::Forked`](crate::Error::Forked), and where a block or an
    /// allocation of its own has to be made, as [`Memory::allocate`](crate::Memory::allocate).
    #[inline]
    pub fn allocate(&self, len: usize) -> Result<PoolMemory> {
        let inner = self.inner();
        let cached = if process::is_forked() { None } else { inner.classes.of(len) };
        match cached.and_then(|class| thread_cache::take(inner.id, class, len)) {
            Some(memory) => Ok(PoolMemory::new(memory)),
            None => inner.allocate(len).map(PoolMemory::new),
        }
    }

    /// Memory of `len` bytes, bound to a stream, see [`Memory::bind_stream`](crate::Memory::bind_stream).
    ///
    /// Memory that was bound to the stream before is given out at once: earlier work of the stream may still use it.
    /// Work that the stream is given from now on comes after that. The CPU has to wait before it writes or reads:
    /// [`map`](crate::Region::map) does.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate), [`Error::ForeignStream`](crate::Error::ForeignStream) when the stream belongs to
    /// another context than the pool, and [`Error::PerThreadStream`](crate::Error::PerThreadStream).
    pub fn allocate_on(&self, len: usize, stream: &Arc<CudaStream>) -> Result<PoolMemory> {
        process::check()?;
        let memory = match self.inner().allocate_for_stream(len, stream.cu_stream()) {
            Some(memory) => PoolMemory::new(memory),
            None => self.allocate(len)?,
        };
        memory.bind_stream(stream)?;
        Ok(memory)
    }

    /// As [`allocate_on`](Self::allocate_on), for a stream that somebody else keeps alive. Null is the legacy default
    /// stream of the pool's context.
    ///
    /// # Errors
    ///
    /// As [`allocate_on`](Self::allocate_on), and what `cuStreamGetCtx` and `cuStreamWaitEvent` return.
    ///
    /// # Safety
    ///
    /// The stream must stay alive until the memory and all its regions are gone, or were bound to another stream.
    #[expect(unsafe_code, reason = "uses a stream that the caller keeps alive")]
    pub unsafe fn allocate_on_raw(&self, len: usize, stream: CUstream) -> Result<PoolMemory> {
        process::check()?;
        // SAFETY: the stream is live by this method's contract.
        let memory = match unsafe { self.inner().allocate_for_event(len, stream) }? {
            Some(memory) => PoolMemory::new(memory),
            None => self.allocate(len)?,
        };
        // SAFETY: live for long enough by this method's contract.
        unsafe { memory.bind_raw_stream(stream) }?;
        Ok(memory)
    }

    /// Gives blocks that nobody uses back to the drivers, until the pool manages no more than `keep` bytes. Returns the
    /// bytes given back.
    ///
    /// Does not wait: memory that the device may still use stays.
    pub fn trim(&self, keep: usize) -> usize {
        if process::is_forked() { 0 } else { self.inner().trim(keep) }
    }

    /// Waits for the pool's context and gives back every block that nobody uses.
    ///
    /// Free memory that shares a block with memory in use is still held. Where waiting fails, as during a stream capture,
    /// what the device may still use stays.
    pub fn free_held(&self) {
        if !process::is_forked() {
            self.inner().free_held();
        }
    }

    /// Frees what is held, see [`free_held`](Self::free_held), and from now on gives a block back as soon as nobody uses
    /// it. Memory that goes back waits for the device as a [`Memory`](crate::Memory) does when it is dropped.
    ///
    /// For pools that are about to fall out of use: every allocation after the last one is gone makes a block again.
    pub fn stop_holding(&self) {
        if !process::is_forked() {
            self.inner().stop_holding();
        }
    }

    /// The number of free chunks that the pool keeps, in all threads, those included that wait for the device.
    #[must_use]
    pub fn free_chunks(&self) -> usize {
        if process::is_forked() { 0 } else { self.inner().free_chunks() }
    }

    /// The number of chunks in use.
    #[must_use]
    pub fn used_chunks(&self) -> usize {
        if process::is_forked() { 0 } else { self.inner().used().0 }
    }

    /// The bytes that the pool has from the drivers: in use, free, or lost between pieces.
    #[must_use]
    pub fn managed_bytes(&self) -> usize {
        if process::is_forked() { 0 } else { self.inner().managed_bytes() }
    }

    /// The bytes that are in use, as they were asked for.
    #[must_use]
    pub fn active_bytes(&self) -> usize {
        if process::is_forked() { 0 } else { self.inner().used().1 }
    }

    /// The bytes that a piece for `len` bytes takes up; none for 0 and for what gets an allocation of its own.
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

    /// The size of the blocks in bytes.
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
