//! Anonymous files for `Host` memory that is not Vulkan's, recognised by their name and seals.
#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;

use super::descriptor::system;
use crate::Result;

/// The name of the files, which `/proc/self/fd` shows behind `/memfd:`.
const NAME: &str = "vkgdr-host";
/// The size never changes, so that a mapping always has its pages, in every process that received the file; nor do the
/// seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A new file of `size` bytes, close-on-exec, sealed, and never executable where the kernel knows that (Linux 6.3): with
/// `vm.memfd_noexec=2` it refuses others (memfd_create(2)).
pub(crate) fn create(size: u64) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(NAME, flags),
        other => other,
    }
    .map_err(system("memfd_create"))?;
    ftruncate(&file, size).map_err(system("ftruncate"))?;
    fcntl_add_seals(&file, SEALS).map_err(system("fcntl"))?;
    Ok(file)
}

/// Whether a descriptor is of a file that [`create`] made, in this or another process.
pub(crate) fn is_ours(file: BorrowedFd<'_>) -> bool {
    // Files that cannot be sealed are an error.
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS)) {
        return false;
    }
    // Without /proc the seals decide.
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_or(true, |path| {
        let name = path.to_string_lossy();
        name.strip_prefix("/memfd:").is_some_and(|name| name.starts_with(NAME))
    })
}

/// The size of a file in bytes.
pub(crate) fn size(file: BorrowedFd<'_>) -> Result<u64> {
    let stat = fstat(file).map_err(system("fstat"))?;
    Ok(u64::try_from(stat.st_size).expect("a file's size is not negative"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// `F_SEAL_EXEC` (linux/fcntl.h).
    const EXEC_SEAL: u32 = 0x20;

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
        assert_eq!(rustix::io::fcntl_getfd(&file)?, rustix::io::FdFlags::CLOEXEC);
        // The seal against execution clears the permission; kernels before 6.3 have neither.
        let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata()?);
        let sealed = fcntl_get_seals(&file)?.contains(SealFlags::from_bits_retain(EXEC_SEAL));
        assert_eq!(sealed, mode & 0o111 == 0, "mode {mode:o}");
        Ok(())
    }

    #[test]
    fn other_files_are_not_ours() -> Result {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        for (name, seals) in [("vkgdr-host", SealFlags::SHRINK), ("other", SEALS)] {
            let file = memfd_create(name, flags)?;
            fcntl_add_seals(&file, seals)?;
            assert!(!is_ours(file.as_fd()), "{name:?}");
        }
        assert!(!is_ours(File::open("/dev/zero")?.as_fd()));
        Ok(())
    }
}
