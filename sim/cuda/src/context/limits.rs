//! Settings of a context: limits, cache and shared-memory configuration. Only the size of the kernels' heap has an effect
//! here. The others are stored, so that a program reads back the values that it wrote.

use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{CUfunc_cache, CUlimit, CUsharedconfig};

use crate::code::{Code, INVALID_VALUE, Outcome, UNSUPPORTED_LIMIT};
use crate::memory::kernel_heap::KernelHeap;
use crate::sync::lock;

// Supported or not.
const LIMITS: usize = CUlimit::CU_LIMIT_MAX as usize;
const HEAP: u32 = CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE as u32;
const LAST_CACHE: u32 = CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL as u32;
const LAST_BANK_SIZE: u32 = CUsharedconfig::CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE as u32;
// Stack, printf buffer, heap (in `KernelHeap`), synchronisation depth, pending launches, L2 fetch granularity, persisting
// L2.
const DEFAULT_LIMITS: [usize; 7] = [1024, 1 << 20, 0, 2, 2048, 64, 0];

pub(super) struct Limits {
    values: Mutex<[usize; 7]>,
    heap: Arc<KernelHeap>,
    cache: Mutex<u32>,
    bank_size: Mutex<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        let (values, heap) = (Mutex::new(DEFAULT_LIMITS), Arc::default());
        Limits { values, heap, cache: Mutex::new(0), bank_size: Mutex::new(1) }
    }
}

fn index(limit: u32) -> Result<usize, Code> {
    match usize::try_from(limit) {
        Ok(index) if index < DEFAULT_LIMITS.len() => Ok(index),
        Ok(..LIMITS) => Err(UNSUPPORTED_LIMIT),
        _ => Err(INVALID_VALUE),
    }
}

impl Limits {
    pub(super) fn get(&self, limit: u32) -> Result<usize, Code> {
        match limit {
            HEAP => Ok(self.heap.limit()),
            _ => Ok(lock(&self.values)[index(limit)?]),
        }
    }

    pub(super) fn set(&self, limit: u32, value: usize) -> Outcome {
        match limit {
            HEAP => self.heap.set_limit(value),
            _ => lock(&self.values)[index(limit)?] = value,
        }
        Ok(())
    }

    /// The heap of `malloc` in kernels, whose size is one of the limits.
    pub(super) fn heap(&self) -> &Arc<KernelHeap> {
        &self.heap
    }

    pub(super) fn cache(&self) -> u32 {
        *lock(&self.cache)
    }

    pub(super) fn set_cache(&self, value: u32) -> Outcome {
        if value > LAST_CACHE {
            return Err(INVALID_VALUE);
        }
        *lock(&self.cache) = value;
        Ok(())
    }

    pub(super) fn bank_size(&self) -> u32 {
        *lock(&self.bank_size)
    }

    pub(super) fn set_bank_size(&self, value: u32) -> Outcome {
        if value > LAST_BANK_SIZE {
            return Err(INVALID_VALUE);
        }
        *lock(&self.bank_size) = value;
        Ok(())
    }
}
