//! Settings of a context without effect here: limits, cache and shared-memory configuration, and the range of stream
//! priorities. They are stored, so that a program reads back the values that it wrote.

use std::sync::Mutex;

use cudarc::driver::sys::{CUfunc_cache, CUlimit, CUsharedconfig};

use super::{current, usable};

use crate::boundary::exports;
use crate::code::{INVALID_VALUE, Outcome, UNSUPPORTED_LIMIT};
use crate::ffi::Out;
use crate::stream::{GREATEST_PRIORITY, LEAST_PRIORITY};
use crate::sync::lock;

// Supported or not.
const LIMITS: usize = CUlimit::CU_LIMIT_MAX as usize;
const LAST_CACHE: u32 = CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL as u32;
const LAST_BANK_SIZE: u32 = CUsharedconfig::CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE as u32;
// Stack, printf buffer, malloc heap, synchronisation depth, pending launches, L2 fetch granularity, persisting L2.
const DEFAULT_LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

pub(super) struct Limits {
    values: Mutex<[usize; 7]>,
    cache: Mutex<u32>,
    bank_size: Mutex<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { values: Mutex::new(DEFAULT_LIMITS), cache: Mutex::new(0), bank_size: Mutex::new(1) }
    }
}

fn index(limit: u32) -> Result<usize, i32> {
    match usize::try_from(limit) {
        Ok(index) if index < DEFAULT_LIMITS.len() => Ok(index),
        Ok(..LIMITS) => Err(UNSUPPORTED_LIMIT),
        _ => Err(INVALID_VALUE),
    }
}

fn get_limit(out: Out<usize>, limit: u32) -> Outcome {
    out.required()?;
    let context = usable()?;
    let value = lock(&context.limits.values)[index(limit)?];
    out.set(value)
}

fn set_limit(limit: u32, value: usize) -> Outcome {
    let context = usable()?;
    lock(&context.limits.values)[index(limit)?] = value;
    Ok(())
}

fn get_cache(out: Out<u32>) -> Outcome {
    out.required()?;
    let context = usable()?;
    let value = *lock(&context.limits.cache);
    out.set(value)
}

fn set_cache(value: u32) -> Outcome {
    let context = usable()?;
    if value > LAST_CACHE {
        return Err(INVALID_VALUE);
    }
    *lock(&context.limits.cache) = value;
    Ok(())
}

fn get_bank_size(out: Out<u32>) -> Outcome {
    out.required()?;
    let context = usable()?;
    let value = *lock(&context.limits.bank_size);
    out.set(value)
}

fn set_bank_size(value: u32) -> Outcome {
    let context = usable()?;
    if value > LAST_BANK_SIZE {
        return Err(INVALID_VALUE);
    }
    *lock(&context.limits.bank_size) = value;
    Ok(())
}

fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Outcome {
    current()?;
    least.set_if_wanted(LEAST_PRIORITY);
    greatest.set_if_wanted(GREATEST_PRIORITY);
    Ok(())
}

exports! {
    cuCtxGetLimit => get_limit(out: Out<usize>, limit: u32);
    cuCtxSetLimit => set_limit(limit: u32, value: usize);
    cuCtxGetCacheConfig => get_cache(out: Out<u32>);
    cuCtxSetCacheConfig => set_cache(value: u32);
    cuCtxGetSharedMemConfig => get_bank_size(out: Out<u32>);
    cuCtxSetSharedMemConfig => set_bank_size(value: u32);
    cuCtxGetStreamPriorityRange => priority_range(least: Out<i32>, greatest: Out<i32>);
}
