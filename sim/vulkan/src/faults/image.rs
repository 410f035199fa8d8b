//! Images.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use ash::vk;

use super::device::DEVICES;
use super::ledger::Noun;
use super::memory::enter;
use super::passing::passed_on;

pub(super) unsafe extern "system" fn create_image(
    device: vk::Device,
    info: *const vk::ImageCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    image: *mut vk::Image,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let kept = match unsafe { enter(device, "vkCreateImage") } {
        Ok(kept) => kept,
        Err(result) => return result,
    };
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { (kept.next.fp_v1_0().create_image)(device, info, allocator, image) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        kept.identity.born(Noun::Image, unsafe { *image });
    }
    result
}

pub(super) unsafe extern "system" fn destroy_image(
    device: vk::Device,
    image: vk::Image,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: a live device of the caller's.
    let Ok(kept) = (unsafe { enter(device, "vkDestroyImage") }) else {
        return;
    };
    kept.identity.died(Noun::Image, image);
    // SAFETY: the caller's arguments, passed on.
    unsafe { (kept.next.fp_v1_0().destroy_image)(device, image, allocator) };
}

passed_on! {
    bind_image_memory = "vkBindImageMemory"(
        device: vk::Device, image: vk::Image, memory: vk::DeviceMemory, offset: vk::DeviceSize
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.next.fp_v1_0().bind_image_memory;
}
