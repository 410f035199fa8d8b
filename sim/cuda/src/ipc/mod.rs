//! Memory and events of other processes (legacy IPC): a handle names a file by the exporting process, its descriptor, and what
//! tells the file from another one with that number.
//!
//! The importer opens it through /proc, so that both processes must be of one user and see each other's numbers.

mod event;
mod memory;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;

use crate::code::{Code, INVALID_HANDLE};

/// Device and inode.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(file: &File) -> Result<FileId, Code> {
        let data = file.metadata().map_err(|_| INVALID_HANDLE)?;
        Ok(FileId { device: data.dev(), inode: data.ino() })
    }
}

fn open_descriptor(process: u32, descriptor: i32) -> Result<File, Code> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    OpenOptions::new().read(true).write(true).open(path).map_err(|_| INVALID_HANDLE)
}
