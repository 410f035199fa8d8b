//! The next layer's functions, and which instances and devices are counted.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use ash::khr::external_memory_fd;

use crate::next::{NextDevice, NextInstance};
use crate::tables::Tables;

/// All instances of the process.
pub(super) static INSTANCES: Tables<InstanceTable> = Tables::new();
/// All devices of the process.
pub(super) static DEVICES: Tables<DeviceTable> = Tables::new();

/// What both tables begin with.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    /// Never used twice in a process.
    pub(super) serial: u64,
    /// Whether calls are counted and may be made to fail: not those of the simulated CUDA driver.
    pub(super) counted: bool,
}

impl Identity {
    pub(super) fn new(counted: bool) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        Self { serial: SERIAL.fetch_add(1, Ordering::Relaxed), counted }
    }
}

/// An instance beneath this layer.
pub(super) struct InstanceTable {
    pub(super) identity: Identity,
    pub(super) next: NextInstance,
}

/// A device beneath this layer.
pub(super) struct DeviceTable {
    pub(super) identity: Identity,
    pub(super) next: NextDevice,
    pub(super) external_memory_fd: external_memory_fd::DeviceFn,
}
