//! Counters, signals and waits of the host. A wait that ends lets the payloads follow before it returns, so that other
//! processes see what this one knows.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use ash::vk;

use super::device::{DEVICES, Device};
use crate::interface::array;

pub(super) unsafe extern "system" fn get_semaphore_counter_value(
    device: vk::Device,
    semaphore: vk::Semaphore,
    value: *mut u64,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    let shared = known.find(semaphore);
    let driver = shared.as_ref().map_or(semaphore, |shared| shared.driver);
    if let Some(shared) = &shared {
        shared.timeline.adopt();
    }
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (known.next.fp_v1_2().get_semaphore_counter_value)(device, driver, value) };
    if let Some(shared) = &shared {
        shared.timeline.publish();
    }
    result
}

pub(super) unsafe extern "system" fn signal_semaphore(
    device: vk::Device,
    info: *const vk::SemaphoreSignalInfo<'_>,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: Vulkan asks for a valid structure.
    let mut info = unsafe { *info };
    let shared = known.find(info.semaphore);
    if let Some(shared) = &shared {
        info.semaphore = shared.driver;
    }
    // SAFETY: the caller's arguments with another semaphore, alive during the call.
    let signal = || unsafe { (known.next.fp_v1_2().signal_semaphore)(device, &raw const info) };
    match &shared {
        Some(shared) => shared.timeline.raise(signal),
        None => signal(),
    }
}

pub(super) unsafe extern "system" fn wait_semaphores(
    device: vk::Device,
    info: *const vk::SemaphoreWaitInfo<'_>,
    timeout: u64,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: Vulkan asks for a valid structure.
    let mut info = unsafe { *info };
    // SAFETY: an array of this length.
    let mut semaphores = unsafe { array(info.p_semaphores, info.semaphore_count) }.to_vec();
    for semaphore in &mut semaphores {
        if let Some(shared) = known.find(*semaphore) {
            // A payload that has the value already must end a wait without a timeout.
            shared.timeline.adopt();
            *semaphore = shared.driver;
        }
    }
    info.p_semaphores = semaphores.as_ptr();
    // SAFETY: the caller's arguments with other semaphores, alive during the call.
    let result = unsafe { (known.next.fp_v1_2().wait_semaphores)(device, &raw const info, timeout) };
    publish(&known);
    result
}

pub(super) unsafe extern "system" fn wait_for_fences(
    device: vk::Device,
    count: u32,
    fences: *const vk::Fence,
    all: vk::Bool32,
    timeout: u64,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (known.next.fp_v1_0().wait_for_fences)(device, count, fences, all, timeout) };
    publish(&known);
    result
}

pub(super) unsafe extern "system" fn queue_wait_idle(queue: vk::Queue) -> vk::Result {
    // SAFETY: a live queue of the caller's.
    let Some(known) = (unsafe { DEVICES.get(queue) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { (known.next.fp_v1_0().queue_wait_idle)(queue) };
    publish(&known);
    result
}

pub(super) unsafe extern "system" fn device_wait_idle(device: vk::Device) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { (known.next.fp_v1_0().device_wait_idle)(device) };
    publish(&known);
    result
}

fn publish(device: &Device) {
    for shared in device.all_shared() {
        shared.timeline.publish();
    }
}
