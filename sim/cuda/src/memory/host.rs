//! Page-locked host memory: allocated here, or registered by the caller. The device sees it at the same address.
//!
//! The host's view of imported memory is not registered, with any flag. The code of the refusal is the one that was
//! reported for pages of `remap_pfn_range` (NVIDIA/open-gpu-kernel-modules#732).

use cudarc::driver::sys;

use super::imported_pages;
use super::table::{self, Found, Kind};
use super::window::Backing;
use crate::heap::Block;

use crate::boundary::exports;
use crate::code::{
    Code, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY, Outcome,
};
use crate::context;
use crate::ffi::Out;

const PORTABLE: u32 = sys::CU_MEMHOSTALLOC_PORTABLE;
const DEVICEMAP: u32 = sys::CU_MEMHOSTALLOC_DEVICEMAP;
const ALLOCATE_FLAGS: u32 = PORTABLE | DEVICEMAP | sys::CU_MEMHOSTALLOC_WRITECOMBINED;
const REGISTER_FLAGS: u32 = sys::CU_MEMHOSTREGISTER_PORTABLE
    | sys::CU_MEMHOSTREGISTER_DEVICEMAP
    | sys::CU_MEMHOSTREGISTER_IOMEMORY
    | sys::CU_MEMHOSTREGISTER_READ_ONLY;

fn allocate(out: Out<usize>, size: usize, flags: u32) -> Outcome {
    out.required()?;
    let context = context::usable()?;
    if size == 0 || flags & !ALLOCATE_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let block = Block::host(size).ok_or(OUT_OF_MEMORY)?;
    // With unified addressing all host memory is portable and mapped.
    let kind = Kind::Host { flags: flags | PORTABLE | DEVICEMAP };
    out.set(table::insert(block.address, size, kind, context.owner(), Backing::block(block)))
}

fn allocate_plain(out: Out<usize>, size: usize) -> Outcome {
    allocate(out, size, 0)
}

fn allocate_legacy(out: Out<usize>, size: u32) -> Outcome {
    allocate(out, usize::try_from(size).map_err(|_| INVALID_VALUE)?, 0)
}

/// Null is freed by doing nothing, as by `cuMemFree`.
fn free(pointer: usize) -> Outcome {
    if pointer == 0 {
        return context::usable().map(drop);
    }
    let allocated = |kind| matches!(kind, Kind::Host { .. });
    let window = table::remove_after_kernels(pointer, allocated).ok_or(INVALID_VALUE)?;
    context::check_owner(window.owner)
}

fn register(pointer: usize, size: usize, flags: u32) -> Outcome {
    let context = context::usable()?;
    if pointer == 0 || size == 0 || pointer.checked_add(size).is_none() || flags & !REGISTER_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    if imported_pages::overlap(pointer, size) {
        return Err(INVALID_VALUE);
    }
    let added = table::insert_registered(pointer, size, flags | PORTABLE | DEVICEMAP, context.owner());
    if added { Ok(()) } else { Err(HOST_MEMORY_ALREADY_REGISTERED) }
}

fn unregister(pointer: usize) -> Outcome {
    if pointer == 0 {
        return Err(INVALID_VALUE);
    }
    let registered = |kind| matches!(kind, Kind::Registered { .. });
    let window = table::remove_after_kernels(pointer, registered).ok_or(HOST_MEMORY_NOT_REGISTERED)?;
    context::check_owner(window.owner)
}

fn host_flags_of(pointer: usize) -> Result<u32, Code> {
    match table::find(pointer) {
        Some(Found { kind: Kind::Host { flags } | Kind::Registered { flags }, .. }) => Ok(flags),
        _ => Err(INVALID_VALUE),
    }
}

fn device_pointer(out: Out<usize>, pointer: usize, flags: u32) -> Outcome {
    out.required()?;
    context::usable()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    host_flags_of(pointer)?;
    out.set(pointer)
}

/// Also of registered memory, which the documentation excludes and drivers accept: programs tell by it whether memory is
/// page-locked.
fn flags(out: Out<u32>, pointer: usize) -> Outcome {
    out.required()?;
    context::usable()?;
    out.set(host_flags_of(pointer)?)
}

exports! {
    cuMemAllocHost_v2 => allocate_plain(out: Out<usize>, size: usize);
    cuMemAllocHost => allocate_legacy(out: Out<usize>, size: u32);
    cuMemHostAlloc => allocate(out: Out<usize>, size: usize, flags: u32);
    cuMemFreeHost => free(pointer: usize), Release;
    cuMemHostRegister_v2, cuMemHostRegister => register(pointer: usize, size: usize, flags: u32);
    cuMemHostUnregister => unregister(pointer: usize), Release;
    cuMemHostGetDevicePointer_v2 => device_pointer(out: Out<usize>, pointer: usize, flags: u32);
    cuMemHostGetFlags => flags(out: Out<u32>, pointer: usize);
}
