//! The label of exported memory: properties that an importing driver finds behind a descriptor.
//!
//! A kernel module knows the allocation that a descriptor stands for. Lavapipe's descriptors are memfds, so the label is
//! in the file's permissions, which nothing else uses: they stay with the file in other processes too, and no access
//! changes them. The profile layer writes labels. The simulated CUDA driver reads them.
#![forbid(unsafe_code)]

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::PermissionsExt as _;

/// The sticky bit marks a label: it has no meaning for files.
const MARK: u32 = 0o1000;
const SYSTEM: u32 = 0o040;
/// Two bits. The bits of execution are left alone, since a memfd's seal may forbid their change.
const DEVICE_SHIFT: u32 = 1;
const DEVICE: u32 = 0o006;

/// The device that CUDA does not know.
pub const FOREIGN: u8 = 3;

/// The properties of exported memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Whether it is system memory.
    pub system: bool,
    /// The number of its CUDA device, 0 to 2, or [`FOREIGN`].
    pub device: u8,
}

impl Label {
    /// The label of a descriptor's file, if it has one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read(fd: RawFd) -> io::Result<Option<Self>> {
        let mode = fs::metadata(path(fd))?.permissions().mode();
        let label = Self {
            system: mode & SYSTEM != 0,
            device: u8::try_from((mode & DEVICE) >> DEVICE_SHIFT).unwrap_or(FOREIGN),
        };
        Ok((mode & MARK != 0).then_some(label))
    }

    /// Labels a descriptor's file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(self, fd: RawFd) -> io::Result<()> {
        let kept = fs::metadata(path(fd))?.permissions().mode() & !(MARK | SYSTEM | DEVICE);
        let system = if self.system { SYSTEM } else { 0 };
        let device = (u32::from(self.device) << DEVICE_SHIFT) & DEVICE;
        fs::set_permissions(path(fd), Permissions::from_mode(kept | MARK | system | device))
    }
}

/// A path of the file. It takes no descriptor, of which there may be no more.
fn path(fd: RawFd) -> String {
    format!("/proc/self/fd/{fd}")
}
