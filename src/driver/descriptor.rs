//! File descriptors: their type and limit, duplicates, close-on-exec, and passing ownership to a driver.
#![expect(unsafe_code, reason = "asks the system about descriptors that may be closed")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::fs::{FileType as Kind, Stat, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::{Error, Result};

/// Marks the descriptor close-on-exec.
pub(crate) fn close_on_exec(fd: &OwnedFd) -> Result<()> {
    fcntl_setfd(fd, FdFlags::CLOEXEC).map_err(system("fcntl"))
}

/// A descriptor of the same file.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(system("dup"))
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
    let stat = fstat(fd).map_err(system("fstat"))?;
    Ok(match Kind::from_raw_mode(stat.st_mode) {
        Kind::RegularFile => FileType::Regular(u64::try_from(stat.st_size).expect("a file's size is not negative")),
        Kind::Fifo | Kind::Socket | Kind::Directory => FileType::NoMemory,
        _ => FileType::Other,
    })
}

/// The identity of a file; `None` for a number that is not open.
fn identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: the call borrows the number for itself alone, and refuses one that is not open.
    let Stat { st_dev, st_ino, .. } = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some((st_dev, st_ino))
}

/// Converts an error of the system's function.
pub(super) fn system<E: Into<io::Error>>(operation: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::System {
        operation,
        code: error.into().raw_os_error().expect("an error of the system has a code"),
    }
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
        assert_eq!(rustix::io::fcntl_getfd(&fd)?, FdFlags::CLOEXEC);
        Ok(())
    }

    #[test]
    fn a_failure_names_the_systems_function_and_the_remedy() {
        let error = system("dup")(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(
            error.to_string(),
            "dup failed (Too many open files (os error 24)): too many open files? see ulimit -n"
        );
    }
}
