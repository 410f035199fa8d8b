//! The launch API of CUDA 3: a function stores its block shape and parameters, and is launched afterwards.

use super::launch::{Shape, launch};
use crate::boundary::exports;
use crate::code::{INVALID_VALUE, Outcome};
use crate::context;
use crate::ffi::In;
use crate::module::function::Prepared;
use crate::module::library;
use crate::stream::table as streams;
use crate::sync::lock;

// The maximum size of a kernel's parameters since CUDA 12.1, in bytes.
const MOST_PARAMETER_BYTES: usize = 32_764;

fn positive(size: i32) -> Result<u32, i32> {
    u32::try_from(size).ok().filter(|size| *size > 0).ok_or(INVALID_VALUE)
}

fn set_block(function: usize, x: i32, y: i32, z: i32) -> Outcome {
    context::usable()?;
    let function = library::function(function)?;
    lock(&function.prepared).block = [positive(x)?, positive(y)?, positive(z)?];
    Ok(())
}

fn set_shared(function: usize, bytes: u32) -> Outcome {
    context::usable()?;
    let function = library::function(function)?;
    lock(&function.prepared).dynamic_shared = bytes;
    Ok(())
}

fn set_size(function: usize, bytes: u32) -> Outcome {
    context::usable()?;
    let size = usize::try_from(bytes).ok().filter(|size| *size <= MOST_PARAMETER_BYTES).ok_or(INVALID_VALUE)?;
    let function = library::function(function)?;
    lock(&function.prepared).parameters.resize(size, 0);
    Ok(())
}

fn set_bytes(function: usize, offset: i32, bytes: &[u8]) -> Outcome {
    context::usable()?;
    let function = library::function(function)?;
    let start = usize::try_from(offset).map_err(|_| INVALID_VALUE)?;
    let end = start.checked_add(bytes.len()).filter(|end| *end <= MOST_PARAMETER_BYTES).ok_or(INVALID_VALUE)?;
    let mut prepared = lock(&function.prepared);
    if prepared.parameters.len() < end {
        prepared.parameters.resize(end, 0);
    }
    prepared.parameters[start..end].copy_from_slice(bytes);
    Ok(())
}

fn set_integer(function: usize, offset: i32, value: u32) -> Outcome {
    set_bytes(function, offset, &value.to_ne_bytes())
}

fn set_float(function: usize, offset: i32, value: f32) -> Outcome {
    set_bytes(function, offset, &value.to_ne_bytes())
}

fn set_data(function: usize, offset: i32, data: In<u8>, bytes: u32) -> Outcome {
    let len = usize::try_from(bytes).ok().filter(|len| *len <= MOST_PARAMETER_BYTES).ok_or(INVALID_VALUE)?;
    set_bytes(function, offset, &data.bytes(len)?)
}

fn run(function: usize) -> Outcome {
    run_grid(function, 1, 1)
}

fn run_grid(function: usize, width: i32, height: i32) -> Outcome {
    run_grid_on(function, width, height, streams::DEFAULT)
}

fn run_grid_on(function: usize, width: i32, height: i32, stream: usize) -> Outcome {
    context::usable()?;
    let function = library::function(function)?;
    let Prepared { block, dynamic_shared, parameters } = lock(&function.prepared).clone();
    let shape = Shape { grid: [positive(width)?, positive(height)?, 1], block, dynamic_shared };
    launch(function.handle, shape, false, stream, |kernel| {
        if parameters.len() < kernel.parameter_bytes() { Err(INVALID_VALUE) } else { Ok(parameters) }
    })
}

exports! {
    cuFuncSetBlockShape => set_block(function: usize, x: i32, y: i32, z: i32);
    cuFuncSetSharedSize => set_shared(function: usize, bytes: u32);
    cuParamSetSize => set_size(function: usize, bytes: u32);
    cuParamSeti => set_integer(function: usize, offset: i32, value: u32);
    cuParamSetf => set_float(function: usize, offset: i32, value: f32);
    cuParamSetv => set_data(function: usize, offset: i32, data: In<u8>, bytes: u32);
    cuLaunch => run(function: usize);
    cuLaunchGrid => run_grid(function: usize, width: i32, height: i32);
    cuLaunchGridAsync => run_grid_on(function: usize, width: i32, height: i32, stream: usize);
}
