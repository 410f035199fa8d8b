//! Launch kernels.

use super::launch::{Shape, launch};
use super::parameters;
use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::ffi::In;
use crate::layout::{LaunchAttribute, LaunchConfig};

#[expect(clippy::too_many_arguments, reason = "as many as the function has in C")]
fn plain(
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    dynamic_shared: u32,
    stream: usize,
    pointers: In<In<u8>>,
    extra: In<In<u8>>,
) -> Outcome {
    let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], dynamic_shared };
    launch(function, shape, false, stream, |kernel| parameters::read(kernel, pointers, extra))
}

#[expect(clippy::too_many_arguments, reason = "as many as the function has in C")]
fn cooperative(
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    dynamic_shared: u32,
    stream: usize,
    pointers: In<In<u8>>,
) -> Outcome {
    let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], dynamic_shared };
    launch(function, shape, true, stream, |kernel| parameters::from_pointers(kernel, pointers))
}

fn extended(config: In<LaunchConfig>, function: usize, pointers: In<In<u8>>, extra: In<In<u8>>) -> Outcome {
    let config = config.get()?;
    let mut cooperative = false;
    for index in 0..usize::try_from(config.attribute_count).map_err(|_| INVALID_VALUE)? {
        cooperative |= attribute(&config.attributes.element(index)?)?;
    }
    let LaunchConfig { grid, block, dynamic_shared, stream, .. } = config;
    let shape = Shape { grid, block, dynamic_shared };
    launch(function, shape, cooperative, stream, |kernel| parameters::read(kernel, pointers, extra))
}

// Whether the attribute makes the launch cooperative. Attributes that only affect speed are accepted and ignored;
// those that would change the result are refused.
fn attribute(attribute: &LaunchAttribute) -> Result<bool, Code> {
    let [x, y, z] = attribute.three_words();
    match attribute.id {
        // Ignore, cache window, waiting, cluster scheduling, programmatic serialisation, priority, the memory domains,
        // cluster and carve-out preferences, NVLink, cluster and shared-memory modes.
        0 | 1 | 3 | 5 | 6 | 8..=11 | 14 | 16..=18 => Ok(false),
        2 => Ok(x != 0),
        4 if [x, y, z].iter().all(|size| *size <= 1) => Ok(false),
        13 if x == 0 => Ok(false),
        // Clusters, events in the middle of a launch, kernels that are changed from the device.
        4 | 7 | 12 | 13 => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

exports! {
    cuLaunchKernel, cuLaunchKernel_ptsz =>
        plain(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
              dynamic_shared: u32, stream: usize, pointers: In<In<u8>>, extra: In<In<u8>>);
    cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz =>
        cooperative(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
                    dynamic_shared: u32, stream: usize, pointers: In<In<u8>>);
    cuLaunchKernelEx, cuLaunchKernelEx_ptsz =>
        extended(config: In<LaunchConfig>, function: usize, pointers: In<In<u8>>, extra: In<In<u8>>);
}
