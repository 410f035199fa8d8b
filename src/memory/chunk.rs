//! A chunk: a reference-counted part of a block, or all of a dedicated one.
//!
//! A [`FreeChunk`] is in one of a pool's lists. While the chunk is allocated, each [`Memory`](crate::Memory) and
//! [`Region`](crate::Region) of it has a [`ChunkRef`]; the last one to go makes it a free chunk again and returns it.
//!
//! A chunk is listed by its address, once one of its addresses was asked for, until it is dropped. Lookups see a listed chunk
//! whether it is free or allocated, and read nothing of it but the reference count before they have a reference.
#![expect(unsafe_code, reason = "counts references to chunks on the heap")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUdeviceptr, CUstream};

use super::block::Block;
use super::shared_binding::{LazyBinding, SharedBinding};
use crate::Result;
use crate::access::copy::HostAccess;
use crate::addresses;
use crate::allocation::{Allocation, LINE};
use crate::driver::process;
use crate::report::report;
use crate::stream::binding::{Binding, DropPolicy};
use crate::sync::RefCount;

/// Part of a block, allocated and freed many times.
///
/// 40 bytes, so that glibc's malloc takes 48 for it: the lists of a pool hold millions.
pub(crate) struct Chunk {
    refs: RefCount,
    /// The index of its span in the pool's arena.
    span: u32,
    class: u16,
    /// How the CPU copies it.
    host_access: HostAccess,
    /// [`LISTED`] and [`EXPOSED`].
    marks: AtomicU8,
    /// Where it begins in its block, in units of [`LINE`] bytes.
    line: u32,
    /// The requested length. 0 while its only holder keeps it in a `Region`; stored here before a second reference exists.
    len: AtomicUsize,
    binding: LazyBinding,
    block: Arc<Block>,
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Chunk>() == 40);

/// The chunk is listed by its address; not reset before it is dropped.
const LISTED: u8 = 1;
/// The device may use the bytes: the device address was requested since the allocation, or the chunk is dedicated memory of
/// no pool.
const EXPOSED: u8 = 2;

/// A chunk without references, on the heap.
///
/// A raw pointer, not a box: lookups may read the reference count meanwhile.
pub(crate) struct FreeChunk(NonNull<Chunk>);

// SAFETY: the only owner of a chunk, and chunks may be sent and shared.
unsafe impl Send for FreeChunk {}
// SAFETY: as for `Send`.
unsafe impl Sync for FreeChunk {}

impl Deref for FreeChunk {
    type Target = Chunk;

    #[inline]
    fn deref(&self) -> &Chunk {
        // SAFETY: a chunk that lives until this is dropped; all that others may change of it is atomic.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for FreeChunk {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist there may hold the lock of the list.
        if self.marks.load(Ordering::Relaxed) & LISTED != 0 && !process::is_forked() {
            addresses::remove_chunk(self.block.base(), self.offset() as u64, self.0.as_ptr().cast());
        }
        // SAFETY: made from a box by `new`; not listed any more, so that nothing else refers to it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl fmt::Debug for FreeChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Chunk {
    /// The class of chunks that are all of a block.
    pub(crate) const DEDICATED: u16 = u16::MAX;

    pub(crate) const fn span(&self) -> u32 {
        self.span
    }

    #[inline]
    pub(crate) const fn class(&self) -> u16 {
        self.class
    }

    pub(crate) const fn is_dedicated(&self) -> bool {
        self.class == Self::DEDICATED
    }

    /// The bytes that were asked for; 0 while the chunk is free, or its first holder alone knows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn forget_len(&self) {
        self.len.store(0, Ordering::Relaxed);
    }

