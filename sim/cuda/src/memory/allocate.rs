//! Device and managed memory: allocate, free.

use cudarc::driver::sys::CUmemAttach_flags;

use super::table::{self, Kind};
use super::window::Backing;
use crate::heap::Block;

use crate::boundary::exports;
use crate::code::{INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use crate::context;
use crate::ffi::Out;

const MANAGED_GLOBAL: u32 = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
const MANAGED_HOST: u32 = CUmemAttach_flags::CU_MEM_ATTACH_HOST as u32;
const PITCH: usize = 512;

fn allocate(out: Out<usize>, size: usize) -> Outcome {
    out.required()?;
    out.set(reserve(size, Kind::Device)?)
}

fn allocate_managed(out: Out<usize>, size: usize, flags: u32) -> Outcome {
    out.required()?;
    if flags != MANAGED_GLOBAL && flags != MANAGED_HOST {
        return Err(INVALID_VALUE);
    }
    out.set(reserve(size, Kind::Managed)?)
}

fn allocate_pitch(out: Out<usize>, pitch: Out<usize>, width: usize, height: usize, element: u32) -> Outcome {
    out.required()?;
    pitch.required()?;
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(PITCH).ok_or(OUT_OF_MEMORY)?;
    let address = reserve(row.checked_mul(height).ok_or(OUT_OF_MEMORY)?, Kind::Device)?;
    pitch.set(row)?;
    out.set(address)
}

fn reserve(size: usize, kind: Kind) -> Result<usize, i32> {
    let context = context::usable()?;
    if size == 0 {
        return Err(INVALID_VALUE);
    }
    let block = if kind == Kind::Managed { Block::managed(size) } else { Block::device(size) };
    let block = block.ok_or(OUT_OF_MEMORY)?;
    Ok(table::insert(block.address, size, kind, context.owner(), Backing::block(block)))
}

/// Waits for kernels, and for no other work: copies that then access imported memory fail with
/// `CUDA_ERROR_ILLEGAL_ADDRESS`, which exposes programs that free too early. Null is freed by doing nothing, as seen on an
/// RTX 4090 with driver 590.48 (lupinemachines/lupine#858).
fn free(pointer: usize) -> Outcome {
    if pointer == 0 {
        return context::usable().map(drop);
    }
    let freeable = |kind| matches!(kind, Kind::Device | Kind::Pooled { .. } | Kind::Managed | Kind::Imported);
    let window = table::remove_after_kernels(pointer, freeable).ok_or(INVALID_VALUE)?;
    context::check_owner(window.owner)
}

exports! {
    cuMemAlloc_v2 => allocate(out: Out<usize>, size: usize);
    cuMemAllocManaged => allocate_managed(out: Out<usize>, size: usize, flags: u32);
    cuMemAllocPitch_v2 =>
        allocate_pitch(out: Out<usize>, pitch: Out<usize>, width: usize, height: usize, element: u32);
    cuMemFree_v2 => free(pointer: usize), Release;
}
