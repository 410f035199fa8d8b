//! Semaphores: creation, export, import, and waits and signals by the host.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_int;

use ash::vk;

use super::device::DEVICES;
use super::ledger::Noun;
use super::passing::passed_on;

pub(super) unsafe extern "system" fn create_semaphore(
    device: vk::Device,
    info: *const vk::SemaphoreCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    semaphore: *mut vk::Semaphore,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(kept) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    if let Err(result) = kept.identity.enter("vkCreateSemaphore") {
        return result;
    }
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (kept.next.fp_v1_0().create_semaphore)(device, info, allocator, semaphore) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        kept.identity.born(Noun::Semaphore, unsafe { *semaphore });
    }
    result
}

pub(super) unsafe extern "system" fn destroy_semaphore(
    device: vk::Device,
    semaphore: vk::Semaphore,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: a live device of the caller's.
    let Some(kept) = (unsafe { DEVICES.get(device) }) else { return };
    // A fault only shows in the count: the function returns nothing.
    let _ = kept.identity.enter("vkDestroySemaphore");
    kept.identity.died(Noun::Semaphore, semaphore);
    // SAFETY: the caller's arguments, passed on.
    unsafe { (kept.next.fp_v1_0().destroy_semaphore)(device, semaphore, allocator) };
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
