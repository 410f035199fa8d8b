//! Semaphores: creation, export, import, and waits and signals by the host.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_int;

use ash::vk;

use super::device::DEVICES;
use super::passing::{counted, passed_on};

counted! {
    create_semaphore = "vkCreateSemaphore", destroy_semaphore = "vkDestroySemaphore"
        of Semaphore: vk::Semaphore, vk::SemaphoreCreateInfo<'_>, DEVICES;
}

passed_on! {
    get_semaphore_fd = "vkGetSemaphoreFdKHR"(
        device: vk::Device, info: *const vk::SemaphoreGetFdInfoKHR<'_>, fd: *mut c_int
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.external_semaphore_fd.get_semaphore_fd_khr;
    import_semaphore_fd = "vkImportSemaphoreFdKHR"(
        device: vk::Device, info: *const vk::ImportSemaphoreFdInfoKHR<'_>
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.external_semaphore_fd.import_semaphore_fd_khr;
    signal_semaphore = "vkSignalSemaphore"(
        device: vk::Device, info: *const vk::SemaphoreSignalInfo<'_>
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.next.fp_v1_2().signal_semaphore;
    wait_semaphores = "vkWaitSemaphores"(
        device: vk::Device, info: *const vk::SemaphoreWaitInfo<'_>, timeout: u64
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.next.fp_v1_2().wait_semaphores;
}
