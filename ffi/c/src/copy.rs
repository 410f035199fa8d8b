//! Copies with an explicit policy, by the CPU or the GPU's copy engine; and its thresholds.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_void;

use vkgdr_rs::{CopyPolicy, CopyThresholds};

use crate::access::{bytes, bytes_mut};
use crate::boundary::{self, handle};
use crate::errors::{Failure, Outcome};
use crate::handle::{vkgdr, vkgdr_t};
use crate::memory_handle::{range, vkgdr_memory_t};

/// Who copies, for vkgdr_copy_write() and vkgdr_copy_read().
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum vkgdr_copy_policy {
    /// The copy engine from the thresholds on, the CPU below them. Always the CPU until vkgdr_copy_prepare(), a copy with
    /// VKGDR_COPY_DMA or one of device memory has made the copy engine in the memory's context. To make it may wait until
    /// running kernels have ended. Always the copy engine for device memory.
    VKGDR_COPY_AUTO = 0,
    /// The CPU's loads and stores. Refused for device memory.
    VKGDR_COPY_CPU = 1,
    /// The GPU's copy engine, whatever the size, by cuMemcpyHtoDAsync() or cuMemcpyDtoHAsync() and a wait. On memory that is
    /// not coherent it flushes before the copy and, after a write, invalidates. Both are in whole atoms, to which nothing
    /// else may write meanwhile. Invalidate the device's earlier writes to them before: otherwise the flush may undo them.
    VKGDR_COPY_DMA = 2,
}

/// From how many bytes on VKGDR_COPY_AUTO leaves copies to the copy engine. They apply to coherent memory that the
/// CPU does not cache, such as mapped memory behind PCIe. The CPU copies all other memory that it sees. 0 leaves every
/// copy to the engine that it can make, SIZE_MAX none. Without a copy engine (vkgdr_copy_prepare()) they do not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct vkgdr_copy_thresholds {
    /// Bytes of a read; 8 KiB by default.
    pub read: usize,
    /// Bytes of a write from page-locked memory (cuMemHostAlloc, cuMemHostRegister, host memory); 256 KiB by
    /// default. The CPU writes from other memory: the driver copies that by the CPU, too.
    pub write: usize,
}

fn policy(value: u32) -> Outcome<CopyPolicy> {
    match value {
        0 => Ok(CopyPolicy::Auto),
        1 => Ok(CopyPolicy::Cpu),
        2 => Ok(CopyPolicy::Dma),
        _ => Err(Failure::CopyPolicy(value)),
    }
}

/// Copies `size` bytes to the memory, as vkgdr_memory_write(), by the side that the policy names. Returns when the
/// copy is done. Does not flush.
///
/// @param mem     The memory, or a region of it; device memory, too.
/// @param offset  The first byte in the memory.
/// @param source  The bytes to copy; may be NULL if `size` is 0.
/// @param size    Bytes.
/// @param policy  Of `enum vkgdr_copy_policy`.
/// @return A `vkgdr_status`: VKGDR_ERROR_INVALID_ARGUMENT for an unknown policy, VKGDR_ERROR_OUT_OF_RANGE, or
///         VKGDR_ERROR_NOT_SUPPORTED for a copy by the CPU of device memory. VKGDR_ERROR_CUDA from the copy engine,
///         also for an error of earlier, asynchronous work. Which of the bytes were written is unknown then.
///
/// # Safety
///
/// `mem` must be NULL or live, `source` good for reading `size` bytes that are not written meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_copy_write(
    mem: vkgdr_memory_t,
    offset: usize,
    source: *const c_void,
    size: usize,
    policy: u32,
) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let memory = &unsafe { handle(mem) }?.memory;
        let (policy, range) = (self::policy(policy)?, range(memory, offset, size)?);
        // SAFETY: by this function's contract.
        Ok(memory.write_with(policy, range.start, unsafe { bytes(source, size, "source") }?)?)
    })
}

/// Copies `size` bytes from the memory, as vkgdr_memory_read(), by the side that the policy names. Returns when the
/// copy is done. Does not invalidate.
///
/// @param mem     The memory, or a region of it; device memory, too.
/// @param offset  The first byte in the memory.
/// @param target  Where the bytes go; may be NULL if `size` is 0.
/// @param size    Bytes.
/// @param policy  Of `enum vkgdr_copy_policy`.
/// @return A `vkgdr_status`, as of vkgdr_copy_write(). The contents of `target` are unspecified unless it is
///         VKGDR_SUCCESS.
///
/// # Safety
///
/// `mem` must be NULL or live, `target` good for writing `size` bytes that are not used otherwise meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_copy_read(
    mem: vkgdr_memory_t,
    offset: usize,
    target: *mut c_void,
    size: usize,
    policy: u32,
) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let memory = &unsafe { handle(mem) }?.memory;
        let (policy, range) = (self::policy(policy)?, range(memory, offset, size)?);
        // SAFETY: by this function's contract.
        Ok(memory.read_with(policy, range.start, unsafe { bytes_mut(target, size, "target") }?)?)
    })
}

/// The thresholds of a GPU, which all its handles in this process share.
///
/// @param g    The GPU.
/// @param out  Where the thresholds are written, in bytes.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_copy_get_thresholds(g: vkgdr_t, out: *mut vkgdr_copy_thresholds) -> i32 {
    let ask = |gpu: &vkgdr| {
        let CopyThresholds { read, write } = gpu.inner.copy_thresholds();
        Ok(vkgdr_copy_thresholds { read, write })
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(g, out, ask) }
}

/// Sets the thresholds of a GPU, for all its handles in this process.
///
/// @param g           The GPU.
/// @param thresholds  The thresholds, in bytes.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `thresholds` NULL or good for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_copy_set_thresholds(g: vkgdr_t, thresholds: *const vkgdr_copy_thresholds) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let gpu = &unsafe { handle(g) }?.inner;
        // SAFETY: by this function's contract.
        let vkgdr_copy_thresholds { read, write } =
            *unsafe { thresholds.as_ref() }.ok_or(Failure::Null("thresholds"))?;
        gpu.set_copy_thresholds(CopyThresholds { read, write });
        Ok(())
    })
}

/// Makes the stream of the copy engine, so that VKGDR_COPY_AUTO uses it: in the context in which vkgdr_memory_alloc() would
/// allocate, under the same rules. Does nothing if it exists, and with drivers older than CUDA 12, with which
/// VKGDR_COPY_AUTO always uses the CPU where it can.
///
/// That may wait until running kernels have ended: call this before starting a kernel that waits for the CPU.
///
/// @param g    The GPU.
/// @return A `vkgdr_status`; its errors are those for which vkgdr_memory_alloc() fails.
///
/// # Safety
///
/// `g` must be NULL or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_copy_prepare(g: vkgdr_t) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::with(g, |gpu| Ok(gpu.inner.prepare_copies()?)) }
}
