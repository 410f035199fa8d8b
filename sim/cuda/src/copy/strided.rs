//! Copies of rows and slices. Arrays are not simulated.

use super::plan::{Memory, Rows, Shape, Side};
use super::run::{Transfer, asynchronous, synchronous};
use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::ffi::In;
use crate::layout::{Copy2D, Copy3D, Side3D};

// CUmemorytype, and which of the two addresses it selects.
fn select(kind: u32, host: usize, device: usize) -> Result<(Memory, usize), Code> {
    match kind {
        1 => Ok((Memory::Host, host)),
        2 => Ok((Memory::Device, device)),
        3 => Err(NOT_SUPPORTED),
        4 => Ok((Memory::Unified, device)),
        _ => Err(INVALID_VALUE),
    }
}

// A pitch of 0 is allowed where there is only one row, and a height of 0 where there is only one slice.
fn side(side: &Side3D, shape: Shape) -> Result<Side, Code> {
    let (memory, base) = select(side.memory, side.host, side.device)?;
    let row = side.x.checked_add(shape.width).ok_or(INVALID_VALUE)?;
    let one_row = shape.height == 1 && shape.depth == 1 && side.y == 0 && side.z == 0;
    if side.pitch < row && !(side.pitch == 0 && one_row) {
        return Err(INVALID_VALUE);
    }
    let rows = side.y.checked_add(shape.height).ok_or(INVALID_VALUE)?;
    if side.height < rows && (shape.depth > 1 || side.z > 0) {
        return Err(INVALID_VALUE);
    }
    let slice = side.pitch.checked_mul(side.height).ok_or(INVALID_VALUE)?;
    let offset = offset(side, slice).ok_or(INVALID_VALUE)?;
    let start = base.checked_add(offset).ok_or(INVALID_VALUE)?;
    Ok(Side { memory, rows: Rows { start, pitch: side.pitch, slice } })
}

fn offset(side: &Side3D, slice: usize) -> Option<usize> {
    let slices = side.z.checked_mul(slice)?;
    let rows = side.y.checked_mul(side.pitch)?;
    slices.checked_add(rows)?.checked_add(side.x)
}

fn sides(copy: &Copy3D) -> Result<(Side, Side, Shape), Code> {
    let shape = Shape { width: copy.width, height: copy.height, depth: copy.depth };
    if shape.is_empty() {
        let nothing = Side { memory: Memory::Host, rows: Rows::line(0) };
        return Ok((nothing, nothing, shape));
    }
    Ok((side(&copy.target, shape)?, side(&copy.source, shape)?, shape))
}

fn flat(copy: In<Copy2D>) -> Result<Copy3D, Code> {
    let Copy2D { source, target, width, height } = copy.get()?;
    Ok(Copy3D { source: Side3D::flat(&source), target: Side3D::flat(&target), width, height, depth: 1 })
}

/// The copy of a graph's node.
pub(crate) fn transfer(copy: &Copy3D) -> Result<Transfer, Code> {
    let (target, source, shape) = sides(copy)?;
    Transfer::new(target, source, shape)
}

fn copy_3d(copy: In<Copy3D>) -> Outcome {
    let (target, source, shape) = sides(&copy.get()?)?;
    synchronous(target, source, shape)
}

fn copy_3d_async(copy: In<Copy3D>, stream: usize) -> Outcome {
    let (target, source, shape) = sides(&copy.get()?)?;
    asynchronous(target, source, shape, stream)
}

fn copy_2d(copy: In<Copy2D>) -> Outcome {
    let (target, source, shape) = sides(&flat(copy)?)?;
    synchronous(target, source, shape)
}

fn copy_2d_async(copy: In<Copy2D>, stream: usize) -> Outcome {
    let (target, source, shape) = sides(&flat(copy)?)?;
    asynchronous(target, source, shape, stream)
}

exports! {
    cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds =>
        copy_2d(copy: In<Copy2D>);
    cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz => copy_2d_async(copy: In<Copy2D>, stream: usize);
    cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, cuMemcpy3DPeer, cuMemcpy3DPeer_ptds => copy_3d(copy: In<Copy3D>);
    cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz =>
        copy_3d_async(copy: In<Copy3D>, stream: usize);
}
