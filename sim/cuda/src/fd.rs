#![expect(unsafe_code, reason = "takes file descriptors from C")]
//! File descriptors that a caller hands over.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;

use crate::code::{Code, INVALID_VALUE};

/// The caller's descriptor, which stays the caller's. One that is not open is refused.
pub(crate) fn borrow(fd: RawFd) -> Result<BorrowedFd<'static>, Code> {
    // SAFETY: any number may be asked about.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: open, and the caller lends it for the length of the call.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The device and the inode of a descriptor's file.
pub(crate) fn file(fd: &OwnedFd) -> Option<(u64, u64)> {
    let metadata = fs::metadata(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Takes a descriptor that the caller gives away.
pub(crate) fn take(fd: BorrowedFd<'_>) -> OwnedFd {
    // SAFETY: open, and the caller gives it up.
    unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) }
}