    /// Records the requested length, before there are other holders. Later calls change nothing.
    #[inline]
    pub(super) fn record_len(&self, len: usize) {
        if self.len() == 0 {
            self.len.store(len, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) const fn host_access(&self) -> HostAccess {
        self.host_access
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    #[inline]
    pub(super) fn allocation(&self) -> &Allocation {
        self.block.allocation()
    }

    #[inline]
    fn offset(&self) -> usize {
        self.line as usize * LINE
    }

    #[inline]
    pub(super) fn device_ptr(&self) -> CUdeviceptr {
        self.allocation().device_ptr() + self.offset() as u64
    }

    /// The first byte as the CPU sees it; null for device memory.
    #[inline]
    pub(super) fn host_ptr(&self) -> *mut u8 {
        self.allocation().host_ptr().map_or(ptr::null_mut(), |base| base.as_ptr().wrapping_add(self.offset()))
    }

    /// Marks the bytes as ones that the device may use from now on.
    #[inline]
    pub(crate) fn expose(&self) {
        if !self.is_exposed() {
            self.marks.fetch_or(EXPOSED, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is_exposed(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & EXPOSED != 0
    }

    /// Whether only the CPU has used the chunk since its allocation.
    #[inline]
    pub(crate) fn is_cpu_only(&self) -> bool {
        !self.is_exposed() && self.binding.is_unset()
    }

    pub(super) fn policy(&self) -> DropPolicy {
        self.binding.get().policy()
    }

    pub(super) fn release_immediately(&self) {
        self.change(Binding::release_immediately);
    }

    pub(super) fn bind(&self, stream: &Arc<CudaStream>) -> Result<()> {
        process::check()?;
        self.binding.shared().bind(stream, self.block.context())
    }

    /// # Safety
    ///
    /// `stream` must be live, and stay so until the bytes are released or bound to another stream.
    pub(super) unsafe fn bind_raw(&self, stream: CUstream) -> Result<()> {
        process::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.binding.shared().bind_raw(stream, self.block.context()) }
    }

    #[inline]
    pub(super) fn bound_stream(&self) -> Option<CUstream> {
        self.binding.known()?.get().stream()
    }

    /// Waits for the bound stream, and ends the binding.
    pub(super) fn unbind(&self) -> Result<()> {
        process::check()?;
        self.binding.known().map_or(Ok(()), |binding| binding.unbind(self.block.context()))
    }

    /// Waits for the bound stream, if there is one.
    pub(super) fn wait_for_stream(&self) -> Result<()> {
        process::check()?;
        self.binding.get().synchronize(self.block.context())
    }

    /// Records that `stream` is about to use the bytes.
    pub(crate) fn record_use(&self, stream: CUstream) {
        self.expose();
        self.change(|binding| binding.record_use(stream));
    }

    /// Records that the stream which the chunk is bound to next may still use it for an earlier holder.
    pub(crate) fn record_reuse(&self) {
        self.expose();
        self.change(Binding::record_reuse);
    }

    /// The binding, for uses through cudarc.
    pub(crate) fn binding(&self) -> &SharedBinding {
        self.binding.shared()
    }

    /// The chunk's first byte, and the bytes from there to the end of its block at most.
    pub(crate) fn extent(&self) -> (CUdeviceptr, usize) {
        (self.device_ptr(), self.allocation().len().saturating_sub(self.offset()))
    }

    /// Records that a copy of ours may still be under way.
    pub(super) fn record_unfinished_copy(&self) {
        self.expose();
        self.change(Binding::record_unfinished_copy);
    }

    /// Changes the binding. In a forked child, nothing: a thread that the child does not have may hold the lock.
    fn change(&self, change: impl FnOnce(&mut Binding)) {
        if !process::is_forked() {
            self.binding.shared().change(change);
        }
    }
}

impl FreeChunk {
    /// All of a block. If that is no pool's, the device may use it from the start.
    #[inline]
    pub(crate) fn dedicated(block: Block) -> Self {
        let (host_access, marks) = (block.host_access(), if block.pool().is_none() { EXPOSED } else { 0 });
        let chunk = Self::new(Arc::new(block), 0, host_access, 0, Chunk::DEDICATED);
        chunk.marks.store(marks, Ordering::Relaxed);
        chunk
    }

    /// The chunk of a size class at `offset`, a multiple of [`LINE`], of a block, with the block's `host_access`.
    #[inline]
    pub(crate) fn new(block: Arc<Block>, offset: usize, host_access: HostAccess, span: u32, class: u16) -> Self {
        debug_assert!(offset.is_multiple_of(LINE));
        // A block has at most 128 GiB (`PoolOptions::block_len`), 2^31 lines.
        let line = u32::try_from(offset / LINE).unwrap_or(u32::MAX);
        let (refs, marks) = (RefCount::new(0), AtomicU8::new(0));
        let (len, binding) = (AtomicUsize::new(0), LazyBinding::default());
        let chunk = Box::new(Chunk { refs, span, class, host_access, marks, line, len, binding, block });
        Self(NonNull::from(Box::leak(chunk)))
    }

    /// Resets the chunk to the state of a new one, but that it stays listed.
    #[inline]
    pub(crate) fn reset(&mut self) -> LastUse {
        self.forget_len();
        LastUse { exposed: self.unexpose(), binding: self.take_binding() }
    }

    /// Forgets that the device may use the bytes. Returns whether it may have.
    #[inline]
    fn unexpose(&mut self) -> bool {
        let marks = self.marks.load(Ordering::Relaxed);
        self.marks.store(marks & LISTED, Ordering::Relaxed);
        marks & EXPOSED != 0
    }

    #[inline]
    fn take_binding(&mut self) -> Binding {
        // SAFETY: a chunk that this owns; lookups reach its reference count alone.
        let binding = unsafe { &mut (*self.0.as_ptr()).binding };
        binding.take()
    }

    /// Forgets what the device did with the chunk, unless a copy of ours may still be under way.
    #[cold]
    fn mark_cpu_only(&mut self) {
        if self.binding.known().is_none_or(|binding| !binding.get().has_unfinished_copy()) {
            self.unexpose();
            drop(self.take_binding());
        }
    }

    /// Returns the chunk to its pool, or releases its block if it belongs to none.
    #[cold]
    pub(crate) fn give_back(self) -> Result<()> {
        match self.block.pool() {
            Some(pool) => pool.clone().take_back(self),
            None => self.release_dedicated(),
        }
    }

    /// Releases the chunk and the block that it is all of: as its binding says, or at once if the device has not had it.
    #[inline]
    pub(crate) fn release_dedicated(mut self) -> Result<()> {
        let LastUse { exposed, mut binding, .. } = self.reset();
        if !exposed {
            binding.release_immediately();
        }
        // SAFETY: a chunk that this owns; lookups reach its reference count alone.
        let block = unsafe { &mut (*self.0.as_ptr()).block };
        // All of the block: nothing else refers to it.
        Arc::get_mut(block).map_or(Ok(()), |block| block.release_once(&binding))
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, span, .. } = self;
        f.debug_struct("Chunk").field("class", class).field("span", span).field("block", &self.block).finish()
    }
}

/// How a chunk was used during its last allocation.
#[derive(Debug)]
pub(crate) struct LastUse {
    /// Whether the device may use the chunk.
    pub(crate) exposed: bool,
    pub(crate) binding: Binding,
}

/// A reference to an allocated chunk. The last one returns the chunk.
///
/// A raw pointer, so that `Option<Memory>` does not use this field as its niche: the value would be copied in pieces, and
/// the processor's store forwarding fail.
pub(crate) struct ChunkRef(*mut Chunk);

// SAFETY: a pointer to a chunk that is counted atomically, and chunks may be sent and shared.
unsafe impl Send for ChunkRef {}
// SAFETY: as for `Send`.
unsafe impl Sync for ChunkRef {}

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Chunk>();
};

impl ChunkRef {
    /// Allocates a free chunk for `len` bytes, or 0 if that is not known yet. Returns its only reference.
    pub(crate) fn new(chunk: FreeChunk, len: usize) -> Self {
        chunk.len.store(len, Ordering::Relaxed);
        chunk.refs.start();
        Self(ManuallyDrop::new(chunk).0.as_ptr())
    }

    /// A new reference to the chunk that contains a device or host address, if it can be looked up, and the offset of the
    /// address in it. The chunk's length is recorded. Not to be called in a forked child.
    pub(super) fn find(address: u64) -> Option<(Self, usize)> {
        let (chunk, offset) = addresses::find_chunk(address, |chunk, offset| {
            let chunk = chunk.cast::<Chunk>();
            // SAFETY: listed, and so not dropped before this returns.
            let refs = unsafe { &(*chunk).refs };
            refs.try_add().then(|| (Self(chunk), offset))
        })?;
        // Without the lock: this may be the last reference by now, whose drop calls the drivers.
        let offset =
            usize::try_from(offset).ok()?.checked_sub(chunk.offset()).filter(|&offset| offset < chunk.len())?;
        Some((chunk, offset))
    }

    /// Lets lookups find the chunk, whose length is recorded.
    #[inline]
    pub(crate) fn publish(&self) {
        if self.marks.load(Ordering::Relaxed) & LISTED == 0 {
            self.list();
        }
        self.refs.publish();
    }

    #[cold]
    fn list(&self) {
        // In a forked child a thread that does not exist there may hold the lock; nothing is looked up there either. Memory
        // of others is not in the table, and may be part of an allocation that is.
        if !process::is_forked() && self.allocation().existing().is_none() {
            addresses::add_chunk(self.block.base(), self.offset() as u64, self.0.cast());
            self.marks.fetch_or(LISTED, Ordering::Relaxed);
        }
    }

    /// The pointer of [`into_raw`](Self::into_raw).
    pub(crate) const fn as_ptr(&self) -> *mut Chunk {
        self.0
    }

    /// Turns the reference into a pointer.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut Chunk {
        ManuallyDrop::new(self).0
    }

    /// The reference of a pointer; none if the chunk is free, which its length tells.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), and one of the references made of it at most be dropped.
    #[inline]
    pub(crate) unsafe fn from_raw(chunk: *mut Chunk) -> Option<Self> {
        // SAFETY: the chunk has the reference that the pointer stands for, by this function's contract.
        let len = unsafe { &*chunk }.len();
        (len != 0).then(|| Self(chunk))
    }

    /// Whether only the CPU has used the chunk since its allocation, and this is the only reference, which it then stays:
    /// lookups do not find the chunk any more.
    #[inline]
    pub(crate) fn withdraw(&self) -> bool {
        self.is_cpu_only() && self.refs.withdraw()
    }

    /// Whether this is the only reference.
    pub(crate) fn is_only(&self) -> bool {
        self.refs.is_one()
    }

    /// Removes this reference; gives the chunk with the last one. In a forked child, nothing: the chunk is the parent's.
    #[inline]
    pub(crate) fn release(self) -> Option<FreeChunk> {
        let chunk = self.into_raw();
        // SAFETY: the reference keeps the chunk, up to the removal.
        let refs = unsafe { &(*chunk).refs };
        if process::is_forked() || !refs.remove() {
            return None;
        }
        // This was the last reference.
        NonNull::new(chunk).map(FreeChunk)
    }

    /// Removes this reference. Returns the error of the release if it was the last.
    pub(crate) fn free(self) -> Result<()> {
        self.release().map_or(Ok(()), FreeChunk::give_back)
    }

    /// As [`free`](Self::free), for a holder who knows that the device has finished with the bytes.
    #[inline]
    pub(crate) fn free_idle(self) -> Result<()> {
        self.release_idle().map_or(Ok(()), FreeChunk::give_back)
    }

    /// As [`release`](Self::release), for a holder who knows that the device has finished with the bytes: the chunk is
    /// returned as one that only the CPU has used.
    #[inline]
    pub(crate) fn release_idle(self) -> Option<FreeChunk> {
        if !self.refs.is_one() {
            // Others may still use it, but they need not wait for the device either.
            self.release_immediately();
            return self.release();
        }
        let mut chunk = self.release()?;
        if !chunk.is_cpu_only() {
            chunk.mark_cpu_only();
        }
        Some(chunk)
    }
}

impl Deref for ChunkRef {
    type Target = Chunk;

    #[inline]
    fn deref(&self) -> &Chunk {
        // SAFETY: the reference keeps the chunk alive, and all changes to it are atomic.
        unsafe { &*self.0 }
    }
}

impl Clone for ChunkRef {
    fn clone(&self) -> Self {
        self.refs.add();
        Self(self.0)
    }
}

impl Drop for ChunkRef {
    fn drop(&mut self) {
        // `release` takes the reference by value: this one has the same pointer, and `self` is not used again.
        if let Some(chunk) = Self(self.0).release()
            && let Err(error) = chunk.give_back()
        {
            report!(Warn, "releasing memory: {error}");
        }
    }
}
