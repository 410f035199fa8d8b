//! CUDA streams that belong to somebody else: copies, fills, events and waiting, each in the stream's own context.
//!
//! [`copy`] describes copies; [`event`] is a point in a stream's work.
#![expect(unsafe_code, reason = "uses streams and addresses that the caller vouches for")]

mod copy;
mod event;

use std::fmt;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUstream};

use crate::driver::Handle;
use crate::driver::context::Context;
use crate::driver::cuda::{Cuda, cuda};
use crate::driver::event::Event as DriverEvent;
use crate::{Error, Result};
use copy::Plan;
pub use copy::{CopyExtent, CopySide, Place};
pub use event::Event;

/// A stream that somebody else keeps alive, with its context.
///
/// Every method makes the stream's context current for its duration, so that all of them may be called from any
/// thread, whichever context is current there. The methods that give the stream work return before it is done, apart
/// from copies to and from pageable host memory, which CUDA may wait for.
///
/// Whoever makes one promises that the stream lives while the value and its copies are used. What that covers are the
/// safe methods too.
#[derive(Clone, Copy)]
pub struct StreamRef {
    context: Context,
    raw: Handle<CUstream>,
}

impl StreamRef {
    /// A stream of the context that is current on this thread.
    ///
    /// Null and 1 (`CU_STREAM_LEGACY`) are the context's legacy default stream, 2 (`CU_STREAM_PER_THREAD`) is the
    /// default stream of whichever thread calls a method.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::ForeignStream`] when the stream belongs to
    /// another, [`Error::Forked`], and what else the driver returns.
    ///
    /// # Safety
    ///
    /// The stream must stay alive for as long as this value and its copies are used.
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
    /// As for [`Self::in_current_context`].
    pub(crate) unsafe fn in_context(raw: CUstream, context: Context) -> Result<Self> {
        // SAFETY: live by this function's contract; a default stream means the context that is entered.
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

    /// Waits until the stream has done all that it was given.
    ///
    /// # Errors
    ///
    /// What the driver returns: also errors of earlier, asynchronous work, and `CUDA_ERROR_CONTEXT_IS_DESTROYED` (the
    /// same for every method here). [`Error::Forked`].
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: live by the promise of whoever made this value.
        self.within(|cuda| unsafe { cuda.stream_synchronize(self.raw()) })
    }

    /// As [`pointer_device`](crate::pointer_device), asked in the stream's context, so that none need be current.
    ///
    /// # Errors
    ///
    /// What the driver returns, and [`Error::Forked`].
    pub fn pointer_device(&self, address: CUdeviceptr) -> Result<Option<CUdevice>> {
        self.context.run(|| cuda()?.pointer_device(address))
    }

    /// An event behind everything that the stream was given so far.
    ///
    /// # Errors
    ///
    /// What the driver returns, and [`Error::Forked`].
    pub fn record(&self) -> Result<Event> {
        // SAFETY: live by the promise of whoever made this value, and its context is current.
        let event = self.context.run(|| unsafe { DriverEvent::record(self.raw()) })?;
        Ok(Event::new(event, self.context))
    }

    /// Makes the stream's later work wait for an event, which may be another context's. The CPU does not wait.
    ///
    /// # Errors
    ///
    /// What the driver returns, `CUDA_ERROR_CONTEXT_IS_DESTROYED` also for the event's context, and [`Error::Forked`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        event.check_alive_from(self.context)?;
        // SAFETY: the event's context is alive, and so the event; the stream is by the promise of whoever made this.
        self.within(|cuda| unsafe { cuda.stream_wait_event(self.raw(), event.raw()) })
    }

    /// Copies bytes, rows or slices.
    ///
    /// One row (a height and a depth of 1) may lie at any address and its pitches do not matter. With more, both sides'
    /// row pitches must be at least the width and at most `CU_DEVICE_ATTRIBUTE_MAX_PITCH`, and with more than one slice
    /// the slice pitches must be multiples of the row pitches. If the width, the height or the depth is 0, nothing is
    /// copied.
    ///
    /// Host memory that CUDA does not know as pinned is copied in the driver's own time: from such memory the bytes
    /// may be read before the call returns, to such memory the call may wait until they are written. The CPU's writes
    /// to memory of this crate must be flushed before they are copied on the device's side, see
    /// [`Region::flush`](crate::Region::flush).
    ///
    /// # Errors
    ///
    /// [`Error::HostToHost`], [`Error::Misaligned`] for a slice pitch that is not a multiple of the row pitch,
    /// `CUDA_ERROR_INVALID_VALUE` for pitches that do not fit and addresses that CUDA does not know, what else the
    /// driver returns, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// The stream must be alive. On both sides all the bytes that the extent and the pitches span must be valid, the
    /// device's in the stream's context, until the stream has passed the copy, and nobody else may use the target or
    /// write to the source meanwhile.
    pub unsafe fn copy(&self, to: CopySide, from: CopySide, extent: CopyExtent) -> Result<()> {
        let plan = Plan::new(to, from, extent)?;
        let stream = self.raw();
        match plan {
            // Not from a process that may not copy, even so.
            Plan::Nothing => crate::driver::process::check(),
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

    /// Copies `len` bytes from memory of another context, be it on another GPU, to memory of the stream's context.
    /// 0 bytes copy nothing.
    ///
    /// # Errors
    ///
    /// What the driver returns, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// As for [`copy`](Self::copy): `len` bytes must be valid at `to` in the stream's context and at `from` in
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

    /// Repeats a byte `count` times.
    ///
    /// # Errors
    ///
    /// What the driver returns, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// The stream must be alive. `count` values must be valid at `to` in the stream's context until the stream has
    /// passed the fill, and nobody else may use them meanwhile.
    pub unsafe fn fill_u8(&self, to: CUdeviceptr, value: u8, count: usize) -> Result<()> {
        // SAFETY: by this method's contract.
        self.unless_empty(count, |cuda| unsafe { cuda.fill_u8(to, value, count, self.raw()) })
    }

    /// Repeats a value of two bytes `count` times, from an address that is a multiple of 2 on.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for another address, what else the driver returns, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// As for [`fill_u8`](Self::fill_u8).
    pub unsafe fn fill_u16(&self, to: CUdeviceptr, value: u16, count: usize) -> Result<()> {
        // SAFETY: by this method's contract.
        self.unless_empty(count, |cuda| unsafe { cuda.fill_u16(to, value, count, self.raw()) })
    }

    /// Repeats a value of four bytes `count` times, from an address that is a multiple of 4 on.
    ///
    /// # Errors
    ///
    /// As for [`fill_u16`](Self::fill_u16).
    ///
    /// # Safety
    ///
    /// As for [`fill_u8`](Self::fill_u8).
    pub unsafe fn fill_u32(&self, to: CUdeviceptr, value: u32, count: usize) -> Result<()> {
        // SAFETY: by this method's contract.
        self.unless_empty(count, |cuda| unsafe { cuda.fill_u32(to, value, count, self.raw()) })
    }

    /// Runs `work` with the stream's context current.
    fn within(&self, work: impl FnOnce(&Cuda) -> Result<()>) -> Result<()> {
        self.context.run(|| work(cuda()?))
    }

    /// As [`within`](Self::within), for work on `count` things, of which there may be none.
    fn unless_empty(&self, count: usize, work: impl FnOnce(&Cuda) -> Result<()>) -> Result<()> {
        if count == 0 { crate::driver::process::check() } else { self.within(work) }
    }
}

impl fmt::Debug for StreamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRef").field("raw", &self.raw()).field("context", &self.context()).finish()
    }
}
