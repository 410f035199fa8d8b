//! Copies and fills. Each needs a current context that owns the device memory.
#![expect(unsafe_code, reason = "calls the CUDA driver")]

use cudarc::driver::sys::CUdeviceptr;

use super::Stream;
use crate::driver::{call, check};

/// Copies device memory to the host, and waits for it.
///
/// # Panics
/// When the driver refuses.
#[track_caller]
pub fn memcpy_dtoh(to: &mut [u8], from: CUdeviceptr) {
    // SAFETY: `to` is writable for its length; the driver checks the device's range.
    let code = unsafe { call::cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len()) };
    check("cuMemcpyDtoH_v2", code);
}

/// Copies host memory to the device, and waits for it.
///
/// # Panics
/// When the driver refuses.
#[track_caller]
pub fn memcpy_htod(to: CUdeviceptr, from: &[u8]) {
    // SAFETY: `from` is readable for its length; the driver checks the device's range.
    let code = unsafe { call::cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len()) };
    check("cuMemcpyHtoD_v2", code);
    // A copy from pageable memory may return before its bytes have arrived ("API synchronization behavior" of the driver API).
    super::synchronize();
}

/// Enqueues a copy from one device range to another.
///
/// # Panics
/// When the driver refuses.
#[track_caller]
pub fn copy_dtod_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: &Stream) {
    // SAFETY: the driver checks both ranges and the stream.
    let code = unsafe { call::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw()) };
    check("cuMemcpyDtoDAsync_v2", code);
}

/// Fills device memory with one byte. The driver may return before the fill has finished;
/// [`synchronize`](super::synchronize) waits for it.
///
/// # Panics
/// When the driver refuses.
#[track_caller]
pub fn memset_d8(to: CUdeviceptr, value: u8, bytes: usize) {
    // SAFETY: the driver checks the range.
    let code = unsafe { call::cuMemsetD8_v2(to, value, bytes) };
    check("cuMemsetD8_v2", code);
}
