//! Device memory as a dma-buf.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use vkgdr::cudarc::driver::sys::CUdeviceptr;

use super::{Answer, check, symbol};

/// A dma-buf of a range. Flag 1 requests the PCIe BAR mapping.
pub(crate) fn dma_buf(pointer: CUdeviceptr, len: usize, flags: u64) -> Answer<OwnedFd> {
    let mut fd: c_int = -1;
    call!(
        "cuMemGetHandleForAddressRange",
        (*mut c_void, CUdeviceptr, usize, c_int, u64),
        ((&raw mut fd).cast(), pointer, len, 1, flags)
    )?;
    if fd < 0 {
        return Err(format!("cuMemGetHandleForAddressRange: gave descriptor {fd}"));
    }
    // SAFETY: the driver created this descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
