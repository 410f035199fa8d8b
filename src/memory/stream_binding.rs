//! `Memory`'s public methods for stream binding and drop policy.
#![expect(unsafe_code, reason = "streams and early release are the caller's responsibility")]

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use super::memory::Memory;
use crate::region::Region;
use crate::stream::binding::DropPolicy;
use crate::{Result, StreamRef};

impl Memory {
    /// Binds the memory to a stream, which it keeps alive: [`map`](Region::map) waits for the stream, and a drop
    /// returns at once, with the memory freed after the work that was submitted to the stream before.
    ///
    /// Bind before the device first uses the memory. All device work on it should be submitted to this stream, or be
    /// ordered before later work of it. A copy through cudarc on another stream is recorded, and so is a later binding
    /// to another stream; both make the drop wait for the whole context. The drop also waits for kernels on other streams
    /// that cudarc launched with this memory as an argument; for others call [`record_use`](Self::record_use).
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context, [`Error::PerThreadStream`], and
    /// [`Error::Forked`]. For memory of a pool, this may wait for the raw stream of its last user, and return the error of that.
    ///
    /// [`Error::ForeignStream`]: crate::Error::ForeignStream
    /// [`Error::PerThreadStream`]: crate::Error::PerThreadStream
    /// [`Error::Forked`]: crate::Error::Forked
    pub fn bind_stream(&self, stream: &Arc<CudaStream>) -> Result<()> {
        self.chunk().bind(stream)
    }

    /// [`bind_stream`](Self::bind_stream) for a stream that the caller keeps alive. Null is the context's legacy default one.
    ///
    /// # Errors
    ///
    /// The errors of [`bind_stream`](Self::bind_stream) and of `cuStreamGetCtx`.
    ///
    /// # Safety
    ///
    /// The stream must stay alive until the memory and all its regions are dropped, or bound to another stream or to none, and
    /// until calls for them that other threads began before have returned.
    pub unsafe fn bind_raw_stream(&self, stream: CUstream) -> Result<()> {
        // SAFETY: live by this method's contract.
        let stream = unsafe { self.stream(stream) }?;
        // SAFETY: live for long enough by this method's contract.
        unsafe { self.bind_checked_stream(stream) }
    }

    /// Binds to a stream of the memory's context. Fails only where the previous user's stream has to be waited for, in memory of
    /// a pool.
    ///
    /// # Safety
    ///
    /// See [`bind_raw_stream`](Self::bind_raw_stream).
    pub(crate) unsafe fn bind_checked_stream(&self, stream: StreamRef) -> Result<()> {
        // SAFETY: live for long enough by this method's contract, and of the context.
        unsafe { self.chunk().bind_raw(stream) }
    }

    /// The bound stream, if any.
    #[inline]
    #[must_use]
    pub fn bound_stream(&self) -> Option<CUstream> {
        Region::bound_stream(self)
    }

    /// Waits for the bound stream and ends the binding: from then on the drop waits for the whole context, unless it
    /// waits for nothing ([`DropPolicy::Immediate`]). Does nothing if the memory is not bound.
    ///
    /// No device work on the memory should be submitted meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of `cuStreamSynchronize`, including those of earlier, asynchronous work, and
    /// [`Error::Forked`](crate::Error::Forked). The memory then remains bound.
    pub fn unbind_stream(&self) -> Result<()> {
        self.chunk().unbind()
    }

    /// Records that `stream` is about to use the memory. If it is not the bound stream, the drop waits for the whole
    /// context.
    ///
    /// The stream should belong to the memory's context, see [`Region::stream`]: the drop waits for no other. The
    /// handle is only compared, never used.
    pub fn record_use(&self, stream: CUstream) {
        self.chunk().record_use(stream);
    }

    /// [`record_use`](Self::record_use) for a stream of any context: the drop waits for the stream's context, too, unless that
    /// is destroyed by then.
    ///
    /// # Errors
    ///
    /// The driver's errors, only for a context of `cuCtxCreate`, whose end the drop must be able to detect. The use is then not
    /// recorded.
    #[doc(hidden)]
    pub fn record_use_by(&self, stream: StreamRef) -> Result<()> {
        self.chunk().record_use_by(stream)
    }

    /// The device work that freeing the memory waits for.
    #[must_use]
    pub fn drop_policy(&self) -> DropPolicy {
        Region::policy(self)
    }

    /// Makes the drop wait for nothing ([`DropPolicy::Immediate`]), except for a failed copy of this crate that the
    /// device may still be making.
    ///
    /// # Safety
    ///
    /// Once the memory and its regions are dropped, no work of the device may use it.
    pub unsafe fn release_immediately(&self) {
        self.chunk().release_immediately();
    }
}
