//! Timeline semaphores that are exported as opaque file descriptors.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{CStr, CString, c_void};
use std::os::fd::OwnedFd;
use std::ptr;
use std::time::Duration;

use ash::{khr, vk};

use super::{Device, Named};
use crate::driver::{fork, os};
use crate::error::Call;
use crate::{Error, Result};

const OPAQUE_FD: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;

/// The functions of a device on timeline semaphores, which are optional.
pub(super) struct Timelines {
    values: khr::timeline_semaphore::DeviceFn,
    fds: khr::external_semaphore_fd::DeviceFn,
}

impl Timelines {
    /// The extensions of semaphores that are shared.
    pub(super) const EXTENSIONS: [&CStr; 2] = [khr::timeline_semaphore::NAME, khr::external_semaphore_fd::NAME];

    /// `None` for a device that was made without them.
    pub(super) fn find(instance: &ash::Instance, device: &ash::Device) -> Option<Self> {
        let of_device = instance.fp_v1_0().get_device_proc_addr;
        let find = |name: &CStr| {
            // SAFETY: a live device, and a terminated name.
            unsafe { of_device(device.handle(), name.as_ptr()) }.map_or(ptr::null(), |found| found as *const c_void)
        };
        // A part of Vulkan 1.2 under names without the suffix.
        let find_either = |name: &CStr| {
            let plain = name.to_bytes().strip_suffix(b"KHR").and_then(|plain| CString::new(plain).ok());
            let extension = find(name);
            if extension.is_null() { plain.map_or(ptr::null(), |plain| find(&plain)) } else { extension }
        };
        let needed = [c"vkGetSemaphoreFdKHR", c"vkWaitSemaphoresKHR", c"vkSignalSemaphoreKHR"];
        if needed.into_iter().any(|name| find_either(name).is_null()) {
            return None;
        }
        let values = khr::timeline_semaphore::DeviceFn::load(find_either);
        Some(Self { values, fds: khr::external_semaphore_fd::DeviceFn::load(find) })
    }
}

impl Device {
    /// Whether timeline semaphores of the device can be shared.
    pub(crate) fn shares_semaphores(&self) -> bool {
        let mut of_type = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::PhysicalDeviceExternalSemaphoreInfo::default().handle_type(OPAQUE_FD).push_next(&mut of_type);
        let mut found = vk::ExternalSemaphoreProperties::default();
        let (instance, physical) = (&self.instance.raw, self.physical.handle);
        // SAFETY: the handle comes from this instance, whose version has the function.
        unsafe { instance.get_physical_device_external_semaphore_properties(physical, &info, &mut found) };
        let features = found.external_semaphore_features;
        self.timelines.is_some() && features.contains(vk::ExternalSemaphoreFeatureFlags::EXPORTABLE)
    }

    fn timelines(&self) -> Result<&Timelines> {
        fork::check()?;
        let device = || self.physical.name.clone();
        self.timelines
            .as_ref()
            .ok_or_else(|| Error::Extension { device: device(), extension: "VK_KHR_external_semaphore_fd" })
    }

    /// Creates a timeline semaphore that can be exported.
    pub(crate) fn create_timeline(&self, value: u64) -> Result<vk::Semaphore> {
        self.timelines()?;
        let mut of_type =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE).initial_value(value);
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(OPAQUE_FD);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut of_type).push_next(&mut export);
        // SAFETY: the structures live until the call returns; the device has the feature.
        unsafe { self.raw.create_semaphore(&info, None) }.named(Call::CreateSemaphore)
    }

    /// A new descriptor of a semaphore from [`Self::create_timeline`], close-on-exec.
    pub(crate) unsafe fn export_semaphore(&self, semaphore: vk::Semaphore) -> Result<OwnedFd> {
        let get_fd = self.timelines()?.fds.get_semaphore_fd_khr;
        let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(semaphore).handle_type(OPAQUE_FD);
        let mut fd = -1;
        // SAFETY: by this method's contract.
        unsafe { get_fd(self.raw.handle(), &raw const info, &raw mut fd) }.result().named(Call::ExportSemaphore)?;
        if fd < 0 {
            return Err(Error::vulkan(Call::ExportSemaphore, vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
        }
        // SAFETY: the call made a new descriptor, which belongs to the caller.
        unsafe { os::take(fd) }
    }

    /// The value of a semaphore.
    pub(crate) unsafe fn semaphore_value(&self, semaphore: vk::Semaphore) -> Result<u64> {
        let get_value = self.timelines()?.values.get_semaphore_counter_value_khr;
        let mut value = 0;
        // SAFETY: by this method's contract.
        unsafe { get_value(self.raw.handle(), semaphore, &raw mut value) }
            .result()
            .named("vkGetSemaphoreCounterValueKHR")?;
        Ok(value)
    }

    /// Sets the value of a semaphore.
    ///
    /// # Safety
    ///
    /// The value must be greater than the semaphore's, and less than the values of submitted signals.
    pub(crate) unsafe fn signal_semaphore(&self, semaphore: vk::Semaphore, value: u64) -> Result<()> {
        let signal = self.timelines()?.values.signal_semaphore_khr;
        let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(value);
        // SAFETY: by this method's contract.
        unsafe { signal(self.raw.handle(), &raw const info) }.result().named("vkSignalSemaphoreKHR")
    }

    /// Waits until a semaphore has at least a value. Returns false if it has not after `patience`.
    pub(crate) unsafe fn wait_semaphore(
        &self,
        semaphore: vk::Semaphore,
        value: u64,
        patience: Duration,
    ) -> Result<bool> {
        let wait = self.timelines()?.values.wait_semaphores_khr;
        let (semaphores, values) = ([semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let nanoseconds = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: by this method's contract.
        match unsafe { wait(self.raw.handle(), &raw const info, nanoseconds) } {
            vk::Result::TIMEOUT => Ok(false),
            result => result.result().named("vkWaitSemaphoresKHR").map(|()| true),
        }
    }

    pub(crate) unsafe fn destroy_semaphore(&self, semaphore: vk::Semaphore) {
        if !fork::is_forked() {
            // SAFETY: by this method's contract.
            unsafe { self.raw.destroy_semaphore(semaphore, None) };
        }
    }
}
