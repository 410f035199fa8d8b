//! [`Region`]: a range of bytes that keeps its chunk alive. `Memory` is the region that covers all of it.
//!
//! The methods with which the CPU uses the bytes are in [`access`] and [`copy`].
#![expect(unsafe_code, reason = "offsets the host pointer, and uses streams that the caller owns")]

mod access;
mod copy;
mod copy_dispatch;

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use cudarc::driver::sys::{CUdeviceptr, CUstream};

use crate::access::cached_bytes::CachedBytes;
use crate::access::copy::HostAccess;
use crate::access::range;
use crate::access::view::View;
use crate::chunk::{Block, ChunkRef};
use crate::driver::Handle;
use crate::stream::binding::DropPolicy;
use crate::{Error, MemoryKind, MemoryTypeInfo, Result, StreamRef, Vkgdr};

/// A range of bytes that the CPU and the device share.
///
/// A region keeps its memory alive, even after the [`Memory`](crate::Memory) that it came from was dropped. A
/// `Memory` dereferences to the region that covers all of it, so that all methods work on both.
///
/// Both sides may write at any time, and regions may overlap. The methods that copy are safe nevertheless: a race
/// affects only which bytes are seen. Slices and pointers are `unsafe` to use.
///
/// All methods may be called from any thread; they make the memory's CUDA context current where they need
/// one. Offsets and ranges are in bytes from the region's start.
#[repr(C)]
pub struct Region {
    /// Null for device memory.
    host_ptr: Handle<*mut u8>,
    device_ptr: CUdeviceptr,
    chunk: ChunkRef,
    /// The pool and the size class of the chunk, copied from it: allocating and freeing memory that only the CPU uses
    /// does not touch the chunk, which is often in none of the CPU's caches.
    pool_id: u32,
    class: u16,
    /// How the CPU copies the chunk. `MaybeUninit` hides the enum's unused values: the compiler would encode `None` in
    /// them, and copy an `Option<Memory>` in pieces.
    host_access: MaybeUninit<HostAccess>,
    /// The sharing state of the chunk: [`UNSHARED`], [`SHARED`] or [`SHARED_EXPOSED`].
    sharing: AtomicU8,
    /// Last: it changes with every allocation of a pool, and the fields before it are copied as two vectors.
    len: usize,
}

/// The chunk has no other references and no recorded uses.
const UNSHARED: u8 = 0;
/// The chunk may have other references, or recorded uses.
const SHARED: u8 = 1;
/// [`SHARED`], and the chunk is marked as exposed to the device until its release. Another thread may overwrite this
/// with [`SHARED`]: then the chunk is marked once more.
const SHARED_EXPOSED: u8 = 2;

