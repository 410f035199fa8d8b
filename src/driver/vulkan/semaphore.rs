//! Timeline semaphores that are exported as opaque file descriptors.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use ash::vk;

use super::timelines::Timelines;
use super::{Device, Named};
use crate::driver::{descriptor, fork};
use crate::error::Call;
use crate::{Error, Result};

const OPAQUE_FD: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;

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

    /// A new descriptor of a semaphore, close-on-exec.
    ///
    /// # Safety
    ///
    /// The semaphore must be live and come from [`Self::create_timeline`].
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
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        descriptor::close_on_exec(&fd)?;
        Ok(fd)
    }

    /// The value of a semaphore.
    ///
    /// # Safety
    ///
    /// The semaphore must be a live timeline semaphore of this device.
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
    /// The contract of [`Self::semaphore_value`], and the value must be greater than the semaphore's, and less than the
    /// values of submitted signals.
    pub(crate) unsafe fn signal_semaphore(&self, semaphore: vk::Semaphore, value: u64) -> Result<()> {
        let signal = self.timelines()?.values.signal_semaphore_khr;
        let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(value);
        // SAFETY: by this method's contract.
        unsafe { signal(self.raw.handle(), &raw const info) }.result().named("vkSignalSemaphoreKHR")
    }

    /// Waits until a semaphore has at least a value. Returns false if it has not after `patience`.
    ///
    /// # Safety
    ///
    /// The contract of [`Self::semaphore_value`].
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

    /// # Safety
    ///
    /// The semaphore must come from [`Self::create_timeline`], and nothing may use it any more.
    pub(crate) unsafe fn destroy_semaphore(&self, semaphore: vk::Semaphore) {
        if fork::is_forked() {
            return;
        }
        // SAFETY: by this method's contract.
        unsafe { self.raw.destroy_semaphore(semaphore, None) };
    }
}
