//! [`Chunk`]: a reference-counted part of a [`Block`], or all of a block that is not divided.
//!
//! A block is a live allocation. A [`shared_binding`] says what the release of a chunk waits for, and [`pending`] is that work
//! where it cannot be waited for at once.
//!
//! While a chunk is allocated, each [`Memory`](crate::Memory) and [`Region`](crate::Region) of it has a [`ChunkRef`]; the last
//! one to go makes it a [`FreeChunk`] and returns it to the pool. A chunk in a thread's cache is free as well, but remains a
//! `Memory` with a reference, ready to be allocated again without a look at the chunk.
//!
//! A chunk is listed by its address, once one of its addresses was asked for, until it is dropped. Lookups see a listed chunk
//! whether it is free or allocated, and read nothing of it but the reference count before they have a reference.
#![expect(unsafe_code, reason = "counts references to chunks on the heap")]

mod block;
mod chunk_ref;
mod free_chunk;
pub(crate) mod pending;
pub(crate) mod shared_binding;

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUdeviceptr, CUstream};

use self::shared_binding::{LazyBinding, SharedBinding};
use crate::access::copy::HostAccess;
use crate::allocation::{Allocation, LINE};
use crate::driver::fork;
use crate::stream::binding::{Binding, DropPolicy};
use crate::sync::RefCount;
use crate::{Result, StreamRef};
pub(crate) use block::{Block, ChunkPool, ContextEntry};
pub(crate) use chunk_ref::ChunkRef;
pub(crate) use free_chunk::{FreeChunk, LastUse};

/// Part of a block, allocated and freed many times.
///
/// 40 bytes, so that glibc's malloc takes 48 for it: the lists of a pool hold millions.
pub(crate) struct Chunk {
    refs: RefCount,
    /// The owner's index: of the span in a pool's arena, or of the suballocation in a Vulkan allocator.
    slot: u32,
    class: u16,
    /// How the CPU copies it.
    host_access: HostAccess,
    /// [`LISTED`] and [`EXPOSED`].
    marks: AtomicU8,
    /// Where it begins in its block, in units of [`LINE`] bytes.
    line: u32,
    /// The requested length, and [`RAW`]. 0 while a pool's only reference keeps the length in its `Region`; stored here before a
    /// second reference exists.
    len: AtomicUsize,
    binding: LazyBinding,
    block: Arc<Block>,
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Chunk>() == 40);

/// The chunk is listed by its address, until `FreeChunk::unlist`, at the latest in the drop.
const LISTED: u8 = 1;
/// The device may have used the bytes since the allocation: the device address was requested, a use was recorded, or the chunk
/// is dedicated memory of no pool.
const EXPOSED: u8 = 2;

/// In the length: a raw pointer stands for one of the references (`ChunkRef::into_raw`). Not in the marks, which other holders
/// change: the holder of that pointer alone changes this, without an atomic read-modify-write.
const RAW: usize = 1 << (usize::BITS - 1);

impl Chunk {
    /// The class of chunks that are all of a block.
    pub(crate) const DEDICATED: u16 = u16::MAX;

    pub(crate) const fn slot(&self) -> u32 {
        self.slot
    }

    #[inline]
    pub(crate) const fn class(&self) -> u16 {
        self.class
    }

    pub(crate) const fn is_dedicated(&self) -> bool {
        self.class == Self::DEDICATED
    }

