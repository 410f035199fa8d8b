#![expect(unsafe_code, reason = "takes file descriptors from C")]
//! File descriptors that a caller hands over.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::code::{Code, INVALID_VALUE, OPERATING_SYSTEM};

/// A duplicate of the caller's descriptor.
pub(crate) fn duplicate(fd: RawFd) -> Result<OwnedFd, Code> {
    if fd < 0 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller lends an open descriptor for the length of the call; duplicating a closed one only fails.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map_err(|error| match error.raw_os_error() {
        Some(libc::EBADF) => INVALID_VALUE,
        _ => OPERATING_SYSTEM,
    })
}

/// Closes a descriptor that the caller gave away.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the descriptor was just duplicated, so it is open, and the caller gives it up.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}
