//! The attributes of functions and kernels.

use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUfunction_attribute};

use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::context;
use crate::device;
use crate::ffi::Out;
use crate::module::function::{Settings, most_threads};
use crate::module::library;
use crate::sync::lock;

const MAX_THREADS: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32;
const SHARED_BYTES: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as u32;
const CONSTANT_BYTES: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES as u32;
const LOCAL_BYTES: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES as u32;
const NUMBER_OF_REGISTERS: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS as u32;
const PTX_VERSION: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION as u32;
const BINARY_VERSION: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION as u32;
const CACHE_MODE: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA as u32;
const CLUSTER_SIZE_MUST_BE_SET: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET as u32;
const DEVICE_NODE_UPDATE: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_DEVICE_NODE_UPDATE_SUPPORTED as u32;
const SHARED_MEMORY_MODE: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE as u32;
const MAX_DYNAMIC_SHARED: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
const CARVEOUT: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as u32;
const REQUIRED_CLUSTER: std::ops::RangeInclusive<u32> = CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
    as u32
    ..=CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH as u32;
const ANY_CLUSTER_SIZE: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED as u32;
const CLUSTER_POLICY: u32 = CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE as u32;

const MAX_SHARED_OPT_IN: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;

/// Registers of a thread, a typical figure of compiled kernels: an interpreted kernel has none.
pub(super) const REGISTERS: u64 = 32;

fn value(attribute: u32, kernel: &ptx::Kernel, settings: &Settings) -> Result<i32, Code> {
    let settings = settings.get();
    let capability = device::COMPUTE_CAPABILITY;
    let value = match attribute {
        MAX_THREADS => most_threads(kernel),
        SHARED_BYTES => kernel.shared_bytes(),
        CONSTANT_BYTES => kernel.constant_bytes(),
        LOCAL_BYTES => kernel.local_bytes(),
        NUMBER_OF_REGISTERS => REGISTERS,
        PTX_VERSION => u64::from(kernel.target()),
        BINARY_VERSION => return Ok(capability.0 * 10 + capability.1),
        CACHE_MODE | CLUSTER_SIZE_MUST_BE_SET | DEVICE_NODE_UPDATE | SHARED_MEMORY_MODE => 0,
        _ if REQUIRED_CLUSTER.contains(&attribute) => 0,
        MAX_DYNAMIC_SHARED => settings.max_dynamic_shared,
        CARVEOUT => return Ok(settings.carveout),
        ANY_CLUSTER_SIZE => return Ok(settings.any_cluster_size),
        CLUSTER_POLICY => return Ok(settings.cluster_policy),
        _ => return Err(INVALID_VALUE),
    };
    i32::try_from(value).map_err(|_| INVALID_VALUE)
}

fn set_value(attribute: u32, value: i32, kernel: &ptx::Kernel, settings: &Settings) -> Outcome {
    let mut settings = lock(&settings.values);
    match attribute {
        MAX_DYNAMIC_SHARED => {
            let most = device::limit(MAX_SHARED_OPT_IN).saturating_sub(kernel.shared_bytes());
            let value = u64::try_from(value).ok().filter(|value| *value <= most);
            settings.max_dynamic_shared = value.ok_or(INVALID_VALUE)?;
        }
        CARVEOUT if (-1..=100).contains(&value) => settings.carveout = value,
        ANY_CLUSTER_SIZE if (0..=1).contains(&value) => settings.any_cluster_size = value,
        CLUSTER_POLICY if (0..=2).contains(&value) => settings.cluster_policy = value,
        // The device's compute capability predates clusters.
        _ if REQUIRED_CLUSTER.contains(&attribute) && value > 1 => return Err(NOT_SUPPORTED),
        _ if REQUIRED_CLUSTER.contains(&attribute) && value >= 0 => {}
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn get(out: Out<i32>, attribute: u32, function: usize) -> Outcome {
    out.required()?;
    context::usable()?;
    let function = library::function(function)?;
    out.set(value(attribute, &function.kernel, &function.settings)?)
}

fn set(function: usize, attribute: u32, value: i32) -> Outcome {
    context::usable()?;
    let function = library::function(function)?;
    set_value(attribute, value, &function.kernel, &function.settings)
}

fn get_of_kernel(out: Out<i32>, attribute: u32, kernel: usize, device: i32) -> Outcome {
    out.required()?;
    let kernel = library::kernel(kernel)?;
    out.set(value(attribute, &kernel.kernel, kernel.settings(device)?)?)
}

fn set_of_kernel(attribute: u32, value: i32, kernel: usize, device: i32) -> Outcome {
    let kernel = library::kernel(kernel)?;
    set_value(attribute, value, &kernel.kernel, kernel.settings(device)?)
}

// Cache preference and bank size have no effect here.
fn set_cache(function: usize, config: u32) -> Outcome {
    context::usable()?;
    library::function(function)?;
    if config > 3 { Err(INVALID_VALUE) } else { Ok(()) }
}

fn set_banks(function: usize, config: u32) -> Outcome {
    context::usable()?;
    library::function(function)?;
    if config > 2 { Err(INVALID_VALUE) } else { Ok(()) }
}

// The block shape of `cuLaunch`, which is not simulated. pycuda sets it before every launch, to the shape of that launch.
fn set_block(function: usize, x: i32, y: i32, z: i32) -> Outcome {
    context::usable()?;
    library::function(function)?;
    if [x, y, z].iter().all(|size| *size > 0) { Ok(()) } else { Err(INVALID_VALUE) }
}

fn set_cache_of_kernel(kernel: usize, config: u32, device: i32) -> Outcome {
    device::check(device)?;
    library::kernel(kernel)?;
    if config > 3 { Err(INVALID_VALUE) } else { Ok(()) }
}

exports! {
    cuFuncGetAttribute => get(out: Out<i32>, attribute: u32, function: usize);
    cuFuncSetAttribute => set(function: usize, attribute: u32, value: i32);
    cuFuncSetBlockShape => set_block(function: usize, x: i32, y: i32, z: i32);
    cuFuncSetCacheConfig => set_cache(function: usize, config: u32);
    cuFuncSetSharedMemConfig => set_banks(function: usize, config: u32);
    cuKernelGetAttribute => get_of_kernel(out: Out<i32>, attribute: u32, kernel: usize, device: i32);
    cuKernelSetAttribute => set_of_kernel(attribute: u32, value: i32, kernel: usize, device: i32);
    cuKernelSetCacheConfig => set_cache_of_kernel(kernel: usize, config: u32, device: i32);
}
