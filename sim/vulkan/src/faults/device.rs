//! Devices.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use ash::khr::{external_memory_fd, external_semaphore_fd};
use ash::vk;

use super::identity::Identity;
use super::instance::Instance;
use super::ledger::Noun;
use super::trace;
use crate::dispatch::DeviceState;
use crate::next::{CreateDevice, NextDevice};
use crate::tables::Tables;

/// All devices of the process.
pub(super) static DEVICES: Tables<Device> = Tables::new();

/// A device beneath this layer.
pub(super) struct Device {
    pub(super) identity: Identity,
    pub(super) next: NextDevice,
    pub(super) external_memory_fd: external_memory_fd::DeviceFn,
    pub(super) external_semaphore_fd: external_semaphore_fd::DeviceFn,
}

impl DeviceState for Device {
    type Instance = Instance;

    fn all() -> &'static Tables<Self> {
        &DEVICES
    }

    unsafe fn create(instance: &Instance, call: &CreateDevice<'_>) -> Result<Self, vk::Result> {
        let identity = Identity::new(instance.identity.is_passive());
        let entered = identity.enter("vkCreateDevice");
        // SAFETY: the caller's promise.
        unsafe { trace::create_device(identity, call.info) };
        entered?;
        // SAFETY: the caller's promise.
        let next = unsafe { call.pass_on(call.info) }?;
        identity.born(Noun::Device, next.handle);
        // SAFETY: a live device: it was just created.
        let external_memory_fd = external_memory_fd::DeviceFn::load(|name| unsafe { next.find(name) });
        // SAFETY: as above.
        let external_semaphore_fd = external_semaphore_fd::DeviceFn::load(|name| unsafe { next.find(name) });
        Ok(Self { identity, next, external_memory_fd, external_semaphore_fd })
    }

    fn before_destroying(&self) {
        // A fault only shows in the count: the function returns nothing.
        let _ = self.identity.enter("vkDestroyDevice");
        self.identity.died(Noun::Device, self.next.handle);
    }

    fn next(&self) -> &NextDevice {
        &self.next
    }

    fn is_passive(&self) -> bool {
        self.identity.is_passive()
    }
}
