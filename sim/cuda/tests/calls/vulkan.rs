//! A Vulkan device with semaphores that can be exported.

use std::ffi::c_char;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use ash::khr::external_semaphore_fd;
use ash::vk::{self, ExternalSemaphoreFeatureFlags as Features, ExternalSemaphoreHandleTypeFlags as HandleTypes};

/// The longest wait of a test for a semaphore that is signalled.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A semaphore of either type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Binary,
    /// With its first value.
    Timeline(u64),
}

/// An instance with a device and a queue.
pub(crate) struct Vulkan {
    device: ash::Device,
    fds: external_semaphore_fd::Device,
    queue: vk::Queue,
    instance: ash::Instance,
    _entry: ash::Entry,
}

#[track_caller]
fn good<T>(result: Result<T, vk::Result>) -> T {
    result.unwrap_or_else(|result| panic!("{result:?}"))
}

impl Vulkan {
    /// The first device, if it exports semaphores of both types.
    pub(crate) fn open() -> Option<Vulkan> {
        Self::with_extensions(&[external_semaphore_fd::NAME.as_ptr()])
    }

    /// The same without the extension by which semaphores are exported.
    pub(crate) fn open_plain() -> Option<Vulkan> {
        Self::with_extensions(&[])
    }

    fn with_extensions(extensions: &[*const c_char]) -> Option<Vulkan> {
        // SAFETY: loading the loader runs only its own initialisation.
        let entry = unsafe { ash::Entry::load() }.ok()?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live during the call.
        let instance = unsafe { entry.create_instance(&info, None) }.ok()?;
        // SAFETY: the instance is live.
        let physical = good(unsafe { instance.enumerate_physical_devices() }).into_iter().next()?;
        if !exports_semaphores(&instance, physical) {
            // SAFETY: nothing of the instance is in use.
            unsafe { instance.destroy_instance(None) };
            return None;
        }
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
        let mut timelines = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut submits = vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(extensions)
            .push_next(&mut timelines)
            .push_next(&mut submits);
        // SAFETY: the structures live during the call.
        let device = good(unsafe { instance.create_device(physical, &info, None) });
        // SAFETY: the device has this queue.
        let queue = unsafe { device.get_device_queue(0, 0) };
        let fds = external_semaphore_fd::Device::new(&instance, &device);
        Some(Vulkan { device, fds, queue, instance, _entry: entry })
    }

    /// Creates a semaphore.
    pub(crate) fn semaphore(&self, kind: Kind, exportable: bool) -> vk::Semaphore {
        let (semaphore_type, value) = match kind {
            Kind::Binary => (vk::SemaphoreType::BINARY, 0),
            Kind::Timeline(value) => (vk::SemaphoreType::TIMELINE, value),
        };
        let mut of_type = vk::SemaphoreTypeCreateInfo::default().semaphore_type(semaphore_type).initial_value(value);
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(HandleTypes::OPAQUE_FD);
        let mut info = vk::SemaphoreCreateInfo::default().push_next(&mut of_type);
        if exportable {
            info = info.push_next(&mut export);
        }
        // SAFETY: the structures live during the call.
        good(unsafe { self.device.create_semaphore(&info, None) })
    }

    /// A semaphore that can be exported, with a descriptor of it.
    pub(crate) fn exported(&self, kind: Kind) -> (vk::Semaphore, OwnedFd) {
        let semaphore = self.semaphore(kind, true);
        (semaphore, self.export(semaphore))
    }

    pub(crate) fn export(&self, semaphore: vk::Semaphore) -> OwnedFd {
        good(self.try_export(semaphore))
    }

    pub(crate) fn try_export(&self, semaphore: vk::Semaphore) -> Result<OwnedFd, vk::Result> {
        let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(semaphore).handle_type(HandleTypes::OPAQUE_FD);
        // SAFETY: the semaphore was created for export.
        let fd = unsafe { self.fds.get_semaphore_fd(&info) }?;
        // SAFETY: a new descriptor, without another owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Imports a descriptor, which is consumed on success.
    pub(crate) fn import(&self, semaphore: vk::Semaphore, fd: RawFd) -> Result<(), vk::Result> {
        let handle = HandleTypes::OPAQUE_FD;
        let info = vk::ImportSemaphoreFdInfoKHR::default().semaphore(semaphore).handle_type(handle).fd(fd);
        // SAFETY: the semaphore is not in use.
        unsafe { self.fds.import_semaphore_fd(&info) }
    }

    pub(crate) fn destroy(&self, semaphore: vk::Semaphore) {
        // SAFETY: the queue has no work.
        good(unsafe { self.device.queue_wait_idle(self.queue) });
        // SAFETY: no work uses it.
        unsafe { self.device.destroy_semaphore(semaphore, None) };
    }

    /// Signals a timeline by the CPU.
    pub(crate) fn signal(&self, semaphore: vk::Semaphore, value: u64) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(value);
        // SAFETY: a live timeline semaphore.
        good(unsafe { self.device.signal_semaphore(&info) });
    }

