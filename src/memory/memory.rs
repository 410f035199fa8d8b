//! [`Memory`]: a region of all of its bytes, with allocation and `free`. Its last reference frees it.
#![expect(unsafe_code, reason = "streams and early release are the caller's responsibility")]

use std::fmt;
use std::ops::Deref;

use bytemuck::Pod;
use cudarc::driver::sys::{CUcontext, CUdeviceptr};

use super::options::AllocateOptions;
use crate::allocation::Allocation;
use crate::chunk::{Block, Chunk, ChunkRef, FreeChunk};
use crate::region::Region;
use crate::{MemoryKind, Result, Vkgdr};

/// Memory that the CPU and the device share, freed when it is dropped.
///
/// It remembers the CUDA context that it was allocated in, so that it may be used and dropped on any thread, with any
/// context current. Freeing it first waits for the device, see [`DropPolicy`](crate::DropPolicy).
///
/// # Contexts
///
/// Free memory before its context, and before other contexts whose streams read it. What the driver does with a destroyed
/// context is undefined, and CUDA cannot be asked whether one was destroyed. It counts as destroyed if
/// the driver no longer knows the address of the memory, the device's primary context no longer exists, another context has the
/// same address, or it was destroyed while it was current on this thread. Then only Vulkan's side is
/// freed, and a warning is logged. Otherwise the context counts as alive. None of this matters with a handle from
/// [`Vkgdr::open_primary_context`](crate::Vkgdr::open_primary_context), unless the primary context is reset.
///
/// Freeing memory queries CUDA events or waits for a context, on the calling thread. During a stream capture, CUDA forbids
/// that and makes the capture invalid: drop memory before or after captures. Memory that is bound to a
/// stream, or [freed idle](Self::free_idle), may be dropped meanwhile if its stream is not the captured one and the capture is
/// either relaxed or both thread-local and another thread's. Memory that cannot be waited for because of a capture is released
/// later, see [`Vkgdr::collect`](crate::Vkgdr::collect).
///
/// In a forked child, operations that need a driver return [`Error::Forked`](crate::Error::Forked), and dropping or freeing
/// does nothing: the memory is the parent's.
///
/// Reading, writing, mapping and making sub-regions are methods of [`Region`], to which this type dereferences.
///
/// # cudarc
///
/// `&Memory` and `&Region` can be passed to cudarc's copies and kernel launches. A copy covers the whole memory or
/// region, as elements of the type on its other side; trailing bytes that make no whole element are left out.
///
/// Uses through cudarc are ordered as those of cudarc's own slices: on whichever streams of the memory's context, a read
/// waits for earlier writes and a write for all earlier uses of the memory and its regions. Memory is not freed before
/// such uses have finished, also those by streams of other contexts. `CudaContext::disable_event_tracking` turns
/// this order off; the release still waits for the memory's own context. Kernels that are launched with the plain
/// [`device_ptr`](Self::device_ptr) are not known: call [`record_use`](Self::record_use) if the memory is bound to another
/// stream.
///
/// # Examples
///
/// ```no_run
/// use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};
///
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let memory = Memory::allocate(&gpu, 1 << 20, MemoryKind::Mapped)?;
/// memory.write(0, &[1_u32, 2, 3])?;
/// memory.flush(..)?;
/// println!("kernels use {:#x}", memory.device_ptr());
/// # Ok::<(), vkgdr::Error>(())
/// ```
pub struct Memory(Region);

impl Memory {
    /// Allocates `len` bytes in the handle's primary context if it retains that, otherwise in the current context,
    /// which must belong to the handle's device.
    ///
    /// The contents are undefined. The host pointer is aligned to at least 64 bytes (Vulkan's
    /// `minMemoryMapAlignment`). On a real driver each allocation holds a file descriptor while it lives (`ulimit -n`); the
    /// allocations of a [`Pool`](crate::Pool) share one for each block.
    ///
    /// An allocation may wait until running kernels have ended (CUDA programming guide, "Implicit Synchronization"): allocate
    /// before starting a kernel that waits for the CPU.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::WrongDevice`](crate::Error::WrongDevice) when it is
    /// another device's, [`Error::ZeroSize`](crate::Error::ZeroSize),
    /// [`Error::NoSuitableMemoryType`](crate::Error::NoSuitableMemoryType), [`Error::Allocation`](crate::Error::Allocation)
    /// when memory is exhausted or the size exceeds the heap (`CUDA_ERROR_OUT_OF_MEMORY` or `ENOMEM` for memory that does not
    /// come from Vulkan), [`Error::Forked`](crate::Error::Forked), and other errors of the drivers.
    pub fn allocate(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        Self::make(owner, || Allocation::new(owner, len, kind))
    }

    /// Like [`allocate`](Self::allocate), with kinds to fall back on: memory of the first kind that is neither missing nor
    /// exhausted. [`kind`](Region::kind) tells which it is.
    ///
    /// # Errors
    ///
    /// Those of [`allocate`](Self::allocate). If every kind is missing, exhausted or refused by a driver, the first kind's
    /// error is returned. Any other error is returned at once, such as that of the context or of a length of 0.
    pub fn allocate_with(owner: &Vkgdr, len: usize, options: AllocateOptions) -> Result<Self> {
        let allocate = |kind| {
            let make = if options.has_dma_buf() { Allocation::of_dma_buf } else { Allocation::new };
            Self::make(owner, || make(owner, len, kind))
        };
        let refusal = match allocate(options.kind()) {
            Err(error) if owner.lacks(options.kind(), &error) => error,
            result => return result,
        };
        for kind in options.others() {
            match allocate(kind) {
                Err(error) if owner.lacks(kind, &error) => {}
                result => return result,
            }
        }
        Err(refusal)
    }

