//! Anonymous files for `Host` memory that is not Vulkan's, recognised by their name and seals.
#![expect(unsafe_code, reason = "asks the system for files")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{Error, Result};

/// The name of the files, which `/proc/self/fd` shows behind `/memfd:`.
const NAME: &CStr = c"vkgdr-host";
/// The size never changes, so that a mapping always has its pages, in every process that received the file; nor do the
/// seals.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A new file of `size` bytes, close-on-exec and sealed.
pub(crate) fn create(size: u64) -> Result<OwnedFd> {
    // SAFETY: the name is terminated.
    let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(Error::last_system("memfd_create"));
    }
    // SAFETY: a new descriptor, without another owner.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let size = libc::off_t::try_from(size).map_err(|_| Error::System { operation: "ftruncate", code: libc::EFBIG })?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(fd, size) } != 0 {
        return Err(Error::last_system("ftruncate"));
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(Error::last_system("fcntl"));
    }
    Ok(file)
}

/// Whether a descriptor is of a file that [`create`] made, in this or another process.
pub(crate) fn is_ours(file: BorrowedFd<'_>) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: the descriptor is open; files that cannot be sealed are an error.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    if seals == -1 || seals & SEALS != SEALS {
        return false;
    }
    // Without /proc the seals decide.
    std::fs::read_link(format!("/proc/self/fd/{fd}")).map_or(true, |path| {
        let name = path.to_string_lossy();
        name.strip_prefix("/memfd:").is_some_and(|name| name.starts_with(&*NAME.to_string_lossy()))
    })
}

/// The size of a file in bytes.
pub(crate) fn size(file: BorrowedFd<'_>) -> Result<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor is open, and `stat` a live output.
    if unsafe { libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(Error::last_system("fstat"));
    }
    // SAFETY: success means that it was written.
    let stat = unsafe { stat.assume_init() };
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

    #[test]
    fn a_file_has_its_size_and_keeps_it() -> Result {
        let file = create(8192)?;
        assert!(is_ours(file.as_fd()));
        assert_eq!(size(file.as_fd())?, 8192);
        let file = File::from(file);
        for len in [4096, 16384] {
            let refused = file.set_len(len).map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(libc::EPERM)), "{len}");
        }
        // SAFETY: asks for the flags of an open descriptor.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        Ok(())
    }

    #[test]
    fn other_files_are_not_ours() -> Result {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        for (name, seals) in [(c"vkgdr-host", libc::F_SEAL_SHRINK), (c"other", SEALS)] {
            // SAFETY: the name is terminated.
            let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
            // SAFETY: a new descriptor, without another owner.
            let file = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: the descriptor is open.
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }, 0);
            assert!(!is_ours(file.as_fd()), "{name:?}");
        }
        assert!(!is_ours(File::open("/dev/zero")?.as_fd()));
        Ok(())
    }
}