impl Region {
    /// The first `len` bytes of a chunk.
    #[inline]
    pub(crate) fn new(chunk: ChunkRef, len: usize) -> Self {
        let pool_id = chunk.pool_id();
        // Memory of no pool is exposed from the start.
        let sharing = if pool_id == Block::NO_POOL { SHARED_EXPOSED } else { UNSHARED };
        Self {
            host_ptr: Handle(chunk.host_ptr()),
            device_ptr: chunk.device_ptr(),
            len,
            pool_id,
            class: chunk.class(),
            host_access: MaybeUninit::new(chunk.host_access()),
            sharing: AtomicU8::new(sharing),
            chunk,
        }
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block {
        self.chunk.block()
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.chunk.is_pooled()
    }

    #[inline]
    pub(crate) const fn host_access(&self) -> HostAccess {
        // SAFETY: every region is made with a value.
        unsafe { self.host_access.assume_init() }
    }

    /// The chunk, marked as shared: its reference count and recorded uses may change from now on, and lookups find it.
    #[inline]
    pub(crate) fn chunk(&self) -> &ChunkRef {
        if self.is_unshared() {
            self.share();
        }
        &self.chunk
    }

    #[inline(never)]
    fn share(&self) {
        self.chunk.record_len(self.len);
        self.chunk.publish();
        self.sharing.store(SHARED, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn bound_stream(&self) -> Option<CUstream> {
        self.chunk.bound_stream()
    }

    pub(crate) fn policy(&self) -> DropPolicy {
        self.chunk.policy()
    }

    /// Whether this is the only reference to its chunk, and only the CPU has used it.
    #[inline]
    pub(crate) fn is_unshared(&self) -> bool {
        self.sharing.load(Ordering::Relaxed) == UNSHARED
    }

    /// If this is the only reference and only the CPU has used the chunk, clears the recorded length and returns true.
    /// Otherwise marks the chunk as shared and returns false.
    #[inline]
    pub(crate) fn reset_shared(&self) -> bool {
        let unshared = self.chunk.withdraw();
        if unshared {
            self.chunk.forget_len();
            self.sharing.store(UNSHARED, Ordering::Relaxed);
        } else {
            self.share();
        }
        unshared
    }

    /// [`reset_shared`](Self::reset_shared) for memory that is about to be freed. False for memory that was not shared,
    /// or is exposed.
    #[inline(never)]
    pub(crate) fn try_unshare(&self) -> bool {
        self.sharing.load(Ordering::Relaxed) == SHARED && self.reset_shared()
    }

    /// The id of its pool and the class of its chunk.
    #[inline]
    pub(crate) const fn pool_and_class(&self) -> (u32, u16) {
        (self.pool_id, self.class)
    }

    /// Changes the length, when the chunk is reused.
    #[inline]
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    /// The reference to the chunk, with the length recorded.
    #[inline]
    pub(crate) fn into_chunk(self) -> ChunkRef {
        self.chunk.record_len(self.len);
        self.chunk
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        View::checked(self.block().allocation(), self.offset(), self.len, self.host_access())
    }

    /// The offset in the allocation, in bytes.
    pub(crate) fn offset(&self) -> usize {
        // An allocation fits the address space.
        usize::try_from(self.device_ptr - self.block().allocation().device_ptr()).expect("usize has 64 bits")
    }

    /// The host address of a range.
    #[inline]
    pub(crate) fn host_range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        range::check(offset, len, self.len)?;
        let first = NonNull::new(self.host_ptr.0).ok_or_else(|| Error::NoHostView { kind: self.kind() })?;
        // SAFETY: `offset` is at most the length of the mapping at `host_ptr`.
        Ok(unsafe { first.add(offset) })
    }

    /// The handle that the memory was allocated from.
    #[must_use]
    #[inline]
    pub fn owner(&self) -> &Vkgdr {
        self.block().allocation().owner()
    }

    /// The device address of the first byte.
    #[inline]
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        *self.device_ptr_ref()
    }

    #[inline]
    pub(crate) fn device_ptr_ref(&self) -> &CUdeviceptr {
        if self.sharing.load(Ordering::Relaxed) != SHARED_EXPOSED {
            self.expose();
        }
        &self.device_ptr
    }

    /// Marks the chunk as exposed to the device.
    #[inline]
    fn expose(&self) {
        self.chunk().expose();
        self.sharing.store(SHARED_EXPOSED, Ordering::Relaxed);
    }

    /// The host address of the first byte; `None` for device memory.
    ///
    /// Valid while the region lives. The device may change the bytes at any time: read and write through the pointer
    /// with volatile or atomic accesses.
    #[inline]
    #[must_use]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        // Lists the memory, so that lookups find it by this address.
        self.chunk();
        NonNull::new(self.host_ptr.0)
    }

    /// The host address of the first byte as a number, for comparisons. Lookups need not find the memory by it, unlike by
    /// [`host_ptr`](Self::host_ptr).
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn host_address(&self) -> Option<usize> {
        NonNull::new(self.host_ptr.0).map(|pointer| pointer.addr().get())
    }

