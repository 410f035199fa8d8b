//! Allocations without an address, by handle.
//!
//! A handle counts its uses: `cuMemCreate`, imports and `cuMemRetainAllocationHandle` add one, `cuMemRelease` takes one.
//! The memory goes with the last use and the last mapping.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use simcommon::memfd;

use super::GRANULARITY;
use super::properties::{POSIX_FD, Properties};
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM, OUT_OF_MEMORY, Outcome};
use crate::device;
use crate::handle::{self, Handles};
use crate::heap::Charge;

/// The name of the files, which the system prefixes, and after which comes the device's number, since processes with
/// other devices in `CUDA_VISIBLE_DEVICES` have other ordinals for it.
const NAME: &str = "simcuda-memory-";

/// An allocation's memory.
pub(crate) struct Physical {
    handle: usize,
    /// Unique in the process, also among windows.
    pub(super) id: u64,
    pub(super) file: OwnedFd,
    /// In bytes.
    pub(super) size: usize,
    pub(super) properties: Properties,
    /// None for memory of another process, which counts there.
    _charge: Option<Charge>,
}

#[derive(Clone)]
struct Entry {
    physical: Arc<Physical>,
    uses: usize,
}

static HANDLES: Handles<Entry> = Handles::new(INVALID_VALUE);

/// The number of allocations with a handle in use.
pub(crate) fn count() -> usize {
    HANDLES.count()
}

/// The allocation of a handle.
pub(super) fn get(handle: usize) -> Result<Arc<Physical>, Code> {
    HANDLES.get(handle).map(|entry| entry.physical)
}

/// Adds a use of an allocation, and returns its handle.
pub(super) fn retain(physical: &Arc<Physical>) -> usize {
    let mut handles = HANDLES.lock();
    let new = || Entry { physical: Arc::clone(physical), uses: 0 };
    handles.entry(physical.handle).or_insert_with(new).uses += 1;
    physical.handle
}

/// Ends a use.
pub(super) fn release(handle: usize) -> Outcome {
    let mut handles = HANDLES.lock();
    let entry = handles.get_mut(&handle).ok_or(INVALID_VALUE)?;
    entry.uses -= 1;
    let gone = if entry.uses == 0 { handles.remove(&handle) } else { None };
    drop(handles);
    drop(gone);
    Ok(())
}

impl Physical {
    /// New memory, zeroed. The size is a multiple of the granularity.
    pub(super) fn create(size: usize, properties: Properties) -> Result<Arc<Physical>, Code> {
        let charge = Charge::new(size).ok_or(OUT_OF_MEMORY)?;
        let number = device::number(properties.device)?;
        let name = CString::new(format!("{NAME}{number}")).map_err(|_| INVALID_VALUE)?;
        let file = memfd::create_sealed(&name, size).map_err(|error| match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => OPERATING_SYSTEM,
            _ => OUT_OF_MEMORY,
        })?;
        Ok(Arc::new(Physical {
            handle: handle::next(),
            id: handle::next_id(),
            file,
            size,
            properties,
            _charge: Some(charge),
        }))
    }

    /// The memory behind a descriptor, which the caller keeps. Refused are a descriptor of anything but an exported
    /// allocation, and memory of a device that this process does not see.
    pub(super) fn import(fd: BorrowedFd<'_>) -> Result<Arc<Physical>, Code> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let target = fs::read_link(&path).map_err(|_| INVALID_VALUE)?;
        let name = target.to_str().and_then(|name| name.strip_prefix("/memfd:")).ok_or(INVALID_VALUE)?;
        let number = name.strip_prefix(NAME).and_then(|rest| rest.split(' ').next()).ok_or(INVALID_VALUE)?;
        let number = number.parse().map_err(|_| INVALID_VALUE)?;
        let device = device::ordinal(number).ok_or(NOT_SUPPORTED)?;
        let len = fs::metadata(&path).map_err(|_| INVALID_VALUE)?.len();
        let size = usize::try_from(len).map_err(|_| INVALID_VALUE)?;
        if !memfd::is_sealed(fd) || size == 0 || !size.is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        let file = fd.try_clone_to_owned().map_err(|_| OPERATING_SYSTEM)?;
        let properties = Properties { device, handle_types: POSIX_FD, rdma: false };
        Ok(Arc::new(Physical { handle: handle::next(), id: handle::next_id(), file, size, properties, _charge: None }))
    }

    /// A descriptor for another process.
    pub(super) fn export(&self) -> Result<OwnedFd, Code> {
        self.file.try_clone().map_err(|_| OPERATING_SYSTEM)
    }

    /// A descriptor that can be mapped, to write only if it is `writable`.
    pub(super) fn reopened(&self, writable: bool) -> Result<OwnedFd, Code> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file: File = OpenOptions::new().read(true).write(writable).open(path).map_err(|_| OPERATING_SYSTEM)?;
        Ok(file.into())
    }
}
