//! CUDA streams that the caller owns: copies, fills, events and waits, each in the stream's own context.
//!
//! [`copy`] describes copies; [`event`] marks a point in a stream's work.
#![expect(unsafe_code, reason = "uses streams and addresses that the caller guarantees")]

mod copy;
mod event;

use std::fmt;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUstream};

use crate::addresses;
use crate::driver::Handle;
use crate::driver::context::Context;
use crate::driver::cuda::{Cuda, cuda};
use crate::driver::fork;
use crate::driver::raw_event::RawEvent;
use crate::{Error, Result};
use copy::Plan;
pub use copy::{CopyPtr, Extent, PitchedPtr};
pub use event::Event;

/// A CUDA stream that the caller owns and keeps alive.
///
/// Every method makes the stream's context current for its duration, so that it may be called from any thread, with any
/// context current. Methods that submit work return before it has finished, except that CUDA may wait for copies from
/// and to pageable host memory.
///
/// The unsafe constructors require the stream to outlive the last use of this value and its clones; the safe methods
/// rely on that.
#[derive(Clone, Copy)]
pub struct StreamRef {
    pub(crate) context: Context,
    raw: Handle<CUstream>,
}

impl StreamRef {
    /// A stream of the context that is current on this thread.
    ///
    /// Null and 1 (`CU_STREAM_LEGACY`) are the context's legacy default stream, 2 (`CU_STREAM_PER_THREAD`) is the
    /// default stream of the calling thread.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::ForeignStream`] when the stream belongs to
    /// another context, [`Error::Forked`], and other errors of the driver.
    ///
    /// # Safety
    ///
    /// The stream must outlive the last use of this value and its clones.
    pub unsafe fn in_current_context(raw: CUstream) -> Result<Self> {
        let context = Context::current()?;
        // SAFETY: live by this function's contract.
        let found = unsafe { cuda()?.stream_context(raw) }?;
        Self::checked(raw, found, context)
    }

    /// A stream of `context`, which need not be current.
    ///
    /// # Safety
    ///
    /// See [`in_current_context`](Self::in_current_context).
    pub(crate) unsafe fn in_context(raw: CUstream, context: Context) -> Result<Self> {
        // SAFETY: live by this function's contract; a default stream belongs to the entered context.
        let found = context.run(|| unsafe { cuda()?.stream_context(raw) }.map(Handle))?;
        Self::checked(raw, found.0, context)
    }

    fn checked(raw: CUstream, found: CUcontext, context: Context) -> Result<Self> {
        if found == context.raw() { Ok(Self { context, raw: Handle(raw) }) } else { Err(Error::ForeignStream) }
    }

    /// The driver's handle.
    #[must_use]
    pub fn raw(&self) -> CUstream {
        self.raw.0
    }

