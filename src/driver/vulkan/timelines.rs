//! [`Timelines`]: a device's functions for timeline semaphores, which are optional.
#![expect(unsafe_code, reason = "foreign function calls")]

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use ash::khr;

/// The extensions of semaphores that are shared.
pub(super) const EXTENSIONS: [&CStr; 2] = [khr::timeline_semaphore::NAME, khr::external_semaphore_fd::NAME];

/// The functions of a device on timeline semaphores.
pub(super) struct Timelines {
    pub(super) values: khr::timeline_semaphore::DeviceFn,
    pub(super) fds: khr::external_semaphore_fd::DeviceFn,
}

impl Timelines {
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
