#![expect(unsafe_code, reason = "makes files in memory")]
//! Files in memory, which processes share by descriptors.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// No process can shrink the file from under the others.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// An empty file, which can be sealed.
///
/// # Errors
/// Those of the system.
pub fn create(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is terminated.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A file of zeros whose size stays.
///
/// # Errors
/// Those of the system, of which memory is asked.
pub fn create_sealed(name: &CStr, size: usize) -> io::Result<OwnedFd> {
    let file = create(name)?;
    let size = libc::off_t::try_from(size).map_err(io::Error::other)?;
    // SAFETY: the file is open.
    let sized = unsafe { libc::ftruncate(file.as_raw_fd(), size) } == 0;
    // SAFETY: as above.
    let sealed = sized && unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } == 0;
    if sealed { Ok(file) } else { Err(io::Error::last_os_error()) }
}

/// Whether a file's size stays.
#[must_use]
pub fn is_sealed(file: BorrowedFd<'_>) -> bool {
    // SAFETY: the descriptor is open. A file that cannot have seals has -1 for an answer.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & SEALS == SEALS
}