    /// The requested bytes; 0 while the chunk is free, or only its sole `Region` stores them.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) & !RAW
    }

    /// Whether a raw pointer stands for one of the references.
    #[inline]
    pub(crate) fn is_raw(&self) -> bool {
        self.len.load(Ordering::Relaxed) & RAW != 0
    }

    #[inline]
    pub(crate) fn forget_len(&self) {
        self.len.store(0, Ordering::Relaxed);
    }

    /// Records the requested length, before there are other holders. Later calls change nothing.
    #[inline]
    pub(crate) fn record_len(&self, len: usize) {
        if self.len() == 0 {
            self.len.store(len, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) const fn host_access(&self) -> HostAccess {
        self.host_access
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// The id of its pool, or [`Block::NO_POOL`].
    #[inline]
    pub(crate) fn pool_id(&self) -> u32 {
        self.block.pool_id()
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.block.pool().is_some()
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &Allocation {
        self.block.allocation()
    }

    #[inline]
    fn offset(&self) -> usize {
        self.line as usize * LINE
    }

    #[inline]
    pub(crate) fn device_ptr(&self) -> CUdeviceptr {
        self.allocation().device_ptr() + self.offset() as u64
    }

    /// The first byte as the CPU sees it; null for device memory.
    #[inline]
    pub(crate) fn host_ptr(&self) -> *mut u8 {
        self.allocation().host_ptr().map_or(ptr::null_mut(), |base| base.as_ptr().wrapping_add(self.offset()))
    }

    /// Marks the bytes as ones that the device may use from now on.
    #[inline]
    pub(crate) fn expose(&self) {
        if !self.is_exposed() {
            self.marks.fetch_or(EXPOSED, Ordering::Relaxed);
        }
    }

    /// Clears [`EXPOSED`]. Returns true if it was set. Requires exclusive use of the chunk.
    #[inline]
    fn unexpose(&self) -> bool {
        let marks = self.marks.load(Ordering::Relaxed);
        self.marks.store(marks & LISTED, Ordering::Relaxed);
        marks & EXPOSED != 0
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

    pub(crate) fn policy(&self) -> DropPolicy {
        self.binding.get().policy()
    }

    pub(crate) fn release_immediately(&self) {
        self.change(Binding::release_immediately);
    }

    /// Undoes [`release_immediately`](Self::release_immediately).
    pub(crate) fn release_with_wait(&self) {
        self.change(Binding::release_with_wait);
    }

    pub(crate) fn bind(&self, stream: &Arc<CudaStream>) -> Result<()> {
        fork::check()?;
        self.binding.shared().bind(stream, self.block.context())
    }

    /// # Safety
    ///
    /// `stream` must be live, and stay so until the bytes are released or bound to another stream, and calls that began before
    /// have returned. It must be of the block's context.
    pub(crate) unsafe fn bind_raw(&self, stream: StreamRef) -> Result<()> {
        fork::check()?;
        // SAFETY: by this method's contract.
        unsafe { self.binding.shared().bind_raw(stream, self.block.context()) }
    }

    #[inline]
    pub(crate) fn bound_stream(&self) -> Option<CUstream> {
        self.binding.known()?.get().stream()
    }

    /// Waits for the bound stream, and ends the binding.
    pub(crate) fn unbind(&self) -> Result<()> {
        fork::check()?;
        self.binding.known().map_or(Ok(()), |binding| binding.unbind(self.block.context()))
    }

    /// Waits for the bound stream, if there is one.
    pub(crate) fn wait_for_stream(&self) -> Result<()> {
        fork::check()?;
        self.binding.get().synchronize(self.block.context())
    }

    /// Records that `stream` is about to use the bytes.
    pub(crate) fn record_use(&self, stream: CUstream) {
        self.expose();
        self.change(|binding| binding.record_use(stream));
    }

    /// Records that `stream`, of any context, is about to use the bytes.
    pub(crate) fn record_use_by(&self, stream: StreamRef) -> Result<()> {
        fork::check()?;
        self.expose();
        let own = self.block.context();
        stream.keep_context_known(own)?;
        self.change(|binding| binding.record_use_by(stream, own));
        Ok(())
    }

    /// Records that the stream which is bound next may still run the previous user's work.
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
    pub(crate) fn record_unfinished_copy(&self) {
        self.expose();
        self.change(Binding::record_unfinished_copy);
    }

    /// Changes the binding. In a forked child, nothing: a thread that the child does not have may hold the lock.
    fn change(&self, change: impl FnOnce(&mut Binding)) {
        if !fork::is_forked() {
            self.binding.shared().change(change);
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, slot, .. } = self;
        f.debug_struct("Chunk").field("class", class).field("slot", slot).field("block", &self.block).finish()
    }
}

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Chunk>();
};