    #[inline]
    pub(super) fn make(owner: &Vkgdr, allocate: impl FnOnce() -> Result<Allocation>) -> Result<Self> {
        let block = Block::dedicated(owner, allocate)?;
        let len = block.allocation().len();
        let chunk = ChunkRef::new(FreeChunk::dedicated(block), len);
        chunk.publish();
        Ok(Self::new(chunk, len))
    }

    /// The first `len` bytes of a chunk.
    #[inline]
    pub(crate) fn new(chunk: ChunkRef, len: usize) -> Self {
        Self(Region::new(chunk, len))
    }

    /// All of a chunk, with its recorded length. If this is the only reference and only the CPU has used the chunk, it
    /// is not marked as shared.
    #[inline]
    pub(crate) fn allocated(chunk: ChunkRef) -> Self {
        let len = chunk.len();
        let memory = Self(Region::new(chunk, len));
        memory.0.reset_shared();
        memory
    }

    /// The memory of a chunk that an address was looked up in.
    pub(super) fn found(chunk: ChunkRef) -> Self {
        let len = chunk.len();
        let memory = Self::new(chunk, len);
        memory.0.chunk();
        memory
    }

    /// The address of its chunk, if it is memory of a pool and a raw pointer stands for a reference.
    pub(crate) fn raw_chunk(&self) -> Option<*mut Chunk> {
        let chunk = self.0.chunk();
        (self.0.is_pooled() && chunk.is_raw()).then(|| chunk.as_ptr())
    }

    /// Marks the chunk as shared, with the length recorded for the reference that frees it.
    pub(crate) fn share(&self) {
        self.0.chunk();
    }

    /// The id of its pool and the class of its chunk.
    #[inline]
    pub(crate) const fn pool_and_class(&self) -> (u32, u16) {
        self.0.pool_and_class()
    }

    /// Whether this is the only reference to its chunk, and only the CPU has used it.
    #[inline]
    pub(crate) fn is_unshared(&self) -> bool {
        self.0.is_unshared()
    }

    /// As [`is_unshared`](Self::is_unshared), for memory that is about to be freed: it asks the chunk where an address of the
    /// memory was asked for.
    #[inline]
    pub(crate) fn try_unshare(&self) -> bool {
        self.0.try_unshare()
    }

    /// Changes the length, when the chunk is reused.
    #[inline]
    pub(crate) fn set_len(&mut self, len: usize) {
        self.0.set_len(len);
    }

    /// The reference to the chunk, with the length recorded.
    #[inline]
    pub(crate) fn into_chunk(self) -> ChunkRef {
        self.0.into_chunk()
    }

    /// The device address of the first byte.
    #[inline]
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        self.0.device_ptr()
    }

    /// A number that all references to the same memory share, and no other live memory has. From this call on,
    /// [`memory_of`](crate::memory_of) finds the memory by any address that the caller knows.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0.chunk().as_ptr().addr() as u64
    }

    /// The number of bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes: never, since empty memory cannot be allocated.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CUDA context that the memory belongs to.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.0.block().context().raw()
    }

    /// The bytes as a mutable slice, see [`Region::as_mut_slice`].
    ///
    /// # Errors
    ///
    /// The errors of [`Region::as_mut_slice`].
    ///
    /// # Safety
    ///
    /// See [`Region::as_mut_slice`].
    pub unsafe fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        // SAFETY: by this method's contract, which is the same.
        unsafe { self.0.as_mut_slice() }
    }

    /// Frees the memory as a drop does, but returns errors instead of logging them. While regions of it are alive, the
    /// last of them frees it.
    ///
    /// # Errors
    ///
    /// The first error of the drivers. Nothing leaks: the memory is freed even then or, if waiting for the device
    /// failed temporarily (during a stream capture, for example), later, as with
    /// [`DropPolicy::WaitForStream`](crate::DropPolicy::WaitForStream).
    ///
    /// # Examples
    ///
    /// Freed memory cannot be used:
    ///
    /// ```compile_fail,E0382
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
    /// memory.free()?;
    /// memory.write(0, &[1_u8])?; // error[E0382]: borrow of moved value: `memory`
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn free(self) -> Result<()> {
        self.0.free()
    }

    /// Frees memory that the device has finished with, without waiting:
    /// [`release_immediately`](Self::release_immediately) and [`free`](Self::free) in one, for bound memory too. A
    /// [`Pool`](crate::Pool) can reuse its memory at once.
    ///
    /// # Errors
    ///
    /// The errors of [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// See [`release_immediately`](Self::release_immediately).
    #[inline]
    pub unsafe fn free_idle(self) -> Result<()> {
        self.0.free_idle()
    }

    /// As [`free`](Self::free), for memory that was found by its address: waits even if the owner has freed it as idle,
    /// since that promise covered the owner's uses only. For the C library.
    ///
    /// # Errors
    ///
    /// Those of [`free`](Self::free).
    #[doc(hidden)]
    pub fn free_found(self) -> Result<()> {
        self.0.chunk().release_with_wait();
        self.free()
    }
}

impl Deref for Memory {
    type Target = Region;

    #[inline]
    fn deref(&self) -> &Region {
        &self.0
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("len", &self.len())
            .field("kind", &self.kind())
            .field("device_ptr", &format_args!("{:#x}", self.device_ptr()))
            .field("host_ptr", &self.host_ptr())
            .field("context", &self.context())
            .field("drop_policy", &self.drop_policy())
            .finish_non_exhaustive()
    }
}