    pub(crate) fn counter(&self, semaphore: vk::Semaphore) -> u64 {
        // SAFETY: a live timeline semaphore.
        good(unsafe { self.device.get_semaphore_counter_value(semaphore) })
    }

    /// Whether a timeline reaches a value in time.
    pub(crate) fn reaches(&self, semaphore: vk::Semaphore, value: u64, time: Duration) -> bool {
        let (semaphores, values) = ([semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: a live timeline semaphore.
        match unsafe { self.device.wait_semaphores(&info, time) } {
            Ok(()) => true,
            Err(vk::Result::TIMEOUT) => false,
            Err(result) => panic!("{result:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn wait(&self, semaphore: vk::Semaphore, value: u64) {
        assert!(self.reaches(semaphore, value, TIMEOUT), "the semaphore stays at {}", self.counter(semaphore));
    }

    /// Submits a batch without commands. Values matter for timelines.
    pub(crate) fn submit(&self, wait: (vk::Semaphore, u64), signal: Option<(vk::Semaphore, u64)>, fence: vk::Fence) {
        let (waits, wait_values) = ([wait.0], [wait.1]);
        let (signals, signal_values): (Vec<_>, Vec<_>) = signal.into_iter().unzip();
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&wait_values)
            .signal_semaphore_values(&signal_values);
        let batch = vk::SubmitInfo::default()
            .wait_semaphores(&waits)
            .wait_dst_stage_mask(&[vk::PipelineStageFlags::ALL_COMMANDS])
            .signal_semaphores(&signals)
            .push_next(&mut values);
        // SAFETY: live semaphores; the structures live during the call.
        good(unsafe { self.device.queue_submit(self.queue, &[batch], fence) });
    }

    /// Submits a signal by the function of Vulkan 1.3.
    pub(crate) fn submit_signal(&self, semaphore: vk::Semaphore, value: u64) {
        let stages = vk::PipelineStageFlags2::ALL_COMMANDS;
        let signals = [vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value).stage_mask(stages)];
        let batch = vk::SubmitInfo2::default().signal_semaphore_infos(&signals);
        // SAFETY: live semaphores; the structures live during the call.
        good(unsafe { self.device.queue_submit2(self.queue, &[batch], vk::Fence::null()) });
    }

    /// Submits a wait for a binary semaphore and returns once the queue has passed it.
    pub(crate) fn pass(&self, semaphore: vk::Semaphore) {
        // SAFETY: the structure lives during the call.
        let fence = good(unsafe { self.device.create_fence(&vk::FenceCreateInfo::default(), None) });
        self.submit((semaphore, 0), None, fence);
        let time = u64::try_from(TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: a live fence.
        good(unsafe { self.device.wait_for_fences(&[fence], true, time) });
        // SAFETY: the queue is done with it.
        unsafe { self.device.destroy_fence(fence, None) };
    }
}

fn exports_semaphores(instance: &ash::Instance, physical: vk::PhysicalDevice) -> bool {
    // SAFETY: a live physical device.
    let extensions = good(unsafe { instance.enumerate_device_extension_properties(physical) });
    let listed = extensions.iter().any(|known| known.extension_name_as_c_str() == Ok(external_semaphore_fd::NAME));
    let both = [vk::SemaphoreType::BINARY, vk::SemaphoreType::TIMELINE].iter().all(|semaphore_type| {
        let mut of_type = vk::SemaphoreTypeCreateInfo::default().semaphore_type(*semaphore_type);
        let info = vk::PhysicalDeviceExternalSemaphoreInfo::default().handle_type(HandleTypes::OPAQUE_FD);
        let info = info.push_next(&mut of_type);
        let mut properties = vk::ExternalSemaphoreProperties::default();
        // SAFETY: the structures live during the call.
        unsafe { instance.get_physical_device_external_semaphore_properties(physical, &info, &mut properties) };
        properties.external_semaphore_features.contains(Features::EXPORTABLE | Features::IMPORTABLE)
    });
    listed && both
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // SAFETY: the tests have destroyed its semaphores.
        unsafe { self.device.destroy_device(None) };
        // SAFETY: its only device is gone.
        unsafe { self.instance.destroy_instance(None) };
    }
}
