//! References to allocated chunks, and their lookup by address.
#![expect(unsafe_code, reason = "counts references to chunks on the heap")]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::{Chunk, FreeChunk, LISTED, RAW};
use crate::driver::fork;
use crate::report::report;
use crate::{Result, addresses};

/// A reference to an allocated chunk. The last one returns the chunk.
///
/// A raw pointer, so that `Option<Memory>` does not use this field as its niche: the value would be copied in pieces, and
/// the processor's store forwarding fail.
pub(crate) struct ChunkRef(*mut Chunk);

// SAFETY: a pointer to a chunk that is counted atomically, and chunks may be sent and shared.
unsafe impl Send for ChunkRef {}
// SAFETY: as for `Send`.
unsafe impl Sync for ChunkRef {}

impl ChunkRef {
    /// Allocates a free chunk for `len` bytes, or 0 if that is not known yet. Returns its only reference.
    pub(crate) fn new(chunk: FreeChunk, len: usize) -> Self {
        chunk.len.store(len, Ordering::Relaxed);
        chunk.refs.start();
        Self(ManuallyDrop::new(chunk).0.as_ptr())
    }

    /// A new reference to the chunk that contains a device or host address, if it can be looked up, and the offset of the
    /// address in it. The chunk's length is recorded. Not to be called in a forked child.
    pub(crate) fn find(address: u64) -> Option<(Self, usize)> {
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

    /// Makes the chunk visible to lookups. Its length must be recorded.
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
        if !fork::is_forked()
            && let Some(listing) = self.block.listing()
        {
            // Other holders may do the same at this time, which lists it once.
            addresses::add_chunk(listing, self.offset() as u64, self.0.cast());
            self.marks.fetch_or(LISTED, Ordering::Relaxed);
        }
    }

    /// The pointer of [`into_raw`](Self::into_raw).
    pub(crate) const fn as_ptr(&self) -> *mut Chunk {
        self.0
    }

    /// Turns the reference into a pointer. The length must be recorded.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut Chunk {
        self.len.store(self.len() | RAW, Ordering::Relaxed);
        self.forget()
    }

    /// Takes back the reference that a pointer stands for; `None` if it was taken back already, also while the chunk has others.
    ///
    /// # Safety
    ///
    /// The pointer must come from [`into_raw`](Self::into_raw), and no other thread may call this with it meanwhile.
    #[inline]
    pub(crate) unsafe fn from_raw(chunk: *mut Chunk) -> Option<Self> {
        // SAFETY: by this function's contract.
        let this = unsafe { Self::borrow_raw(chunk) }?;
        this.len.store(this.len(), Ordering::Relaxed);
        Some(ManuallyDrop::into_inner(this))
    }

    /// Borrows the reference that a pointer stands for; `None` where [`from_raw`](Self::from_raw) returns none.
    ///
    /// # Safety
    ///
    /// The contract of [`from_raw`](Self::from_raw).
    #[inline]
    pub(crate) unsafe fn borrow_raw(chunk: *mut Chunk) -> Option<ManuallyDrop<Self>> {
        // SAFETY: chunks stay on the heap as long as their pool's block, by this function's contract.
        let is_raw = unsafe { &*chunk }.is_raw();
        is_raw.then(|| ManuallyDrop::new(Self(chunk)))
    }

    /// The address of the chunk; its reference stays counted.
    #[inline]
    fn forget(self) -> *mut Chunk {
        ManuallyDrop::new(self).0
    }

    /// If this is the only reference and only the CPU has used the chunk, hides it from lookups and returns true.
    #[inline]
    pub(crate) fn withdraw(&self) -> bool {
        // Asked again afterwards: another holder may have exposed the chunk, and gone, after the first answer.
        self.is_cpu_only() && self.refs.withdraw() && self.is_cpu_only()
    }

    /// As [`withdraw`](Self::withdraw), for a holder who knows that the device has finished with bytes that are not bound: the
    /// chunk becomes one that only the CPU has used.
    #[inline]
    pub(crate) fn withdraw_idle(&self) -> bool {
        let idle = self.refs.withdraw() && self.binding.is_unset();
        if idle {
            self.unexpose();
        }
        idle
    }

    /// Whether this is the only reference.
    pub(crate) fn is_only(&self) -> bool {
        self.refs.is_one()
    }

    /// Removes this reference. Returns the chunk if it was the last; `None` in a forked child, where the chunk is the
    /// parent's.
    #[inline]
    pub(crate) fn release(self) -> Option<FreeChunk> {
        let chunk = self.forget();
        // SAFETY: the reference keeps the chunk, up to the removal.
        let refs = unsafe { &(*chunk).refs };
        if fork::is_forked() || !refs.remove() {
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
        // From here on no lookup adds a reference: nothing can use the chunk before it is released.
        if !self.refs.withdraw() {
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