    /// The host addresses of memory that the CPU caches, for copies that name addresses.
    #[doc(hidden)]
    #[must_use]
    pub fn cached_bytes(&self) -> CachedBytes {
        CachedBytes::new(self.host_ptr(), self.len, self.host_access())
    }

    /// The number of bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The kind of memory.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.block().allocation().kind()
    }

    /// Whether the host and the device see each other's writes without [`flush`](Self::flush) and
    /// [`invalidate`](Self::invalidate). `flush` still orders write-combined stores for kernels that are already
    /// running.
    #[inline]
    #[must_use]
    pub fn is_coherent(&self) -> bool {
        self.block().allocation().memory_type().coherent
    }

    /// Whether the CPU caches the memory. If not, its stores are write-combined, and its loads slow.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.block().allocation().memory_type().cached
    }

    /// The granularity of flushes in bytes: 1 for coherent memory, otherwise Vulkan's `nonCoherentAtomSize`, or 64 for memory
    /// that does not come from Vulkan.
    #[inline]
    #[must_use]
    pub fn non_coherent_atom_size(&self) -> usize {
        self.block().allocation().memory_type().atom
    }

    /// The memory's type. Its index is [`MemoryTypeInfo::OUTSIDE_VULKAN`] for memory that does not come from Vulkan.
    #[must_use]
    pub fn memory_type(&self) -> MemoryTypeInfo {
        self.block().allocation().memory_type().info
    }

    /// A stream of the memory's context, for copies, fills and events. Any context may be current. Null and 1
    /// (`CU_STREAM_LEGACY`) are the legacy default stream of the memory's context, 2 (`CU_STREAM_PER_THREAD`) is its
    /// default stream of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context, [`Error::Forked`], and the errors of
    /// `cuStreamGetCtx`.
    ///
    /// # Safety
    ///
    /// The stream must outlive the last use of the returned value and its clones.
    pub unsafe fn stream(&self, raw: CUstream) -> Result<StreamRef> {
        // SAFETY: by this method's contract.
        unsafe { StreamRef::in_context(raw, self.block().context()) }
    }

    /// Waits for the bound stream. Does nothing if the memory is not bound.
    ///
    /// # Errors
    ///
    /// The errors of `cuStreamSynchronize`, including those of earlier, asynchronous work, and [`Error::Forked`].
    pub fn wait_for_stream(&self) -> Result<()> {
        self.chunk.wait_for_stream()
    }

    /// A part of this region, with its own pointers. It keeps the memory alive.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::ReversedRange`].
    pub fn region(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (offset, len) = range::resolve(&range, self.len())?;
        let host_ptr = self.host_ptr.0;
        let host_ptr = Handle(if host_ptr.is_null() { host_ptr } else { host_ptr.wrapping_add(offset) });
        Ok(Self { host_ptr, device_ptr: self.device_ptr + offset as u64, len, ..self.clone() })
    }

    /// Drops this region, but returns errors instead of logging them. Dropping the last region of
    /// the memory frees it.
    ///
    /// # Errors
    ///
    /// The first error of the drivers, see [`Memory::free`](crate::Memory::free).
    pub fn free(self) -> Result<()> {
        self.chunk.free()
    }

    /// [`free`](Self::free) without waiting for the device.
    #[inline]
    pub(crate) fn free_idle(self) -> Result<()> {
        self.chunk.free_idle()
    }
}

impl Clone for Region {
    fn clone(&self) -> Self {
        let chunk = self.chunk().clone();
        let Self { host_ptr, device_ptr, len, pool_id, class, host_access, .. } = *self;
        let sharing = AtomicU8::new(self.sharing.load(Ordering::Relaxed));
        Self { host_ptr, device_ptr, len, chunk, pool_id, class, host_access, sharing }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("offset", &self.offset())
            .field("len", &self.len())
            .field("kind", &self.kind())
            .field("device_ptr", &format_args!("{:#x}", self.device_ptr))
            .field("host_ptr", &NonNull::new(self.host_ptr.0))
            .finish_non_exhaustive()
    }
}
