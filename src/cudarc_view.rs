//! Memory as cudarc's views, for its copies and launches: [`Memory::view`] and [`Memory::view_mut`].
#![expect(unsafe_code, reason = "makes a cudarc slice of memory that it does not own")]

use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DeviceRepr, DriverError};

use crate::driver::context::Context;
use crate::driver::cuda::{cuda, retry_once};
use crate::driver::fork;
use crate::memory::UsedStream;
use crate::{Error, Memory, Result};

/// A cudarc slice of a memory's bytes, which stay the memory's. Its end makes its stream wait for the uses that cudarc recorded.
#[derive(Debug)]
pub(crate) struct LentSlice {
    slice: ManuallyDrop<CudaSlice<u8>>,
    context: Context,
}

impl Drop for LentSlice {
    #[cold]
    fn drop(&mut self) {
        // Else it is the parent's, or gone with the context, which cudarc would name to the driver.
        if let Ok(_guard) = retry_once(|| self.context.enter()) {
            // SAFETY: taken by the drop alone.
            let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
            // cudarc keeps errors for the next caller of `CudaContext::check_err`.
            _ = slice.leak();
        }
    }
}

/// Views for cudarc's copies and launches.
///
/// ```no_run
/// # use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};
/// use cudarc::driver::CudaContext;
///
/// let stream = CudaContext::new(0)?.default_stream();
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let mut memory = Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
/// stream.memcpy_htod(&[1_f32; 1024], &mut memory.view_mut::<f32>(&stream)?)?;
/// let mut values = vec![0_f32; 1024];
/// stream.memcpy_dtoh(&memory.view::<f32>(&stream)?, &mut values)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The views of one `Memory` value are ordered by cudarc as those of one `CudaSlice`, on any streams of one `CudaContext` value
/// (share its `Arc`). A read waits for earlier writes, and a write for earlier writes and for the last read. Where several
/// streams read, join them (`CudaStream::join`) before the next write. Parts are cudarc's own (`CudaView::slice`, `split_at`).
/// Another clone or [`slice`](Self::slice) of the same memory is to cudarc what another `CudaSlice` of the same bytes would be:
/// its user orders it. The memory is not freed before what the views' streams were given has finished.
impl Memory {
    /// The bytes as elements of `T`, for cudarc to read; trailing bytes that make no whole element are left out. `stream` is the
    /// one that will use it. Memory that is bound to another one is released after both, and waits for the context after 64 such
    /// streams. cudarc's `stream()` of the result is the stream of the first view.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context, [`Error::Misaligned`] when the device address does
    /// not fit `T`, and [`Error::Forked`]. Also the errors of entering the context and of cudarc's `new_event`, which also
    /// returns an error that the `CudaContext` kept from an earlier call.
    ///
    /// # Panics
    ///
    /// cudarc panics where the driver makes one event for it, but not the two that it needs.
    pub fn view<T: DeviceRepr + Pod>(&self, stream: &Arc<CudaStream>) -> Result<CudaView<'_, T>> {
        let len = self.count_for_view::<T>(stream)?;
        if self.cuda.get().is_none() {
            // Another thread may have been faster: then this one's ends here.
            let _ = self.cuda.set(self.lend_slice(stream)?);
        }
        let lent = self.cuda.get().expect("set above");
        // SAFETY: every bit pattern is a `T`, and the address is aligned.
        Ok(unsafe { lent.slice.transmute(len) }.expect("no more elements than the bytes have room for"))
    }

    /// [`view`](Self::view) for cudarc to write.
    ///
    /// # Errors
    ///
    /// Those of [`view`](Self::view).
    pub fn view_mut<T: DeviceRepr + Pod>(&mut self, stream: &Arc<CudaStream>) -> Result<CudaViewMut<'_, T>> {
        let len = self.count_for_view::<T>(stream)?;
        if self.cuda.get().is_none() {
            self.cuda = OnceLock::from(self.lend_slice(stream)?);
        }
        let lent = self.cuda.get_mut().expect("set above");
        // SAFETY: every bit pattern is a `T`, and the address is aligned.
        Ok(unsafe { lent.slice.transmute_mut(len) }.expect("no more elements than the bytes have room for"))
    }

    /// The number of elements of a view on `stream`.
    fn count_for_view<T>(&self, stream: &Arc<CudaStream>) -> Result<usize> {
        fork::check()?;
        let used = UsedStream::shared(stream, self.inner().context())?;
        let (address, unit) = (self.device_ptr(), align_of::<T>());
        if !address.is_multiple_of(unit as u64) {
            let value = usize::try_from(address).expect("usize has 64 bits");
            return Err(Error::Misaligned { what: "the device address", value, unit });
        }
        // Nothing is destroyed under the lock: the caller has the stream.
        self.inner().uses.lock().record_view(used);
        Ok(self.len() / size_of::<T>().max(1))
    }

    #[cold]
    fn lend_slice(&self, stream: &Arc<CudaStream>) -> Result<Box<LentSlice>> {
        let context = self.inner().context();
        context.run(|| {
            // `upgrade_device_ptr` panics where the driver makes no event.
            if let Err(DriverError(code)) = stream.context().new_event(None) {
                cuda()?.check("CudaContext::new_event", code as i32)?;
            }
            // SAFETY: the bytes are the memory's, which outlives the slice; a `LentSlice` does not free them.
            let slice = unsafe { stream.upgrade_device_ptr(self.device_ptr(), self.len()) };
            Ok(Box::new(LentSlice { slice: ManuallyDrop::new(slice), context }))
        })
    }
}
