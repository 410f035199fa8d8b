//! The next layer's functions, and which instances and devices are counted.
#![expect(unsafe_code, reason = "calls the next layer's vkGet*ProcAddr")]

use std::sync::atomic::{AtomicU64, Ordering};

use ash::khr::external_memory_fd;
use ash::vk;

use crate::interface::{InstanceLink, address};
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

/// An instance's functions beneath this layer.
pub(super) struct InstanceTable {
    pub(super) identity: Identity,
    pub(super) handle: vk::Instance,
    pub(super) get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    pub(super) functions: ash::InstanceFnV1_0,
}

impl InstanceTable {
    /// Resolves them.
    ///
    /// # Safety
    /// `handle` was just created through `link`.
    pub(super) unsafe fn resolve(handle: vk::Instance, link: InstanceLink, counted: bool) -> Self {
        Self {
            identity: Identity::new(counted),
            handle,
            get_instance_proc_addr: link.get_instance_proc_addr,
            // SAFETY: the caller's promise.
            functions: unsafe { link.instance_functions(handle) },
        }
    }
}

/// A device's functions beneath this layer.
pub(super) struct DeviceTable {
    pub(super) identity: Identity,
    pub(super) get_device_proc_addr: vk::PFN_vkGetDeviceProcAddr,
    pub(super) functions: ash::DeviceFnV1_0,
    pub(super) external_memory_fd: external_memory_fd::DeviceFn,
}

impl DeviceTable {
    /// Resolves them.
    ///
    /// # Safety
    /// `handle` was just created, and `get_device_proc_addr` is the next layer's.
    pub(super) unsafe fn resolve(
        handle: vk::Device,
        get_device_proc_addr: vk::PFN_vkGetDeviceProcAddr,
        counted: bool,
    ) -> Self {
        let find = |name: &std::ffi::CStr| {
            // SAFETY: the caller's promise: a live device and the next layer's function.
            address(unsafe { get_device_proc_addr(handle, name.as_ptr()) })
        };
        Self {
            identity: Identity::new(counted),
            get_device_proc_addr,
            functions: ash::DeviceFnV1_0::load(find),
            external_memory_fd: external_memory_fd::DeviceFn::load(find),
        }
    }
}
