//! `SIMCUDA_BEHIND_KERNELS=wait`: calls that may wait on a GPU until no kernel runs do so here.
//!
//! Allocations synchronise with the device (CUDA programming guide, "Implicit Synchronization"). On an H100 with driver 580 only
//! frees, unregistrations, and the loading and unloading of modules wait; of other GPUs nothing is known. A program that makes
//! one of these calls while a kernel waits for the CPU may hang, and does so here.

use std::sync::{Condvar, Mutex};

use super::site::Site;
use crate::settings::settings;
use crate::sync::lock;

/// The functions that wait, without version suffixes.
const WAITING: [&str; 20] = [
    "cuExternalMemoryGetMappedBuffer",
    "cuImportExternalMemory",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
    "cuMemAlloc",
    "cuMemAllocHost",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleUnload",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
];

/// The kernels that are queued or run.
static KERNELS: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A kernel that is queued or runs, until it is dropped.
pub(crate) struct Kernel(());

impl Kernel {
    pub(crate) fn new() -> Self {
        *lock(&KERNELS) += 1;
        Kernel(())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        *lock(&KERNELS) -= 1;
        ENDED.notify_all();
    }
}

/// Waits if the function is one that does.
pub(crate) fn wait(site: &Site) {
    if settings().waits_for_kernels && WAITING.contains(&site.base()) {
        drop(ENDED.wait_while(lock(&KERNELS), |kernels| *kernels > 0));
    }
}
