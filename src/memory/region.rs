//! A range of bytes of [`Memory`](crate::Memory) with pointers of its own.
#![expect(unsafe_code, reason = "offers slices over memory that the device may change")]

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::{AnyBitPattern, Pod};
use cudarc::driver::sys::{CUdeviceptr, CUstream};

use super::binding::DropPolicy;
use super::block::Block;
use super::chunk::ChunkRef;
use crate::access::copy::{CopyRoutine, HostAccess};
use crate::access::guard::{MapGuard, MapMode};
use crate::access::range;
use crate::access::view::View;
use crate::driver::Handle;
use crate::{Error, MemoryKind, MemoryTypeInfo, Result, StreamRef, Vkgdr};

/// A range of bytes that the CPU and the device share.
///
/// A region keeps its memory alive, also after the [`Memory`](crate::Memory) that it came from is gone. A
/// `Memory` dereferences to the region that covers all of it, so that everything here works on both.
///
/// Both sides may write at any time, and regions may overlap. The copying methods are safe all the same: a race
/// changes which bytes are seen, nothing else. Slices and pointers are `unsafe` to use.
///
/// All methods may be called from any thread; they make the memory's own CUDA context current where they need
/// one. Offsets and ranges are in bytes from the region's start.
#[repr(C)]
pub struct Region {
    /// Null for device memory.
    host_ptr: Handle<*mut u8>,
    device_ptr: CUdeviceptr,
    chunk: ChunkRef,
    /// Where a pool keeps the chunk when it is free: here too, so that neither an allocation nor a free that only the CPU
    /// has used touches the chunk, which is often far from the CPU's caches.
    pool_id: u32,
    class: u16,
    /// How the CPU copies it: that of the chunk. `MaybeUninit` hides the values that it never has: the compiler would tell
    /// `Some` from `None` by them, and copy the region in pieces.
    host_access: MaybeUninit<HostAccess>,
    /// Whether the chunk may have other references, or uses that its release has to know of.
    shared: AtomicBool,
    /// Last: it changes with every allocation of a pool, and the rest is then copied in two vectors.
    len: usize,
}

impl Region {
    /// The first `len` bytes of a chunk.
    #[inline]
    pub(super) fn new(chunk: ChunkRef, len: usize) -> Self {
        Self {
            host_ptr: Handle(chunk.host_ptr()),
            device_ptr: chunk.device_ptr(),
            len,
            pool_id: chunk.block().pool_id(),
            class: chunk.class(),
            host_access: MaybeUninit::new(chunk.host_access()),
            shared: AtomicBool::new(false),
            chunk,
        }
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block {
        self.chunk.block()
    }

    #[inline]
    pub(super) const fn host_access(&self) -> HostAccess {
        // SAFETY: every region is made with it.
        unsafe { self.host_access.assume_init() }
    }

    /// The chunk, whose count and marks may change from now on.
    #[inline]
    pub(crate) fn chunk(&self) -> &ChunkRef {
        self.shared.store(true, Ordering::Relaxed);
        &self.chunk
    }

    #[inline]
    pub(super) fn bound_stream(&self) -> Option<CUstream> {
        self.chunk.bound_stream()
    }

    pub(super) fn policy(&self) -> DropPolicy {
        self.chunk.policy()
    }

    /// Whether this is the only reference to its chunk, and only the CPU has used it.
    #[inline]
    pub(super) fn is_only_use(&self) -> bool {
        !self.shared.load(Ordering::Relaxed)
    }

    /// Marks all of a chunk as shared, unless it is the only reference and only the CPU has used it: then the recorded
    /// length is forgotten.
    #[inline]
    pub(super) fn forget_single_use(&self) {
        let shared = !self.chunk.is_only_use();
        if !shared {
            self.chunk.forget_len();
        }
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// The id of its pool and the class of its chunk.
    #[inline]
    pub(super) const fn place(&self) -> (u32, u16) {
        (self.pool_id, self.class)
    }

    /// Changes the length of all of a chunk, for another holder.
    #[inline]
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    /// Gives up all of a chunk for the reference to it.
    #[inline]
    pub(super) fn into_chunk(self) -> ChunkRef {
        self.chunk.set_len(self.len);
        self.chunk
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        View::checked(self.block().allocation(), self.offset(), self.len, self.host_access())
    }

    /// Where it begins in its allocation, in bytes.
    fn offset(&self) -> usize {
        // An allocation fits the address space.
        usize::try_from(self.device_ptr - self.block().allocation().device_ptr()).unwrap_or(usize::MAX)
    }

    /// The host address of a range.
    #[inline]
    pub(super) fn host_range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
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

    /// The first byte's address on the device.
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        *self.device_ptr_ref()
    }

    #[inline]
    pub(crate) fn device_ptr_ref(&self) -> &CUdeviceptr {
        self.chunk().expose();
        &self.device_ptr
    }

    /// The first byte's address for the CPU; none for device memory.
    ///
    /// Valid for as long as the region lives. The device may change the bytes at any time: read and write
    /// through the pointer with volatile or atomic accesses.
    #[must_use]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.host_ptr.0)
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.block().allocation().kind()
    }

