//! Copies and fills on a caller's stream, for Python's arrays: rows and slices ([`PitchedPtr`], [`Extent`]).
#![expect(unsafe_code, reason = "uses streams and addresses that the caller guarantees")]

use cudarc::driver::sys::{CUDA_MEMCPY3D, CUcontext, CUdevice, CUdeviceptr, CUmemorytype};

use crate::addresses;
use crate::driver::cuda::{Cuda, cuda};
use crate::driver::fork;
use crate::driver::stream::FillPattern;
use crate::{Error, Result, StreamRef};

/// A pointer of a copy, to host or to device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyPtr {
    /// A host address.
    Host(*mut u8),
    /// A device address.
    Device(CUdeviceptr),
}

/// One side of a copy, like `cudaPitchedPtr`: its first byte, and the pitches of its rows and slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PitchedPtr {
    /// The address of the first byte.
    pub ptr: CopyPtr,
    /// Bytes from the start of one row to the start of the next.
    pub row_pitch: usize,
    /// Bytes from the start of one slice to the start of the next.
    pub slice_pitch: usize,
}

/// The number of bytes, rows and slices of a copy, like `cudaExtent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes per row.
    pub width: usize,
    /// Rows per slice.
    pub height: usize,
    /// The number of slices.
    pub depth: usize,
}

/// CUDA's description of a copy of rows and slices.
fn rows(to: PitchedPtr, from: PitchedPtr, extent: Extent) -> Result<CUDA_MEMCPY3D> {
    let (to_kind, to_host, to_device) = address(to.ptr);
    let (from_kind, from_host, from_device) = address(from.ptr);
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: from_kind,
        srcHost: from_host.cast_const().cast(),
        srcDevice: from_device,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: from.row_pitch,
        srcHeight: slice_height(from, extent)?,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: to_kind,
        dstHost: to_host.cast(),
        dstDevice: to_device,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: to.row_pitch,
        dstHeight: slice_height(to, extent)?,
        WidthInBytes: extent.width,
        Height: extent.height,
        Depth: extent.depth,
    })
}

fn address(ptr: CopyPtr) -> (CUmemorytype, *mut u8, CUdeviceptr) {
    match ptr {
        CopyPtr::Host(pointer) => (CUmemorytype::CU_MEMORYTYPE_HOST, pointer, 0),
        CopyPtr::Device(pointer) => (CUmemorytype::CU_MEMORYTYPE_DEVICE, std::ptr::null_mut(), pointer),
    }
}

/// The slice pitch in rows, the driver's unit. One slice needs no pitch.
fn slice_height(side: PitchedPtr, extent: Extent) -> Result<usize> {
    let PitchedPtr { row_pitch, slice_pitch, .. } = side;
    if extent.depth == 1 {
        return Ok(extent.height);
    }
    if slice_pitch.is_multiple_of(row_pitch) {
        Ok(slice_pitch.checked_div(row_pitch).unwrap_or_default())
    } else {
        Err(Error::Misaligned { what: "the slice pitch", value: slice_pitch, unit: row_pitch })
    }
}

/// What Python's arrays need beside cudarc's copies.
#[doc(hidden)]
impl StreamRef {
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

    /// Copies bytes, rows or slices.
    ///
    /// A single row (height and depth are 1) may start at any address, and its pitches are ignored. For several rows,
    /// the row pitches of both sides must be at least the width and at most `CU_DEVICE_ATTRIBUTE_MAX_PITCH`. For
    /// several slices, the slice pitches must be multiples of the row pitches. If the width, the height or the depth is
    /// 0, nothing is copied.
    ///
    /// Of host memory that is not page-locked, the driver may read the source before the call returns. The call may also wait
    /// until such a target is written. The CPU's writes to memory of this crate must be flushed before the device copies them,
    /// see [`Memory::flush`](crate::Memory::flush).
    ///
    /// # Errors
    ///
    /// [`Error::HostToHost`] for host memory on both sides, [`Error::Misaligned`] for a slice pitch that is not a
    /// multiple of the row pitch. `CUDA_ERROR_INVALID_VALUE` for invalid pitches and for addresses unknown to CUDA,
    /// other errors of the driver, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// The stream must be alive. Until the stream has finished the copy, all bytes that the extent and the pitches span
    /// must be valid on both sides. Device memory must be valid in the stream's context. Nothing else may use the
    /// target or write to the source until then.
    pub unsafe fn copy(&self, to: PitchedPtr, from: PitchedPtr, extent: Extent) -> Result<()> {
        let (stream, Extent { width, height, depth }) = (self.raw(), extent);
        if let (CopyPtr::Host(_), CopyPtr::Host(_)) = (to.ptr, from.ptr) {
            return Err(Error::HostToHost);
        }
        // Still refused in a forked child.
        if width == 0 || height == 0 || depth == 0 {
            return fork::check();
        }
        if height > 1 || depth > 1 {
            let copy = rows(to, from, extent)?;
            // SAFETY: by this method's contract.
            return self.within(|cuda| unsafe { cuda.copy_3d(&copy, stream) });
        }
        self.within(|cuda| match (to.ptr, from.ptr) {
            // SAFETY: by this method's contract.
            (CopyPtr::Device(to), CopyPtr::Host(from)) => unsafe { cuda.copy_host_to_device(to, from, width, stream) },
            // SAFETY: by this method's contract.
            (CopyPtr::Host(to), CopyPtr::Device(from)) => unsafe { cuda.copy_device_to_host(to, from, width, stream) },
            // SAFETY: by this method's contract.
            (CopyPtr::Device(to), CopyPtr::Device(from)) => unsafe { cuda.copy_on_device(to, from, width, stream) },
            (CopyPtr::Host(_), CopyPtr::Host(_)) => Err(Error::HostToHost),
        })
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

    /// Writes a value `count` times, starting at an address that is a multiple of its size. A count of 0 writes nothing.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for a misaligned address, other errors of the driver, and [`Error::Forked`].
    ///
    /// # Safety
    ///
    /// The stream must be alive. Until the stream has finished the fill, `count` values must be valid at `to` in the
    /// stream's context, and nothing else may use them.
    pub unsafe fn fill(&self, to: CUdeviceptr, value: FillPattern, count: usize) -> Result<()> {
        // SAFETY: by this method's contract.
        self.unless_empty(count, |cuda| unsafe { cuda.fill(to, value, count, self.raw()) })
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
