//! Export and import of semaphores by descriptors.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr;

use ash::vk::{self, ExternalSemaphoreHandleTypeFlags as HandleTypes};

use super::device::{DEVICES, Known};
use super::life::{create_plain, release};
use crate::rules::broken;
use simcommon::payload::{Kind, Payload};

pub(super) unsafe extern "system" fn get_semaphore_fd(
    device: vk::Device,
    info: *const vk::SemaphoreGetFdInfoKHR<'_>,
    fd: *mut c_int,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: Vulkan asks for a valid structure.
    let asked = unsafe { *info };
    let shared = known.find(asked.semaphore).filter(|_| asked.handle_type == HandleTypes::OPAQUE_FD);
    let Some(shared) = shared else {
        let Some(of_driver) = &known.of_driver else {
            broken("vkGetSemaphoreFdKHR", "the semaphore was not created for this export (handleType-01132)");
        };
        // SAFETY: the caller's arguments, passed on.
        return unsafe { (of_driver.get_semaphore_fd_khr)(device, info, fd) };
    };
    let exported = shared.share().and_then(|()| shared.timeline.payload().descriptor());
    match exported {
        Ok(exported) => {
            // SAFETY: the caller's output.
            unsafe { *fd = exported.into_raw_fd() };
            vk::Result::SUCCESS
        }
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => vk::Result::ERROR_TOO_MANY_OBJECTS,
        Err(_) => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
    }
}

/// The descriptor is consumed on success only. The semaphore gets the payload until it is destroyed or gets another one.
pub(super) unsafe extern "system" fn import_semaphore_fd(
    device: vk::Device,
    info: *const vk::ImportSemaphoreFdInfoKHR<'_>,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: Vulkan asks for a valid structure.
    let asked = unsafe { *info };
    if asked.handle_type != HandleTypes::OPAQUE_FD {
        let Some(of_driver) = &known.of_driver else { return vk::Result::ERROR_INVALID_EXTERNAL_HANDLE };
        // SAFETY: the caller's arguments, passed on.
        return unsafe { (of_driver.import_semaphore_fd_khr)(device, info) };
    }
    // SAFETY: any number may be asked about.
    let is_open = asked.fd >= 0 && unsafe { libc::fcntl(asked.fd, libc::F_GETFD) } >= 0;
    if !is_open || asked.flags.contains(vk::SemaphoreImportFlags::TEMPORARY) {
        return vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
    }
    // SAFETY: open, and the caller's for the length of the call.
    let payload = Payload::import(unsafe { BorrowedFd::borrow_raw(asked.fd) });
    let kind = known.kind(asked.semaphore);
    let Some(payload) = payload.ok().flatten().filter(|payload| payload.kind() == Some(kind)) else {
        return vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
    };
    let mut driver = vk::Semaphore::null();
    // SAFETY: no allocator, and an output of this function's.
    let result = unsafe { create_plain(&known, Kind::Timeline, payload.value(), ptr::null(), &raw mut driver) };
    if result != vk::Result::SUCCESS {
        return result;
    }
    let shared = known.new_shared(driver, kind, payload);
    if shared.share().is_err() {
        // SAFETY: nothing has used it.
        unsafe { release(&known, asked.semaphore, &shared) };
        return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    }
    if let Some(old) = known.insert(asked.semaphore, Known::Shared(shared)) {
        // SAFETY: Vulkan asks that no work uses a semaphore that gets a payload.
        unsafe { release(&known, asked.semaphore, &old) };
    }
    // SAFETY: the caller gives the descriptor away.
    drop(unsafe { OwnedFd::from_raw_fd(asked.fd) });
    vk::Result::SUCCESS
}