    /// The context that the stream belongs to.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.context.raw()
    }

    /// Waits for all work that was submitted to the stream.
    ///
    /// # Errors
    ///
    /// The driver's errors, including those of earlier, asynchronous work and `CUDA_ERROR_CONTEXT_IS_DESTROYED`, which
    /// every method here may return, and [`Error::Forked`].
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: live by the constructors' contract.
        self.within(|cuda| unsafe { cuda.stream_synchronize(self.raw()) })
    }

    /// The device that an address belongs to, as [`pointer_device`](crate::pointer_device) finds it; no context needs to be
    /// current.
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`Error::Forked`].
    pub fn pointer_device(&self, address: CUdeviceptr) -> Result<Option<CUdevice>> {
        fork::check()?;
        match addresses::device_of(address) {
            Some(device) => Ok(Some(device)),
            None => self.context.run(|| cuda()?.pointer_device(address)),
        }
    }

    /// Records an event after all work that was submitted to the stream so far.
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`Error::Forked`].
    pub fn record(&self) -> Result<Event> {
        // SAFETY: live by the constructors' contract, and its context is current.
        let event = self.context.run(|| unsafe { RawEvent::record(self.raw()) })?;
        Ok(Event::new(event, self.context))
    }

    /// Whether the stream is being captured (`cuStreamIsCapturing`).
    ///
    /// # Errors
    ///
    /// The driver's errors, `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for the legacy default stream during a capture that it would
    /// take part in, and [`Error::Forked`].
    #[doc(hidden)]
    pub fn is_capturing(&self) -> Result<bool> {
        // SAFETY: live by the constructors' contract.
        self.context.run(|| unsafe { cuda()?.stream_is_capturing(self.raw()) })
    }

    /// Makes later work of the stream wait for an event, which may belong to another context. Returns at once.
    ///
    /// # Errors
    ///
    /// The driver's errors, `CUDA_ERROR_CONTEXT_IS_DESTROYED` for either context, and [`Error::Forked`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        event.check_alive_from(self.context)?;
        // SAFETY: the event lives, since its context does; the stream lives by the constructors' contract.
        self.within(|cuda| unsafe { cuda.stream_wait_event(self.raw(), event.raw()) })
    }

    /// Copies bytes, rows or slices.
    ///
    /// A single row (height and depth are 1) may start at any address, and its pitches are ignored. For several rows,
    /// the row pitches of both sides must be at least the width and at most `CU_DEVICE_ATTRIBUTE_MAX_PITCH`; for
    /// several slices, the slice pitches must be multiples of the row pitches. If the width, the height or the depth is
    /// 0, nothing is copied.
    ///
    /// Of host memory that is not page-locked, the driver may read the source before the call returns, and the call may wait
    /// until the target is written. The CPU's writes to memory of this crate must be flushed before the device copies them, see
    /// [`Memory::flush`](crate::Memory::flush).
    ///
    /// # Errors
    ///
    /// [`Error::HostToHost`] for host memory on both sides, [`Error::Misaligned`] for a slice pitch that is not a
    /// multiple of the row pitch, `CUDA_ERROR_INVALID_VALUE` for invalid pitches and for addresses unknown to CUDA,
    /// other errors of the driver, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// The stream must be alive. Until the stream has finished the copy, all bytes that the extent and the pitches span
    /// must be valid on both sides, device memory in the stream's context. Nothing else may use the target or write to
    /// the source until then.
    pub unsafe fn copy(&self, to: PitchedPtr, from: PitchedPtr, extent: Extent) -> Result<()> {
        let plan = Plan::new(to, from, extent)?;
        let stream = self.raw();
        match plan {
            // Still refused in a forked child.
            Plan::Nothing => fork::check(),
            // SAFETY: by this method's contract.
            Plan::ToDevice(to, from, len) => self.within(|c| unsafe { c.copy_host_to_device(to, from, len, stream) }),
            // SAFETY: by this method's contract.
            Plan::ToHost(to, from, len) => self.within(|c| unsafe { c.copy_device_to_host(to, from, len, stream) }),
            // SAFETY: by this method's contract.
            Plan::OnDevice(to, from, len) => self.within(|c| unsafe { c.copy_on_device(to, from, len, stream) }),
            // SAFETY: by this method's contract.
            Plan::Rows(copy) => self.within(|c| unsafe { c.copy_3d(&copy, stream) }),
        }
    }

    /// Copies `len` bytes from memory of another context, possibly on another GPU, to memory of the stream's context. A
    /// length of 0 copies nothing.
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// See [`copy`](Self::copy): `len` bytes must be valid at `to` in the stream's context and at `from` in
    /// `from_context`, which must be alive.
    pub unsafe fn copy_between_contexts(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        from_context: CUcontext,
        len: usize,
    ) -> Result<()> {
        let to = (to, self.context());
        // SAFETY: by this method's contract.
        self.unless_empty(len, |c| unsafe { c.copy_between_contexts(to, (from, from_context), len, self.raw()) })
    }

    /// Writes a byte `count` times. A count of 0 writes nothing.
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// The stream must be alive. Until the stream has finished the fill, `count` values must be valid at `to` in the
    /// stream's context, and nothing else may use them.
    pub unsafe fn fill_u8(&self, to: CUdeviceptr, value: u8, count: usize) -> Result<()> {
        // SAFETY: by this method's contract.
        self.unless_empty(count, |cuda| unsafe { cuda.fill_u8(to, value, count, self.raw()) })
    }

    /// Writes a 2-byte value `count` times, starting at an address that is a multiple of 2.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for a misaligned address, other errors of the driver, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// See [`fill_u8`](Self::fill_u8).
    pub unsafe fn fill_u16(&self, to: CUdeviceptr, value: u16, count: usize) -> Result<()> {
        // SAFETY: by this method's contract.
        self.unless_empty(count, |cuda| unsafe { cuda.fill_u16(to, value, count, self.raw()) })
    }

    /// Writes a 4-byte value `count` times, starting at an address that is a multiple of 4.
    ///
    /// # Errors
    ///
    /// The errors of [`fill_u16`](Self::fill_u16).
    ///
    /// # Safety
    ///
    /// See [`fill_u8`](Self::fill_u8).
    pub unsafe fn fill_u32(&self, to: CUdeviceptr, value: u32, count: usize) -> Result<()> {
        // SAFETY: by this method's contract.
        self.unless_empty(count, |cuda| unsafe { cuda.fill_u32(to, value, count, self.raw()) })
    }

    /// Runs `work` with the stream's context current.
    fn within(&self, work: impl FnOnce(&Cuda) -> Result<()>) -> Result<()> {
        self.context.run(|| work(cuda()?))
    }

    /// [`within`](Self::within) for work on `count` elements; submits nothing for 0.
    fn unless_empty(&self, count: usize, work: impl FnOnce(&Cuda) -> Result<()>) -> Result<()> {
        if count == 0 { fork::check() } else { self.within(work) }
    }
}

impl fmt::Debug for StreamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRef").field("raw", &self.raw()).field("context", &self.context()).finish()
    }
}
