//! External memory: memory that Vulkan allocated and exported, mapped a second time for the device.
//!
//! The descriptor stays open until the import is destroyed, as a real driver's does, so that a process has one for each
//! live import.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUexternalMemoryHandleType};

use crate::boundary::exports;
use crate::code::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM, Outcome};
use crate::context;
use crate::device;
use crate::fd;
use crate::ffi::{In, Out};
use crate::handle::Handles;
use crate::layout::{ExternalBuffer, ExternalHandle};
use crate::memory::table;
use crate::owner::Owner;
use crate::vulkan::{self, Import};
use simcommon::label::Label;

const LAST_KIND: u32 = CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD as u32;
const OPAQUE_FD: u32 = CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD as u32;
const DEDICATED: u32 = sys::CUDA_EXTERNAL_MEMORY_DEDICATED;

struct External {
    import: Arc<Import>,
    owner: Owner,
    fd: OwnedFd,
}

static EXTERNALS: Handles<External> = Handles::new(INVALID_HANDLE);

/// The number of live external memories.
pub(crate) fn count() -> usize {
    EXTERNALS.count()
}

/// The files behind the live external memories: device and inode.
pub(crate) fn files() -> Vec<(u64, u64)> {
    EXTERNALS.lock().values().filter_map(|external| fd::file(&external.fd)).collect()
}

/// Releases the external memories of a destroyed context.
pub(crate) fn release_all_of(owner: Owner) {
    EXTERNALS.remove_where(|external| external.owner == owner);
}

fn import(out: Out<usize>, description: In<ExternalHandle>) -> Outcome {
    out.required()?;
    let description = description.get()?;
    let ExternalHandle { kind, size, flags, .. } = description;
    simcommon::trace::arguments(format_args!("type={kind} size={size} flags={flags}"));
    let context = context::usable()?;
    match description.kind {
        OPAQUE_FD => {}
        kind if (OPAQUE_FD..=LAST_KIND).contains(&kind) => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_VALUE),
    }
    let size = usize::try_from(description.size).map_err(|_| INVALID_VALUE)?;
    if size == 0 || description.flags & !DEDICATED != 0 {
        return Err(INVALID_VALUE);
    }
    let (fd, owner) = (fd::borrow(description.fd())?, context.owner());
    check(fd, owner.device)?;
    let import = Arc::new(vulkan::import(fd, size)?);
    // CUDA takes ownership of the descriptor, on success only.
    out.set(EXTERNALS.insert(External { import, owner, fd: fd::take(fd) }))
}

/// Refuses memory that is another device's. Memory without a label was
/// exported without a profile, and is never refused.
///
/// System memory is refused, too. NVIDIA's driver 580 imports it, and an H100 caches it: the device never sees what the CPU
/// stores after the device's first access. Programs register such memory.
fn check(fd: BorrowedFd<'_>, device: i32) -> Outcome {
    let Some(label) = Label::read(fd.as_raw_fd()).map_err(|_| OPERATING_SYSTEM)? else { return Ok(()) };
    if i32::from(label.device) != device::number(device)? {
        return Err(INVALID_VALUE);
    }
    if label.system {
        return Err(NOT_SUPPORTED);
    }
    Ok(())
}

fn map_buffer(out: Out<usize>, memory: usize, description: In<ExternalBuffer>) -> Outcome {
    out.required()?;
    let description = description.get()?;
    let ExternalBuffer { offset, size, flags, .. } = description;
    simcommon::trace::arguments(format_args!("offset={offset} size={size} flags={flags}"));
    let context = context::usable()?;
    let import = EXTERNALS.lock().get(&memory).map(|external| Arc::clone(&external.import)).ok_or(INVALID_HANDLE)?;
    let offset = usize::try_from(description.offset).map_err(|_| INVALID_VALUE)?;
    let size = usize::try_from(description.size).map_err(|_| INVALID_VALUE)?;
    let inside = size > 0 && offset <= import.size && size <= import.size - offset;
    if description.flags != 0 || !inside {
        return Err(INVALID_VALUE);
    }
    let base = import.map()?;
    table::insert_imported(import, base, offset, size, context.owner());
    out.set(base + offset)
}

fn destroy(memory: usize) -> Outcome {
    // The last mapped buffer releases the pages.
    EXTERNALS.remove(memory).map(drop)
}

exports! {
    cuImportExternalMemory => import(out: Out<usize>, description: In<ExternalHandle>);
    cuExternalMemoryGetMappedBuffer => map_buffer(out: Out<usize>, memory: usize, description: In<ExternalBuffer>);
    cuDestroyExternalMemory => destroy(memory: usize), Release;
}