    /// Whether the host and the device see each other's writes without [`flush`](Self::flush) and
    /// [`invalidate`](Self::invalidate). `flush` still orders write-combined stores, which a kernel that is
    /// already running needs.
    #[must_use]
    pub fn is_coherent(&self) -> bool {
        self.block().allocation().memory_type().coherent
    }

    /// What flushes are rounded to, in bytes: 1 where the memory is coherent, Vulkan's `nonCoherentAtomSize`
    /// where not.
    #[must_use]
    pub fn non_coherent_atom_size(&self) -> usize {
        self.block().allocation().memory_type().atom
    }

    /// The memory type that the memory came from.
    #[must_use]
    pub fn memory_type(&self) -> MemoryTypeInfo {
        self.block().allocation().memory_type().info
    }

    /// A stream of the memory's context, for copies, fills and events. Null and 1 are that context's legacy default
    /// stream, 2 is the calling thread's default stream there. Whichever context is current does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context, [`Error::Forked`], and what
    /// `cuStreamGetCtx` returns.
    ///
    /// # Safety
    ///
    /// The stream must stay alive for as long as the value and its copies are used.
    pub unsafe fn stream(&self, raw: CUstream) -> Result<StreamRef> {
        // SAFETY: by this method's contract.
        unsafe { StreamRef::in_context(raw, self.block().context()) }
    }

    /// Waits for the stream that the memory is bound to. Does nothing when it is bound to none.
    ///
    /// # Errors
    ///
    /// What `cuStreamSynchronize` returns, also errors of earlier, asynchronous work, and [`Error::Forked`].
    pub fn wait_for_stream(&self) -> Result<()> {
        self.chunk.wait_for_stream()
    }

    /// Makes the CPU's writes to a range visible to the device.
    ///
    /// The range may start and end anywhere; it is rounded outwards to whole atoms. What the device wrote beside it in
    /// the same atoms may be lost, unless it was invalidated before the CPU wrote, as [`map`](Self::map) does.
    ///
    /// Where the memory is coherent this only orders write-combined stores, so that a kernel that is already running
    /// sees them in order. Device memory has nothing to flush.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], and what `vkFlushMappedMemoryRanges` returns.
    #[inline]
    pub fn flush(&self, range: impl RangeBounds<usize>) -> Result<()> {
        let (offset, len) = range::resolve(&range, self.len())?;
        self.view().flush(offset, len)
    }

    /// Makes the device's writes to a range visible to the CPU.
    ///
    /// The device's work must have finished: synchronise its stream first, or use [`map`](Self::map). The range
    /// is rounded outwards to whole atoms, and CPU writes in those atoms that were not flushed may be lost.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], and what `vkInvalidateMappedMemoryRanges` returns.
    #[inline]
    pub fn invalidate(&self, range: impl RangeBounds<usize>) -> Result<()> {
        let (offset, len) = range::resolve(&range, self.len())?;
        self.view().invalidate(offset, len)
    }

