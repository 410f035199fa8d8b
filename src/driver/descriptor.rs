//! File descriptors: their type and limit, duplicates, close-on-exec, and passing ownership to a driver.
#![expect(unsafe_code, reason = "asks the system about descriptors that may be closed")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use crate::{Error, Result};

/// Marks the descriptor close-on-exec.
pub(crate) fn close_on_exec(fd: &OwnedFd) -> Result<()> {
    // SAFETY: the descriptor is open, and the call changes nothing but its flags.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } {
        -1 => Err(system("fcntl", &io::Error::last_os_error())),
        _ => Ok(()),
    }
}

/// A descriptor of the same file.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|error| system("dup", &error))
}

/// Whether the process or the system has hardly any descriptors left: fewer than an allocation may need at once.
pub(crate) fn are_short() -> bool {
    const NEEDED: usize = 8;
    let opened: io::Result<Vec<_>> = (0..NEEDED).map(|_| File::open("/dev/null")).collect();
    opened.is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)))
}

/// A duplicate of a descriptor, which a driver owns on success. On failure some drivers leave it open, as Vulkan
/// specifies; others close it (Mesa's lavapipe), so that its number may already belong to another file.
pub(crate) struct DriverFd<'a> {
    copy: RawFd,
    original: BorrowedFd<'a>,
}

impl<'a> DriverFd<'a> {
    pub(crate) fn new(original: BorrowedFd<'a>) -> Result<Self> {
        Ok(Self { copy: duplicate(original)?.into_raw_fd(), original })
    }

    /// The number to pass to the driver, which owns it after success.
    pub(crate) const fn raw(&self) -> RawFd {
        self.copy
    }

    /// Closes the duplicate after a failure, unless the driver did.
    pub(crate) fn take_back(self) {
        let file = identity(self.copy);
        if file.is_some() && file == identity(self.original.as_raw_fd()) {
            // SAFETY: the number is open and refers to the same file, so it is still the duplicate, without another
            // owner.
            drop(unsafe { OwnedFd::from_raw_fd(self.copy) });
        }
    }
}

/// The kind of file behind a descriptor, as far as that shows whether it can be memory.
pub(crate) enum FileType {
    /// A regular file, such as a memfd, with its size in bytes.
    Regular(u64),
    /// A pipe, a socket or a directory, of which a driver makes no memory: one that reads it may wait for ever.
    NoMemory,
    /// Any other file, such as a device.
    Other,
}

pub(crate) fn file_type(fd: &OwnedFd) -> Result<FileType> {
    let stat = status(fd.as_raw_fd()).ok_or_else(|| system("fstat", &io::Error::last_os_error()))?;
    Ok(match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => FileType::Regular(stat.st_size.try_into().unwrap_or(0)),
        libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFDIR => FileType::NoMemory,
        _ => FileType::Other,
    })
}

/// The identity of a file; `None` for a number that is not open.
fn identity(fd: RawFd) -> Option<(libc::dev_t, libc::ino_t)> {
    status(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

fn status(fd: RawFd) -> Option<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: `stat` is a live output, and a number that is not open is refused.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: success means that it was written.
    Some(unsafe { stat.assume_init() })
}

pub(super) fn system(operation: &'static str, error: &io::Error) -> Error {
    Error::System { operation, code: error.raw_os_error().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

    fn file() -> Result<OwnedFd> {
        Ok(File::open("/dev/null")?.into())
    }

    fn close(fd: RawFd) {
        // SAFETY: the test's own copy, closed here as a driver would.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }

    #[test]
    fn a_copy_that_the_driver_left_open_is_closed() -> Result {
        let original = file()?;
        let lent = DriverFd::new(original.as_fd())?;
        let copy = lent.raw();
        assert_eq!(identity(copy), identity(original.as_raw_fd()));
        lent.take_back();
        assert_eq!(identity(copy), None);
        assert!(identity(original.as_raw_fd()).is_some());
        Ok(())
    }

    #[test]
    fn a_number_that_the_driver_closed_and_another_file_reuses_stays_open() -> Result {
        let original = file()?;
        let lent = DriverFd::new(original.as_fd())?;
        let copy = lent.raw();
        let other: OwnedFd = File::open("/dev/zero")?.into();
        // Closed and reused in one step.
        // SAFETY: both numbers are open, and belong to this test.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), copy) }, copy);
        lent.take_back();
        assert_eq!(identity(copy), identity(other.as_raw_fd()));
        close(copy);
        Ok(())
    }

    #[test]
    fn duplicates_are_closed_in_other_programs() -> Result {
        let fd = duplicate(file()?.as_fd())?;
        // SAFETY: asks for the flags of an open descriptor.
        assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        Ok(())
    }

    #[test]
    fn a_failure_names_the_systems_function_and_the_remedy() {
        let error = system("dup", &io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(
            error.to_string(),
            "dup failed (Too many open files (os error 24)): too many open files? see ulimit -n"
        );
    }
}
