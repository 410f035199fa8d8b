//! The boundary around gdrcopy's functions: a panic becomes an error number, and pointers of the caller's are read and written.
#![expect(unsafe_code, reason = "turns C pointers into references")]

use std::ffi::{c_int, c_void};

use super::errno;
use crate::{access, boundary};

/// Runs the body of an export: 0, or an error number. A panic is `EIO`.
#[inline]
pub(crate) fn status(body: impl FnOnce() -> Result<(), i32>) -> c_int {
    boundary::catch(body, || Err(errno::explained(libc::EIO, "the library panicked"))).err().unwrap_or(0)
}

/// Writes a result.
///
/// # Safety
///
/// `pointer` must be null or good for writing.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) -> Result<(), i32> {
    // SAFETY: by this function's contract.
    unsafe { boundary::put(pointer, value) }.map_err(|_| errno::invalid("the pointer to a result is null"))
}

/// The caller's bytes, to read. `EINVAL` if there are none, or more than an object can have.
///
/// # Safety
///
/// `pointer` must be null or good for reading `len` bytes.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Result<&'a [u8], i32> {
    // SAFETY: by this function's contract.
    unsafe { access::bytes(pointer, len) }.map_err(|_| no_bytes())
}

/// The caller's bytes, to write. The errors of [`bytes`].
///
/// # Safety
///
/// `pointer` must be null or good for writing `len` bytes.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut c_void, len: usize) -> Result<&'a mut [u8], i32> {
    // SAFETY: by this function's contract.
    unsafe { access::bytes_mut(pointer, len) }.map_err(|_| no_bytes())
}

#[cold]
fn no_bytes() -> i32 {
    errno::invalid("the pointer to the bytes is null, or they are more than an object can have")
}