    /// The routine that copies between private memory and this memory.
    #[must_use]
    pub fn copy_routine(&self) -> CopyRoutine {
        self.view().copy_routine()
    }

    /// Begins a scope in which the CPU uses a range.
    ///
    /// Waits for the bound stream, if the memory is bound to one (otherwise synchronise first yourself), and
    /// invalidates. The guard flushes when it goes. What is invalidated and flushed depends on the mode. On
    /// non-coherent memory whole atoms are, so that guards whose ranges share an atom must not be alive together.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::NoHostView`], and what the drivers return.
    pub fn map(&self, mode: MapMode, range: impl RangeBounds<usize>) -> Result<MapGuard<'_>> {
        let (offset, len) = range::resolve(&range, self.len())?;
        if !self.kind().has_host_view() {
            return Err(Error::NoHostView { kind: self.kind() });
        }
        self.chunk.wait_for_stream()?;
        MapGuard::new(self.view().part(offset, len)?, mode)
    }

    /// A part of this region, with pointers of its own. It keeps the memory alive.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    pub fn region(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (offset, len) = range::resolve(&range, self.len())?;
        let host_ptr = self.host_ptr.0;
        let host_ptr = Handle(if host_ptr.is_null() { host_ptr } else { host_ptr.wrapping_add(offset) });
        Ok(Self { host_ptr, device_ptr: self.device_ptr + offset as u64, len, ..self.clone() })
    }

    /// The bytes as elements of `T`, as pointer and count.
    pub(crate) fn elements<T>(&self) -> Result<(NonNull<T>, usize)> {
        self.view().elements()
    }

    /// Gives this region up. If it is the last of its memory, the memory is freed as a drop does it, and what goes wrong
    /// is reported.
    ///
    /// # Errors
    ///
    /// The drivers' first error, see [`Memory::free`](crate::Memory::free).
    pub fn free(self) -> Result<()> {
        self.chunk.free()
    }

    /// As [`free`](Self::free), and nothing is waited for.
    #[inline]
    pub(super) fn free_idle(self) -> Result<()> {
        self.chunk.free_idle()
    }

    /// The bytes as a slice.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] when address or length do not fit `T`, [`Error::NoHostView`].
    ///
    /// # Safety
    ///
    /// While the slice lives, neither the device nor the CPU may write to the region, on any thread, through any
    /// view of the bytes.
    pub unsafe fn as_slice<T: AnyBitPattern>(&self) -> Result<&[T]> {
        let (pointer, count) = self.elements::<T>()?;
        // SAFETY: mapped and aligned, every bit pattern is a `T`, and nobody writes by this method's contract.
        Ok(unsafe { slice::from_raw_parts(pointer.as_ptr(), count) })
    }

    /// The bytes as a mutable slice.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`] when address or length do not fit `T`, [`Error::NoHostView`].
    ///
    /// # Safety
    ///
    /// While the slice lives, neither the device nor the CPU may read or write the region by another way, on
    /// any thread, through any of its views.
    pub unsafe fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        let (pointer, count) = self.elements::<T>()?;
        // SAFETY: mapped and aligned, every bit pattern is a `T`, and nobody else uses the bytes by this
        // method's contract.
        Ok(unsafe { slice::from_raw_parts_mut(pointer.as_ptr(), count) })
    }
}

impl Clone for Region {
    fn clone(&self) -> Self {
        let chunk = self.chunk();
        chunk.set_len(self.len);
        let chunk = chunk.clone();
        let Self { host_ptr, device_ptr, len, pool_id, class, host_access, .. } = *self;
        Self { host_ptr, device_ptr, len, chunk, pool_id, class, host_access, shared: AtomicBool::new(true) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("offset", &self.offset())
            .field("len", &self.len())
            .field("kind", &self.kind())
            .field("device_ptr", &format_args!("{:#x}", self.device_ptr))
            .field("host_ptr", &self.host_ptr())
            .finish_non_exhaustive()
    }
}
